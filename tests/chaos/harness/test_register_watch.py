"""The watch of the register sees every change, and its times make no right answer look wrong."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from chaos.harness.pair.changes import SqliteChanges
from chaos.harness.pair.register import RegisterWatch, lines_of
from chaos.history.history import GivenUp, ModeRecorded, Opened
from chaos.history.lines import Line
from storage.clock import SystemClock
from switchover.register.port import PairState, Switching
from switchover.register.sql import SqlCoordinator
from tests.processes import wait_for

A = PairState(epoch=1, active="a")
TAKING = Switching("p", "b", 2, "takeover", 0)


def test_an_opening_counts_from_when_it_was_seen_and_a_mode_from_before() -> None:
    assert lines_of(None, A, 1.0, 2.0) == [ModeRecorded(1, "sync", 1.0), Opened("a", 1, 2.0, "sync")]
    degraded = PairState(epoch=1, active="a", mode="async")
    assert lines_of(A, degraded, 3.0, 4.0) == [ModeRecorded(1, "async", 3.0)]
    assert lines_of(A, A, 3.0, 4.0) == []


def test_a_takeover_from_an_asynchronous_active_gives_up_what_that_one_reported() -> None:
    before = PairState(epoch=1, active="a", mode="async", switching=TAKING)
    after = PairState(epoch=2, active="b", mode="async")
    assert lines_of(before, after, 3.0, 4.0)[-1] == GivenUp(1, 4.0)
    planned = PairState(epoch=1, active="a", mode="async", switching=Switching("p", "b", 2, "switchover", 0))
    assert GivenUp(1, 4.0) not in lines_of(planned, after, 3.0, 4.0)


async def test_every_change_is_seen_however_fast_they_follow(tmp_path: Path) -> None:
    found: list[Line] = []
    watch = RegisterWatch(SqliteChanges(tmp_path / "coordinator.db"), time.monotonic, found.append)
    watch.start()
    coordinator = SqlCoordinator(f"sqlite:///{tmp_path}/coordinator.db", "demo", SystemClock())
    value = None
    for epoch in range(1, 6):
        state = PairState(epoch=epoch, epoch_allocated=epoch, active="ab"[epoch % 2], reason="a test")
        value = await coordinator.compare_and_set(value, state)
    await coordinator.close()
    assert wait_for(lambda: sum(isinstance(line, Opened) for line in found) == 5)
    watch.stop()
    assert [line.epoch for line in found if isinstance(line, Opened)] == [1, 2, 3, 4, 5]
    assert watch.active == "b"
    assert not watch.error


async def test_a_database_that_goes_back_and_comes_back_is_followed(tmp_path: Path) -> None:
    found: list[Line] = []
    database, older = tmp_path / "coordinator.db", tmp_path / "older.db"
    coordinator = SqlCoordinator(f"sqlite:///{database}", "demo", SystemClock())
    first = await coordinator.compare_and_set(None, PairState(epoch=1, epoch_allocated=1, active="a", reason="a test"))
    with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(older)) as copy:
        source.backup(copy)
    await coordinator.compare_and_set(first, PairState(epoch=2, epoch_allocated=2, active="b", mode="async", reason="a test"))
    watch = RegisterWatch(SqliteChanges(database), time.monotonic, found.append)
    watch.start()
    assert wait_for(lambda: watch.active == "b")
    newest = tmp_path / "newest.db"
    with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(newest)) as copy:
        source.backup(copy)
    await coordinator.close()
    put_in_its_place(older, database)
    assert wait_for(lambda: watch.active == "a")
    assert found[-1] == ModeRecorded(1, "sync", found[-1].at_s)  # type: ignore[attr-defined]
    newest.rename(database)
    assert wait_for(lambda: watch.active == "b")
    watch.stop()
    assert [line.epoch for line in found if isinstance(line, Opened)] == [1, 2]
    assert not watch.error


def put_in_its_place(older: Path, database: Path) -> None:
    for suffix in ("-wal", "-shm"):  # a look of the watch may have kept them, and SQLite would read them into the older one
        Path(f"{database}{suffix}").unlink(missing_ok=True)
    older.rename(database)


async def test_the_register_of_another_pair_in_the_same_database_is_none_of_ours(tmp_path: Path) -> None:
    found: list[Line] = []
    for pair in ("other", "demo"):
        coordinator = SqlCoordinator(f"sqlite:///{tmp_path}/coordinator.db", pair, SystemClock())
        await coordinator.compare_and_set(None, PairState(epoch=7, active="ab"[pair == "demo"], reason="a test"))
        await coordinator.close()
    watch = RegisterWatch(SqliteChanges(tmp_path / "coordinator.db"), time.monotonic, found.append)
    watch.start()
    assert wait_for(lambda: bool(found))
    watch.stop()
    assert [line.site for line in found if isinstance(line, Opened)] == ["b"]
