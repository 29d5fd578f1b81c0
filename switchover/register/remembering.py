"""A site's door to the register, with a durable memory of what came through it: nobody acts on a value that went back.

What always holds:
- a value is durable here before anybody at this site has it; renewals of a lease, which change nothing else, are left out;
- a value that does not lead on from the one remembered as it was asked for is given to nobody, nor is one that never gave
  away an epoch that this site has met elsewhere (`know`): RegisterWentBack, whoever has an epoch open ends it;
- past that comes only a change by command that begins the pair anew (went_back.py).
Source: protocol.md section 5 ("A register that went back"), docs/decisions/2026-11-22-a-register-that-went-back.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from storage.disk.port import Files
from storage.disk.sealed_json import seal, unseal
from switchover.register.door import RegisterDoor
from switchover.register.homes import rank
from switchover.register.port import Beat, Coordinator, PairState
from switchover.register.went_back import (
    advice,
    begun_anew_since,
    is_foreign,
    leads_on,
    never_given,
    of_another_pair,
    older,
    on_another_line,
    same_facts,
)
from twinlog.errors import RegisterWentBack, TwinlogError, Unavailable

PATH = "register/met.json"
_REMEDY = (
    "it says which value of the register this site has met: see that the register is the newest one that there is, delete this "
    "file, and start the gateway again"
)


async def last_met(files: Files, path: str = PATH) -> PairState | None:
    """The value that the last process at this site has met last. Raises DamagedLog when the file cannot be understood."""
    folder, _, name = path.rpartition("/")
    return unseal(await files.read(path), PairState, path, _REMEDY) if name in await files.list(folder) else None


class RememberingCoordinator(RegisterDoor):
    """Coordinator of `site`, over another one. `met`: what `last_met` returned."""

    def __init__(self, door: Coordinator, site: str, files: Files, met: PairState | None, path: str = PATH) -> None:
        super().__init__(door)
        self._site, self._files, self._path = site, files, path
        self._met = met
        self._known_epoch = 0
        self._doubt: tuple[str, int] | None = None
        self.finding: str | None = None  # how the register went back, as the last look at it showed
        self._is_foreign = False  # the last look showed the register of another pair
        self._keeping = asyncio.Lock()

    @property
    def met_epoch(self) -> int:
        """The highest epoch that this site knows to be given away, whatever the register says."""
        return max(self._known_epoch, self._met.epoch_allocated if self._met is not None else 0)

    def know(self, epoch: int) -> None:
        """`epoch` was met in a claim, a log or a storage. Of a register in one place, which gives each one away before."""
        self._known_epoch = max(self._known_epoch, epoch)

    def doubt(self, seen: str, epoch: int) -> None:
        """The other site has met what the register does not lead on from, `epoch` at most, and an operator accepts the risk."""
        self._doubt = seen, epoch

    @property
    def met_pair(self) -> str:
        """The identity of the pair, by the last value that was met; "": none was."""
        return self._met.pair if self._met is not None else ""

    @property
    def met_active(self) -> str | None:
        """The active of the last value that was met."""
        return self._met.active if self._met is not None else None

    @property
    def met_home(self) -> str | None:
        """The site on whose DFS the register is, by the last value that was met; None: a coordinator has it."""
        return self._met.home if self._met is not None else None

    # ---- the port
    async def read(self) -> PairState | None:
        met, known_epoch = self._met, self._known_epoch
        return await self._judged(await self._door.read(), met, known_epoch)

    async def compare_and_set(self, expected: PairState | None, new: PairState, *, blind: bool = False) -> PairState:
        value = await self._door.compare_and_set(expected, new, blind=blind)
        await self._keep(value)
        return value

    async def renew(self, site: str, epoch: int, beat: Beat) -> PairState:
        met, known_epoch = self._met, self._known_epoch
        value = await self._door.renew(site, epoch, beat)
        await self._judged(value, met, known_epoch)
        return value

    async def force(self, change: Callable[[PairState | None], PairState]) -> PairState:
        """A register that went back counts as lost: `change` gets None. One of another pair stays: RegisterWentBack."""
        stale: RegisterWentBack | None = None
        try:
            await self.read()
        except RegisterWentBack as error:
            if self._is_foreign:  # no loss that is accepted here gives it to this pair
                raise
            stale = error
        except Unavailable:
            pass  # what may be done then is the door's to say

        def judged(state: PairState | None) -> PairState:
            if stale is None:
                return change(state)
            try:
                new = change(None)
            except TwinlogError:
                raise stale from None
            if self._met is not None and not begun_anew_since(new, self._met):
                raise stale
            return new

        value = await self._door.force(judged)
        await self._keep(value)
        return value

    # ---- the memory
    async def _judged(self, value: PairState | None, met: PairState | None, known_epoch: int) -> PairState | None:
        """The value, remembered. `met` and `known_epoch`: as of when it was asked for, for it may have changed since."""
        if value is None:
            self.finding, self._is_foreign = None, False  # lost, which others judge (lost_value.py)
            return None
        seen = None
        foreign = self._is_foreign = met is not None and is_foreign(value, met)
        if met is not None and foreign:
            seen = of_another_pair(value, met)
        elif met is not None and not leads_on(value, met):
            seen = older(value, met)
        elif value.home is None and value.epoch_allocated < known_epoch:
            seen = never_given(value, known_epoch)
        elif met is not None and not same_facts(value, met) and not begun_anew_since(value, met):
            seen = None if await self._door.held(met) else on_another_line(value, met)
        if seen is None and self._doubt is not None and value.anew_epoch <= self._doubt[1]:
            seen = self._doubt[0]
        said = "the register is not the one of this pair" if foreign else "the register went back"
        self.finding = None if seen is None else f"{said}: {seen}"
        if seen is not None:
            if not foreign:
                self.know(value.epoch_allocated)
            told = advice(self._site, self.met_active, foreign=foreign)
            raise RegisterWentBack(f"{self.finding}; {told}", epoch=value.epoch)
        await self._keep(value)
        return value

    async def _keep(self, value: PairState) -> None:
        async with self._keeping:
            met = self._met
            if met is not None and (same_facts(value, met) or (rank(value) < rank(met) and not begun_anew_since(value, met))):
                return
            await self._files.write_new(self._path, seal(value))
            self._met = value
