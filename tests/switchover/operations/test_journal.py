"""The journal's contract, for the file and for its twin; and what only the file must withstand."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from sqlalchemy import create_engine, text

from chaos.simulate.twins.journal import MemoryJournal
from switchover.operations.document import (
    HistoryEntry,
    Operation,
    OperationError,
    OperationResult,
    PlannedStep,
    StepRecord,
    as_found,
    document,
    past_return,
    taken_up,
    with_step,
)
from switchover.operations.journal import DRY_RUN_KEPT_MS, DRY_RUNS_KEPT, Journal
from switchover.operations.sql_journal import SqlJournal, _operations
from tests.storage.engines.sql.rig import a_database, postgres
from twinlog.errors import ConfigError, Conflict, NotFound, Unavailable


def file_journal(folder: Path) -> SqlJournal:
    return SqlJournal(f"sqlite:///{folder / 'journal.db'}")


def operation(operation_id: str = "op-1", **changes: object) -> Operation:
    steps = (
        StepRecord("preflight", "check both sites", abortable=True),
        StepRecord("drain", "finish what was admitted", abortable=True),
        StepRecord("claim", "lock every older epoch", abortable=False),
    )
    return replace(Operation(operation_id, "switchover", "b", {"reason": "test"}, "ann", 1_400_000_000_000, steps), **changes)


def entry(event: str, operation_id: str = "op-1", **changes: object) -> HistoryEntry:
    return replace(HistoryEntry(1_400_000_000_001, operation_id, "switchover", "b", "ann", event), **changes)


@pytest.fixture(params=["file", "postgresql", "memory"])
async def journal(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Journal]:
    if request.param == "postgresql":
        with a_database() as name:
            server = SqlJournal(postgres().url(name))
            yield server
            await server.close()
        return
    one: Journal = file_journal(tmp_path) if request.param == "file" else MemoryJournal()
    yield one
    await one.close()


async def test_what_was_written_is_read(journal: Journal) -> None:
    first = operation()
    await journal.create(first, entry("started"))
    assert await journal.load("op-1") == first
    detail = {"last_seq": 2**62, "why": "ümlaut", "deep": [{"x": None}, 1.5, True]}
    second = with_step(first, 0, state="done", started_ms=5, finished_ms=9, detail=detail)
    second = replace(second, state="failed", error=OperationError("refused", "no", {"deep": [1]}, "drain"))
    second = replace(second, result=OperationResult(4, {"preflight": 4}, [PlannedStep("drain", "drain", True)]))
    second = replace(second, attempt=3, aborting=True, finished_ms=7)
    await journal.save(second, entry("step done", step="preflight", took_ms=4, detail=detail))
    assert await journal.load("op-1") == second
    assert (await journal.history(10))[0] == entry("step done", step="preflight", took_ms=4, detail=detail)


async def test_an_id_is_taken_once(journal: Journal) -> None:
    await journal.create(operation(), entry("started"))
    with pytest.raises(Conflict, match="op-1"):
        await journal.create(operation(kind="failover"), entry("started again"))
    assert (await journal.load("op-1")).kind == "switchover"
    assert [one.event for one in await journal.history(10)] == ["started"]


async def test_an_unknown_id_is_not_found(journal: Journal) -> None:
    with pytest.raises(NotFound, match="op-9"):
        await journal.load("op-9")


async def test_lists_are_newest_first_by_creation_and_limited(journal: Journal) -> None:
    for name in ("op-2", "op-1", "op-3"):
        await journal.create(operation(name), entry("started", name))
    await journal.save(operation("op-2", state="failed"), entry("failed", "op-2"))
    assert [one.id for one in await journal.operations(10)] == ["op-3", "op-1", "op-2"]
    assert [one.id for one in await journal.operations(2)] == ["op-3", "op-1"]
    assert [(one.operation, one.event) for one in await journal.history(2)] == [("op-2", "failed"), ("op-3", "started")]


async def test_the_file_outlives_the_process(tmp_path: Path) -> None:
    one = file_journal(tmp_path)
    await one.create(operation(), entry("started"))
    crashed = with_step(operation(), 0, state="running", started_ms=3)
    await one.save(crashed, entry("step started"))
    again = file_journal(tmp_path)  # the first is still open, as a killed one would have left its files
    assert await again.load("op-1") == crashed
    assert len(await again.history(10)) == 2
    await again.close()
    await one.close()


async def test_a_write_is_whole_or_absent(tmp_path: Path) -> None:
    one = SqlJournal(f"sqlite:///{tmp_path / 'journal.db'}")
    await one.create(operation(), entry("started"))
    other = sqlite3.connect(tmp_path / "journal.db")
    other.execute("ALTER TABLE history RENAME TO away")  # the last of the three tables that a write goes to
    other.commit()
    with pytest.raises(Unavailable, match="journal"):
        await one.save(with_step(operation(), 0, state="running"), entry("step started"))
    other.execute("ALTER TABLE away RENAME TO history")
    other.commit()
    other.close()
    assert await one.load("op-1") == operation()
    await one.close()


# ---- documents

STATES = st.sampled_from(["pending", "running", "done", "failed", "interrupted", "undoing", "undone", "undo_failed"])


def test_a_document_says_what_may_be_commanded() -> None:
    running = document(operation())
    assert (running.state, running.resumable, running.abortable) == ("running", False, True)
    assert running.steps == operation().steps
    gone = document(with_step(operation(state="failed"), 2, state="failed"))
    assert (gone.resumable, gone.abortable) == (True, False)
    done = document(operation(state="succeeded"))
    assert (done.resumable, done.abortable) == (False, False)
    given_up = document(operation(state="failed", aborting=True))
    assert (given_up.resumable, given_up.abortable) == (False, True)


def test_what_the_journal_calls_running_was_interrupted() -> None:
    found = as_found(with_step(operation(), 1, state="running"))
    assert (found.state, found.steps[1].state) == ("interrupted", "interrupted")
    ended = with_step(operation(state="failed"), 1, state="failed")
    assert as_found(ended) is ended


@given(st.lists(STATES, min_size=3, max_size=3))
def test_a_resume_repeats_whatever_stood_on_a_step_not_done(states: list[str]) -> None:
    stopped = operation(state="failed")
    for index, state in enumerate(states):
        stopped = with_step(stopped, index, state=state)
    resumed = taken_up(stopped, frozenset(["preflight"]))
    assert (resumed.state, resumed.attempt) == ("running", 2)
    way_back = past_return(stopped) is None
    first = next((i for i, state in enumerate(states) if state != "done"), 3)
    for index, (before, after) in enumerate(zip(stopped.steps, resumed.steps, strict=True)):
        check_again = way_back and before.name == "preflight"
        if before.state != "done":
            assert after.state == before.state, "what may have left something is still to be undone"
        else:
            assert (after.state == "pending") == (index > first or check_again)


async def test_dry_runs_do_not_fill_the_journal(journal: Journal) -> None:
    """Anybody may ask for as many as they like: what changed something stays, with its history."""
    now_ms = 1_400_000_000_000
    for number in range(40):
        dry = number % 4 != 0
        name = f"op-{number}"
        await journal.create(operation(name, dry_run=dry, created_ms=now_ms + number), entry("started", name))
        await journal.save(operation(name, dry_run=dry, created_ms=now_ms + number), entry("ended", name))
    kept = await journal.operations(1000)
    newest = [f"op-{number}" for number in range(39, 0, -1) if number % 4]
    assert [one.id for one in kept if one.dry_run] == newest[:DRY_RUNS_KEPT]
    assert [one.id for one in kept if not one.dry_run] == [f"op-{number}" for number in range(36, -1, -4)]
    assert {one.operation for one in await journal.history(1000)} == {one.id for one in kept}
    await journal.create(operation("op-late", created_ms=now_ms + 40 + DRY_RUN_KEPT_MS), entry("started", "op-late"))
    assert not any(one.dry_run for one in await journal.operations(1000))


@pytest.mark.parametrize("column", [column.name for column in _operations.columns if column.nullable])
async def test_a_journal_of_an_earlier_release_gets_the_columns_that_it_lacks(tmp_path: Path, column: str) -> None:
    old = file_journal(tmp_path)
    await old.create(operation(), entry("created"))
    await old.close()
    with closing(sqlite3.connect(tmp_path / "journal.db")) as database:
        database.execute(f'ALTER TABLE operations DROP COLUMN "{column}"')
        database.commit()
    journal = file_journal(tmp_path)
    assert getattr(await journal.load("op-1"), column) is None
    await journal.create(operation("op-2", expires_ms=7, finished_ms=8), entry("created", "op-2"))
    assert [(one.id, one.expires_ms, one.finished_ms) for one in await journal.operations(1)] == [("op-2", 7, 8)]
    await journal.close()


async def test_one_on_a_server_too() -> None:
    with a_database() as name:
        url = postgres().url(name)
        old = SqlJournal(url)
        await old.create(operation(), entry("created"))
        await old.close()
        engine = create_engine(url)
        with engine.begin() as connection:
            connection.execute(text("ALTER TABLE twinlog_journal.operations DROP COLUMN expires_ms"))
        engine.dispose()
        journal = SqlJournal(url)
        assert (await journal.load("op-1")).expires_ms is None
        await journal.close()


async def test_one_that_cannot_be_filled_up_is_an_error_which_says_what_to_do(tmp_path: Path) -> None:
    old = file_journal(tmp_path)
    await old.operations(1)
    await old.close()
    with closing(sqlite3.connect(tmp_path / "journal.db")) as database:
        database.execute("ALTER TABLE operations DROP COLUMN aborting")
        database.commit()
    journal = file_journal(tmp_path)
    with pytest.raises(ConfigError, match="is of another release: its table operations has no column aborting; stop the site"):
        await journal.operations(1)
    await journal.close()


async def test_what_a_database_says_is_told_without_its_statement(tmp_path: Path) -> None:
    journal = file_journal(tmp_path)
    await journal.operations(1)
    with closing(sqlite3.connect(tmp_path / "journal.db")) as database:
        database.execute("DROP TABLE operations")
        database.commit()
    with pytest.raises(Unavailable, match=r"no such table: main\.operations; check that") as caught:
        await journal.operations(1)
    assert "SELECT" not in str(caught.value)
    await journal.close()
