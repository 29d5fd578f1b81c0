"""The coordinator's contract, for the database and for its twin; and what only the database must withstand."""

from __future__ import annotations

import asyncio
import multiprocessing
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from remote_log.dfs.directory import DirectoryDfs
from remote_log.layout import RemoteLayout
from storage.clock import SystemClock
from switchover.register.port import ATTEMPTS_MAX, Coordinator, PairState, update
from switchover.register.sql import SqlCoordinator
from switchover.register.transitions import begin_plan, downgrade, open_plan, renew_lease
from switchover.register.two_dfs import DfsCoordinator
from tests.pair.registers import back_up_database
from tests.storage.engines.sql.rig import a_database, postgres
from tests.switchover.register.memory_coordinator import MemoryCoordinator, MemoryRegister
from twinlog.errors import PlanSuperseded, Refused, Unavailable


def sqlite_url(folder: Path) -> str:
    return f"sqlite:///{folder / 'coordinator.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a new database."""
    if request.param == "sqlite":
        yield sqlite_url(tmp_path)
        return
    with a_database() as name:
        yield postgres().url(name)


class Doors:
    """Two sites' doors to one register, whatever is behind them."""

    def __init__(self, a: Coordinator, b: Coordinator) -> None:
        self.a, self.b = a, b


def dfs_door(folder: Path, site: str) -> DfsCoordinator:
    peer = {"a": "b", "b": "a"}[site]
    for name in (site, peer):
        (folder / name).mkdir(exist_ok=True)
    return DfsCoordinator(
        site=site, peer=peer, own_dfs=DirectoryDfs(folder / site, "own"), peer_dfs=DirectoryDfs(folder / peer, "peer"),
        layout=RemoteLayout("pair"), initial_active="a", clock=SystemClock(),
    )


@pytest.fixture(params=["sqlite", "postgresql", "memory", "two DFSs"])
async def doors(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Doors]:
    if request.param == "postgresql":
        with a_database() as name:
            servers = [SqlCoordinator(postgres().url(name), "pair", SystemClock()) for _ in range(2)]
            yield Doors(*servers)
            for server in servers:
                await server.close()
        return
    if request.param == "two DFSs":
        yield Doors(dfs_door(tmp_path, "a"), dfs_door(tmp_path, "b"))
        return
    if request.param == "memory":
        register = MemoryRegister()
        yield Doors(MemoryCoordinator(register, "a"), MemoryCoordinator(register, "b"))
        return
    both = [SqlCoordinator(sqlite_url(tmp_path), "pair", SystemClock()) for _ in range(2)]
    yield Doors(*both)
    for one in both:
        await one.close()


async def test_a_fresh_pair_has_no_value(doors: Doors) -> None:
    assert await doors.a.read() is None


async def test_the_first_value_is_created_once(doors: Doors) -> None:
    first = begin_plan(None, "p1", "a", "bootstrap", 1)
    created = await doors.a.compare_and_set(None, first)
    assert created.state_id == 1
    assert await doors.b.read() == created
    with pytest.raises(PlanSuperseded) as caught:
        await doors.b.compare_and_set(None, begin_plan(None, "p2", "b", "bootstrap", 1))
    assert caught.value.fields["current"]["switching"]["plan_id"] == "p1"  # type: ignore[index]
    assert await doors.b.read() == created


async def test_a_change_needs_the_id_that_was_read(doors: Doors) -> None:
    one = await doors.a.compare_and_set(None, begin_plan(None, "p1", "a", "bootstrap", 1))
    two = await doors.a.compare_and_set(one, open_plan(one, "p1", "sync"))
    assert two.state_id == 2
    for stale in (None, one, replace(two, state_id=3), replace(two, reason="another")):
        with pytest.raises(PlanSuperseded) as caught:
            await doors.b.compare_and_set(stale, begin_plan(two, "p2", "b", "takeover", 1))
        assert caught.value.fields["current"]["state_id"] == 2  # type: ignore[index]
    assert await doors.b.read() == two


async def test_a_change_needs_the_very_value_that_was_read_when_a_register_gives_the_same_id_again(tmp_path: Path) -> None:
    """A process stands still between its look and its change; the register goes back meanwhile, and another site, which had
    not met what is gone, changes it. That site's change would be overwritten, and its later looks would find it in the
    history."""
    a, b = [SqlCoordinator(sqlite_url(tmp_path), "pair", SystemClock()) for _ in range(2)]
    first = await update(a, lambda now: begin_plan(now, "p1", "a", "bootstrap", 1))
    opened = await update(a, lambda now: open_plan(now, "p1", "sync"))
    back_up_database(tmp_path / "coordinator.db", restore=False)
    read = await update(b, lambda now: begin_plan(now, "p2", "b", "takeover", 2))
    back_up_database(tmp_path / "coordinator.db", restore=True)
    degraded = await update(a, lambda now: downgrade(now, "a", 1, 5))
    assert (first.state_id, opened.state_id, read.state_id, degraded.state_id) == (1, 2, 3, 3)
    with pytest.raises(PlanSuperseded):
        await b.compare_and_set(read, open_plan(read, "p2", "sync"))
    assert await a.read() == degraded
    await asyncio.gather(a.close(), b.close())


