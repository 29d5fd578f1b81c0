"""Keeps what the other site said last of its tables, for pages: they show it at once, and say how old it is.

What always holds: a page waits PATIENCE_S at most, counted from the moment at which the other site was asked, so that one which
is well is shown as it is now; one question of a kind is under way at a time, however many pages are loaded; an answer is as old
as its question, and stays, with the reason, when a later question gets none; KEPT_MAX answers are kept.
"""

from __future__ import annotations

import asyncio
import traceback

import structlog

from gateway.service.port import SiteService
from gateway.table_figures.documents import OtherTables, TablesHeld
from storage.clock import Clock
from switchover.monitor.findings import OTHER
from twinlog.errors import TwinlogError, words

PATIENCE_S = 0.2
KEPT_MAX = 200
_log = structlog.get_logger("twinlog.ui")


class KeptAnswer:
    """The answers to one question: what there is of one table, with its size, or of all (`table` None)."""

    def __init__(self, service: SiteService, clock: Clock, table: int | None) -> None:
        self._service, self._clock, self._table = service, clock, table
        self._held: TablesHeld | None = None
        self._held_s = self._asked_s = 0.0
        self._error = ""
        self._asking: asyncio.Task[None] | None = None

    def ask(self) -> None:
        """Begins to ask, unless that is under way."""
        if self._asking is None:
            self._asked_s = self._clock.monotonic_s()
            self._asking = asyncio.create_task(self._ask(), name="page: tables of the other site")

    async def wait(self) -> None:
        """Waits for the answer that is under way, as long as a page has patience."""
        left_s = self._asked_s + PATIENCE_S - self._clock.monotonic_s()
        if self._asking is not None and left_s > 0:
            await asyncio.wait((self._asking,), timeout=left_s)

    def known(self) -> OtherTables:
        """Returns what is known now."""
        other = OTHER[self._service.site]
        error = self._error or ("" if self._asking is None else f"site {other} was asked, and has not answered yet")
        return OtherTables(other, self._held, error, self._clock.monotonic_s() - self._held_s)

    async def _ask(self) -> None:
        try:
            self._held = await self._service.looks.other_tables(self._table)
            self._held_s, self._error = self._asked_s, ""
        except TwinlogError as error:
            self._error = error.message
        except Exception as error:
            _log.error("the page cannot look", traceback=traceback.format_exc())
            self._error = f"a fault of this gateway, which is in its log: {words(error)}"
        finally:
            self._asking = None


class KeptTables:
    """`clock` is the site's."""

    def __init__(self, service: SiteService, clock: Clock) -> None:
        self._service, self._clock = service, clock
        self._kept: dict[int | None, KeptAnswer] = {}  # the one that was asked for last is the last

    def ask(self, table: int | None = None) -> KeptAnswer:
        """Begins to ask for one table, or for all. Returns what is known of it."""
        kept = self._kept.pop(table, None) or KeptAnswer(self._service, self._clock, table)
        self._kept[table] = kept
        if len(self._kept) > KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        kept.ask()
        return kept
