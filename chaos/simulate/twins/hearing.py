"""A site's door to the pair's register, with a record of what it asked in vain and of what it decided blind.

What always holds: it hears and never touches: every answer and every error goes through as it came.
Source: switchover/register/port.py; the checkers `honest` and `answers` read what is recorded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from chaos.history.lines import Blind, Misled, Served, Unheard
from chaos.simulate.twins.process import Process
from switchover.register.door import RegisterDoor
from switchover.register.port import Beat, Coordinator, PairState
from twinlog.errors import Unavailable

_T = TypeVar("_T")
Note = Callable[[Unheard | Blind | Served | Misled], None]


class Hearing(RegisterDoor):
    """Coordinator, of one life of the process of `site`. `now_s`: of the run."""

    def __init__(self, door: Coordinator, site: str, process: Process, now_s: Callable[[], float], note: Note) -> None:
        super().__init__(door)
        self._site, self._process, self._now_s, self._note = site, process, now_s, note

    async def read(self) -> PairState | None:
        return await self._heard(self._door.read())

    async def compare_and_set(self, expected: PairState | None, new: PairState, *, blind: bool = False) -> PairState:
        from_s = self._now_s()
        try:
            return await self._heard(self._door.compare_and_set(expected, new, blind=blind))
        finally:
            if blind:
                self._note(Blind(self._site, from_s, self._now_s()))

    async def held(self, value: PairState) -> bool:
        return await self._heard(self._door.held(value))

    async def renew(self, site: str, epoch: int, beat: Beat) -> PairState:
        from_s = self._now_s()
        value = await self._heard(self._door.renew(site, epoch, beat))
        self._process.proved_s = max(self._process.proved_s, from_s)
        return value

    async def force(self, change: Callable[[PairState | None], PairState]) -> PairState:
        return await self._heard(self._door.force(change))

    async def _heard(self, asked: Awaitable[_T]) -> _T:
        from_s = self._now_s()
        try:
            return await asked
        except Unavailable:
            self._note(Unheard(self._site, from_s, self._now_s()))
            raise