async def test_nothing_is_created_at_a_later_id(doors: Doors) -> None:
    with pytest.raises(PlanSuperseded) as caught:
        await doors.a.compare_and_set(PairState(state_id=3), PairState())
    assert caught.value.fields["current"] is None
    assert await doors.a.read() is None


async def test_every_field_comes_back(doors: Doors) -> None:
    state = await update(doors.a, lambda now: begin_plan(now, "p1", "a", "bootstrap", 1234))
    state = await update(doors.a, lambda now: open_plan(now, "p1", "async", 17))
    state = await update(doors.a, lambda now: renew_lease(now, "a", 1))
    state = await update(doors.b, lambda now: begin_plan(now, "p2", "b", "takeover", 9, accept_data_loss=True))
    assert await doors.b.read() == state
    assert (state.state_id, state.lease_beats, state.async_since_seq) == (4, 1, 17)


async def test_of_a_takeover_and_a_downgrade_exactly_one_happens(doors: Doors) -> None:
    await update(doors.a, lambda now: begin_plan(now, "p1", "a", "bootstrap", 1))
    await update(doors.a, lambda now: open_plan(now, "p1", "sync"))
    results = await asyncio.gather(
        update(doors.a, lambda now: downgrade(now, "a", 1, 5)),
        update(doors.b, lambda now: begin_plan(now, "p2", "b", "takeover", 1)),
        return_exceptions=True,
    )
    assert sum(isinstance(result, PairState) for result in results) == 1
    assert sum(isinstance(result, PlanSuperseded | Refused) for result in results) == 1


async def test_updates_from_both_sites_all_count(doors: Doors) -> None:
    await update(doors.a, lambda now: begin_plan(now, "p1", "a", "bootstrap", 1))
    opened = await update(doors.a, lambda now: open_plan(now, "p1", "async", 0))

    async def beat(door: Coordinator) -> None:
        for _ in range(5):
            await update(door, lambda now: renew_lease(now, "a", 1))

    await asyncio.gather(beat(doors.a), beat(doors.b))
    last = await doors.a.read()
    assert last is not None
    assert (last.lease_beats, last.state_id) == (10, opened.state_id + 10)


async def test_an_update_that_says_nothing_new_sets_nothing(doors: Doors) -> None:
    began = await update(doors.a, lambda now: begin_plan(now, "p1", "a", "bootstrap", 1))
    assert await update(doors.a, lambda now: begin_plan(now, "p1", "a", "bootstrap", 2)) == began


async def test_an_update_that_never_wins_gives_up() -> None:
    register = MemoryRegister()
    a, b = MemoryCoordinator(register, "a"), MemoryCoordinator(register, "b")
    judged = 0

    def overtaken(now: PairState | None) -> PairState:
        nonlocal judged
        judged += 1
        register.history.append(PairState(state_id=judged, reason="somebody else"))
        return PairState()

    with pytest.raises(PlanSuperseded, match="changed 16 times"):
        await update(a, overtaken)
    assert judged == ATTEMPTS_MAX
    assert (await b.read()) == register.value


async def test_the_twin_can_be_cut_off_and_can_lose_an_answer() -> None:
    register = MemoryRegister()
    a, b = MemoryCoordinator(register, "a"), MemoryCoordinator(register, "b")
    register.unreachable_for.add("a")
    with pytest.raises(Unavailable):
        await a.read()
    with pytest.raises(Unavailable):
        await a.compare_and_set(None, PairState())
    assert await b.read() is None
    register.unreachable_for.clear()
    a.lose_answer = True
    with pytest.raises(Unavailable):
        await update(a, lambda now: begin_plan(now, "p1", "a", "bootstrap", 1))
    again = await update(a, lambda now: begin_plan(now, "p1", "a", "bootstrap", 1))
    assert again.state_id == 1, "asked again, the change is found made"


# ---- the database only


async def test_the_history_has_every_change_but_not_the_beats(url: str) -> None:
    one = SqlCoordinator(url, "pair", SystemClock())
    await update(one, lambda now: begin_plan(now, "p1", "a", "bootstrap", 1))
    last = await update(one, lambda now: open_plan(now, "p1", "async", 0))
    for _ in range(3):
        await update(one, lambda now: renew_lease(now, "a", 1))
    rows = await one.history()
    await one.close()
    assert [row.value.state_id for row in rows] == [2, 1]
    assert rows[0].value == last
    assert rows[0].reason == last.reason
    assert rows[1].wall_ms > 1_500_000_000_000


