"""A page waits for the other site no longer than its patience, and shows what that one said last, with its age."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from gateway.table_figures import kept
from gateway.table_figures.documents import TablesHeld
from gateway.table_figures.kept import KEPT_MAX, KeptTables
from twinlog.errors import PeerError, TwinlogError


class OtherSite:
    """Site b as site a asks it: it answers `said`, when `free` is set."""

    def __init__(self) -> None:
        self.said: TwinlogError | TablesHeld = TablesHeld("b", False, False, [])
        self.free = asyncio.Event()
        self.free.set()
        self.asked: list[int | None] = []
        self.now_s = 100.0

    def monotonic_s(self) -> float:
        return self.now_s

    async def other_tables(self, table: int | None = None) -> TablesHeld:
        self.asked.append(table)
        await self.free.wait()
        if isinstance(self.said, TwinlogError):
            raise self.said
        return self.said

    def tables(self) -> KeptTables:
        service: Any = SimpleNamespace(site="a", looks=self)
        clock: Any = self
        return KeptTables(service, clock)


async def test_a_site_that_is_well_is_shown_as_it_is_now() -> None:
    other = OtherSite()
    tables = other.tables()
    for said in (TablesHeld("b", False, False, []), TablesHeld("b", True, False, [])):
        other.said = said
        asked = tables.ask()
        await asked.wait()
        known = asked.known()
        assert (known.is_loading, known.is_known, known.error, known.age_s) == (said.is_loading, True, "", 0.0)


async def test_one_that_hangs_costs_a_page_its_patience_once(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float | None] = []
    wait = asyncio.wait

    async def noted(tasks: Any, *, timeout: float | None = None) -> Any:  # noqa: ASYNC109  # as asyncio's own
        waited.append(timeout)
        return await wait(tasks, timeout=0)

    monkeypatch.setattr(kept.asyncio, "wait", noted)
    other = OtherSite()
    tables = other.tables()
    tables.ask()
    await asyncio.sleep(0)
    await tables.ask().wait()
    other.free.clear()
    other.now_s += 60
    waited.clear()
    await tables.ask().wait()
    for _ in range(3):
        other.now_s += 1
        asked = tables.ask()
        await asked.wait()
        known = asked.known()
        assert known.is_known
        assert known.error == "site b was asked, and has not answered yet"
    assert known.age_s == 63
    assert waited == [pytest.approx(kept.PATIENCE_S)], "the question is under way for longer than a page has patience"
    assert other.asked == [None] * len(other.asked)
    assert len(other.asked) <= 3, "one question at a time"


async def test_what_it_said_last_stays_with_its_age_and_the_reason() -> None:
    other = OtherSite()
    tables = other.tables()
    await tables.ask().wait()
    other.now_s += 5
    other.said = PeerError("site b does not answer", sent=False)
    asked = tables.ask()
    await asked.wait()
    known = asked.known()
    assert (known.is_known, known.error, known.age_s) == (True, "site b does not answer", 5.0)
    other.free.clear()
    asked = tables.ask()
    await asyncio.sleep(0)
    assert asked.known().error == "site b does not answer", "until it answers"
    other.said = TablesHeld("b", False, False, [])
    other.free.set()
    await asked.wait()
    assert (asked.known().error, asked.known().age_s) == ("", 0.0)


async def test_an_answer_is_as_old_as_its_question() -> None:
    other = OtherSite()
    tables = other.tables()
    other.free.clear()
    asked = tables.ask()
    await asyncio.sleep(0)
    other.now_s += 2
    other.free.set()
    assert asked._asking is not None
    await asyncio.wait((asked._asking,))
    assert asked.known().age_s == 2


async def test_a_fault_of_the_program_is_said_and_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(table: int | None = None) -> TablesHeld:
        raise ValueError("no such thing")

    structlog.reset_defaults()
    other = OtherSite()
    monkeypatch.setattr(other, "other_tables", fail)
    asked = other.tables().ask()
    with capture_logs() as logged:
        await asked.wait()
    assert asked.known().error == "a fault of this gateway, which is in its log: no such thing"
    assert [entry["event"] for entry in logged] == ["the page cannot look"]


async def test_what_is_kept_is_bounded() -> None:
    other = OtherSite()
    tables = other.tables()
    for table in range(KEPT_MAX + 10):
        await tables.ask(table).wait()
    assert len(tables._kept) == KEPT_MAX
    assert min(table for table in tables._kept if table is not None) == 10