async def test_pairs_in_one_database_do_not_meet(url: str) -> None:
    one = SqlCoordinator(url, "one", SystemClock())
    two = SqlCoordinator(url, "two", SystemClock())
    await one.compare_and_set(None, begin_plan(None, "p1", "a", "bootstrap", 1))
    assert await two.read() is None
    assert await two.history() == []
    await two.compare_and_set(None, begin_plan(None, "p9", "b", "bootstrap", 1))
    await one.close()
    await two.close()


async def test_the_value_outlives_the_process_that_set_it(url: str) -> None:
    one = SqlCoordinator(url, "pair", SystemClock())
    value = await one.compare_and_set(None, begin_plan(None, "p1", "a", "bootstrap", 1))
    await one.close()
    again = SqlCoordinator(url, "pair", SystemClock())
    assert await again.read() == value
    await again.close()


async def test_the_file_is_synced_at_each_commit(tmp_path: Path) -> None:
    one = SqlCoordinator(sqlite_url(tmp_path), "pair", SystemClock())
    await one.read()

    def settings(connection: Any) -> tuple[Any, ...]:
        names = ("journal_mode", "synchronous", "busy_timeout")
        return tuple(connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in names)

    assert await one._database.run(settings) == ("wal", 2, 3000)
    await one.close()


async def test_a_server_that_was_restarted_is_asked_again_without_an_error() -> None:
    with a_database() as name:
        one = SqlCoordinator(postgres().url(name), "pair", SystemClock())
        value = await one.compare_and_set(None, begin_plan(None, "p1", "a", "bootstrap", 1))
        with postgres().connect() as admin:
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
        assert await one.read() == value
        await one.close()


async def test_what_is_wrong_with_a_server_is_said_and_the_setting_named() -> None:
    with a_database() as name:
        server = postgres()
        for url, why in (
            (server.url(name).replace(server.password, "wrong"), "password"), (server.url("absent"), "does not exist"),
            (server.url(name).replace(str(server.port), "1"), "refused"),
        ):
            one = SqlCoordinator(url, "pair", SystemClock())
            with pytest.raises(Unavailable, match=why) as caught:
                await one.read()
            assert "coordinator.url" in caught.value.message
            assert server.password not in caught.value.message
            await one.close()


async def test_a_database_that_hangs_is_unavailable_by_the_deadline(tmp_path: Path) -> None:
    one = SqlCoordinator(sqlite_url(tmp_path), "pair", SystemClock(), deadline_s=0.2)
    one._database._deadline_s = 120.0  # SQLite alone gives up early, and only where another one holds the lock
    value = await one.compare_and_set(None, begin_plan(None, "p1", "a", "bootstrap", 1))
    other = sqlite3.connect(tmp_path / "coordinator.db")
    other.execute("BEGIN IMMEDIATE")
    try:
        with pytest.raises(Unavailable, match="does not answer") as caught:
            await one.compare_and_set(value, PairState())
        assert caught.value.fields["waiting_for"] == "coordinator"
        assert (await one.read()) is not None, "readers do not wait for writers"
    finally:
        other.rollback()
        other.close()
    assert (await one.compare_and_set(value, PairState(reason="later"))).state_id == 2
    await one.close()


async def test_a_call_that_was_given_up_is_not_made_later(tmp_path: Path) -> None:
    one = SqlCoordinator(sqlite_url(tmp_path), "pair", SystemClock(), deadline_s=120)
    await one.read()
    go_on = threading.Event()
    one._database._deadline_s = 0.1  # only for the calls that are to hang: a busy disk must not fail the others
    stuck = asyncio.ensure_future(one._database.run(lambda _: go_on.wait(120)))
    await asyncio.sleep(0)  # the one that hangs is first in the queue
    with pytest.raises(Unavailable):
        await one.compare_and_set(None, begin_plan(None, "p1", "a", "bootstrap", 1))
    with pytest.raises(Unavailable):
        await stuck
    one._database._deadline_s = 120.0
    go_on.set()
    assert await one.read() is None
    await one.close()


@pytest.mark.parametrize("also", [(), ("-wal", "-shm")])
async def test_a_file_that_is_deleted_or_replaced_is_one_register_for_all_that_have_it_open(
    tmp_path: Path, also: tuple[str, ...]
) -> None:
    """Each would go on with the deleted one, which a site that starts later does not see."""
    here, backup = tmp_path / "coordinator.db", tmp_path / "backup.db"
    one, other = (SqlCoordinator(sqlite_url(tmp_path), "pair", SystemClock()) for _ in range(2))
    value = await one.compare_and_set(None, begin_plan(None, "p1", "a", "bootstrap", 1))
    assert await other.read() == value
    with closing(sqlite3.connect(here)) as source, closing(sqlite3.connect(backup)) as target:
        source.backup(target)
    here.unlink()
    for end in also:
        here.with_name(here.name + end).unlink()
    assert [await each.read() for each in (one, other)] == [None, None]
    with pytest.raises(PlanSuperseded):
        await other.compare_and_set(value, PairState(reason="behind what is gone"))
    begun = await other.compare_and_set(None, begin_plan(None, "p2", "b", "bootstrap", 2))
    assert await one.read() == begun
    for end in ("-wal", "-shm"):  # as the handbook has it: SQLite takes them for those of the file that comes back
        here.with_name(here.name + end).unlink()
    backup.rename(here)
    assert [await each.read() for each in (one, other)] == [value, value]
    assert (await one.compare_and_set(value, PairState(reason="later"))).state_id == 2
    assert (await other.read()) == (await one.read())
    await asyncio.gather(one.close(), other.close())


async def test_a_damaged_file_that_is_made_sound_in_its_place_is_read_again(tmp_path: Path) -> None:
    here = tmp_path / "coordinator.db"
    one = SqlCoordinator(sqlite_url(tmp_path), "pair", SystemClock())
    value = await one.compare_and_set(None, begin_plan(None, "p1", "a", "bootstrap", 1))
    await one.close()
    sound = here.read_bytes()
    here.write_bytes(b"no database" * 1000)
    one = SqlCoordinator(sqlite_url(tmp_path), "pair", SystemClock())
    with pytest.raises(Unavailable, match="not a database"):
        await one.read()
    here.write_bytes(sound)
    assert await one.read() == value
    await one.close()


async def test_a_change_of_a_file_that_is_replaced_meanwhile_is_not_confirmed(tmp_path: Path) -> None:
    one = SqlCoordinator(sqlite_url(tmp_path), "pair", SystemClock())
    await one.read()
    with pytest.raises(Unavailable, match="replaced in this moment"):
        await one._database.run(lambda _: (tmp_path / "coordinator.db").unlink())
    assert await one.read() is None
    await one.close()


async def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    one = SqlCoordinator(f"sqlite:///{tmp_path}/absent/c.db", "pair", SystemClock())
    with pytest.raises(Unavailable, match="absent"):
        await one.read()
    await one.close()


async def test_many_that_make_the_same_new_file_at_once_wait_for_each_other(tmp_path: Path) -> None:
    for number in range(40):
        crowd = [SqlCoordinator(f"sqlite:///{tmp_path}/{number}.db", "pair", SystemClock(), deadline_s=20) for _ in range(4)]
        assert await asyncio.gather(*[one.read() for one in crowd]) == [None] * len(crowd)
        for one in crowd:
            await one.close()


def _hammer(url: str, name: str, rounds: int, start: Any, wins: Any) -> None:
    """One process: in every round, try to move the value from the id of that round to the next; report what it won."""

    async def run() -> list[int]:
        one = SqlCoordinator(url, "pair", SystemClock(), deadline_s=20)
        won = []
        start.wait(120)
        while (at := 0 if (now := await one.read()) is None else now.state_id) < rounds:
            try:
                await one.compare_and_set(now, PairState(reason=f"{name} at {at}"))
                won.append(at)
            except PlanSuperseded:
                continue
        await one.close()
        return won

    wins.put((name, asyncio.run(run())))


async def test_of_many_processes_exactly_one_wins_each_round(url: str) -> None:
    rounds, crowd = 40, 4
    spawn = multiprocessing.get_context("spawn")
    start, wins = spawn.Barrier(crowd), spawn.Queue()
    names = [f"process {i}" for i in range(crowd)]
    processes = [spawn.Process(target=_hammer, args=(url, name, rounds, start, wins)) for name in names]
    for process in processes:
        process.start()
    won = dict([await asyncio.to_thread(wins.get, True, 50) for _ in processes])
    for process in processes:
        process.join()
    assert sorted(state_id for ids in won.values() for state_id in ids) == list(range(rounds))
    one = SqlCoordinator(url, "pair", SystemClock())
    history = await one.history(rounds)
    await one.close()
    assert [row.value.state_id for row in history] == list(range(rounds, 0, -1))
    assert all(f"{row.value.state_id - 1}" == row.reason.rsplit(" ", 1)[1] for row in history)
    assert all(row.value.state_id - 1 in won[row.reason.rsplit(" at ", 1)[0]] for row in history)
