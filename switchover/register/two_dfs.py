"""The register of a pair without a coordinator: the same value, kept on the two sites' DFSs (register_folder.py, homes.py).

What always holds:
- a change is decided by one exclusive file on the DFS that the value before it names as home, and copied to the other one, so
  that each DFS shows where the value is;
- a value found on a DFS counts only if it names that DFS as its home, or once it is found at its home; when the home does not
  answer, also that of a higher value met before, nothing is read or changed, except by an operator's command (`force`), which
  makes the own DFS the home;
- two lines of decisions that such a command made are brought together by whoever sees both: the lower one ends.
Source: protocol.md section 5, docs/decisions/2026-11-21-a-register-on-two-dfs.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from msgspec.structs import replace

from remote_log.dfs.port import Dfs
from remote_log.dfs.retrying import within
from remote_log.layout import RemoteLayout
from storage.clock import Clock
from switchover.register.dfs_folder import RegisterFolder, Tip
from switchover.register.homes import forks, next_home, rank, reconciled
from switchover.register.port import ATTEMPTS_MAX, Beat, PairState, next_state_id, superseded, update
from switchover.register.transitions import renew_lease
from twinlog.errors import DfsError, PlanSuperseded, Refused, Unavailable

HUNG_FOR_S = 10.0
HURRY = 0.1  # share of the deadline
_T = TypeVar("_T")
Tips = dict[str, Tip]  # by site; a DFS that does not answer is not in it


class DfsCoordinator:
    """The door of `site`. A DFS that has not answered by `deadline_s` counts as out of reach. `known`: the highest value that
    earlier processes of this site have met."""

    def __init__(
        self, *, site: str, peer: str, own_dfs: Dfs, peer_dfs: Dfs, layout: RemoteLayout, initial_active: str, clock: Clock,
        deadline_s: float = 2.0, known: PairState | None = None,
    ) -> None:
        self._site, self._peer, self._deadline_s = site, peer, deadline_s
        self._folders = {
            site: RegisterFolder(own_dfs, layout, site, clock), peer: RegisterFolder(peer_dfs, layout, site, clock),
        }
        self._first_home = peer if initial_active == site else site
        self._known = known  # the highest value met
        self._unseen: str | None = None
        self._clock = clock
        self._hung_s: dict[str, float] = {}  # site -> when its DFS was last waited for in vain

    # ---- the port
    async def read(self) -> PairState | None:
        return (await self._ruling())[0]

    async def compare_and_set(self, expected: PairState | None, new: PairState, *, blind: bool = False) -> PairState:
        current, tips = await self._ruling(in_full=blind)
        if blind and len(tips) == len(self._folders):
            raise PlanSuperseded(f"site {self._peer}'s DFS answers again: look again, and decide anew")
        if current != expected or _is_of_another_line(new, current):
            raise superseded(expected, current)
        home = self._home_of(current)
        value = replace(
            new, state_id=next_state_id(expected), home_forced=current.home_forced if current else 0,
            home=next_home(current, new, self._first_home, (self._site, self._peer)),
        )
        try:
            added = await within(self._deadline_s, self._folders[home].add(tips[home], value))
        except DfsError as error:
            raise Unavailable(
                f"the change was not confirmed by site {home}'s DFS, and may have happened: {error.message}",
                waiting_for=f"site {home}'s DFS",
            ) from error
        if added is None:
            raise superseded(expected, await self.read())
        self._met(value)
        await self._copy(value, {site: tip for site, tip in tips.items() if site != home})
        return value

    async def held(self, value: PairState) -> bool:
        """Lines that are brought together do not hold each other's values: their rank alone decides."""
        return True

    async def renew(self, site: str, epoch: int, beat: Beat) -> PairState:
        """A look, no change: a plan begins where the asynchronous active looks. When the home does not answer, the highest
        known value must do: nobody takes over from an asynchronous active without force."""
        try:
            value = await self.read()
        except Unavailable:
            value = self._known
            if value is None or value.mode != "async":
                raise
        renew_lease(value, site, epoch, beat)
        if value is not None and value.mode != "async":
            raise Refused(f"the register says that epoch {epoch} is synchronous: degrade again, or resync")
        assert value is not None
        return value

    async def force(self, change: Callable[[PairState | None], PairState]) -> PairState:
        try:
            return await update(self, change)
        except Unavailable:
            tips = await self._look()
            known = self._known
            if known is None or self._home_of(known) in tips or self._site not in tips:
                raise  # there is nothing to continue from, or no need to, or nowhere to write it
        # the home first: the change may depend on where it is decided
        new = change(replace(known, home=self._site, home_forced=known.home_forced + 1))
        value = replace(
            new, state_id=known.state_id + 1,
            reason=f"{new.reason}; forced by command: what is on site {self._peer}'s DFS was not known",
        )
        if await self._folders[self._site].add(tips[self._site], value) is None:
            raise PlanSuperseded(f"the register on site {self._site}'s DFS has changed meanwhile: look, and decide anew")
        self._met(value)
        return value

    @property
    def known(self) -> PairState | None:
        return self._known

    @property
    def unseen(self) -> str | None:
        return self._unseen

    async def close(self) -> None:
        """Nothing is held: the DFSs are the site's."""

    # ---- looking
    async def _ruling(self, *, in_full: bool = False) -> tuple[PairState | None, Tips]:
        """The value, once its home holds it and every DFS that answers has it, and what was seen."""
        for _ in range(ATTEMPTS_MAX):
            tips = await self._look(in_full=in_full)
            value = max((tip.value for tip in tips.values()), key=rank, default=None)
            home = self._home_of(value)
            for needed in (home, self._home_of(max(value, self._known, key=rank))):  # what is away now may have ruled before
                if needed not in tips:
                    raise Unavailable(self._out_of_reach(needed), waiting_for=f"site {needed}'s DFS")
            if value is None:
                return None, tips
            whole = reconciled(value, forks(value, {site: tip.value for site, tip in tips.items()}))
            if whole is not value:
                await self._mend(home, tips[home], replace(whole, state_id=value.state_id + 1))
            elif rank(tips[home].value) < rank(value):
                await self._mend(home, tips[home], value)
            else:
                self._met(value)
                await self._copy(value, tips)
                return value, tips
        raise Unavailable(f"the register changed {ATTEMPTS_MAX} times under one look: see who else is at work")

    def _out_of_reach(self, home: str) -> str:
        said = f"the register is on site {home}'s DFS, which does not answer"
        if home != self._site and self._known is not None and self._known.active == self._site:
            said += "; if it is lost, `twinlog degrade` opens this site alone"
        return said

    async def _look(self, *, in_full: bool = False) -> Tips:
        """The newest entry of each DFS that answers."""
        sites = list(self._folders)
        found = await asyncio.gather(*(self._tip(site, in_full=in_full) for site in sites))
        tips = {site: tip for site, tip in zip(sites, found, strict=True) if tip is not None}
        self._unseen = next((site for site in sites if site not in tips), None)
        for tip in tips.values():
            self._met(tip.value)
        return tips

    async def _tip(self, site: str, *, in_full: bool) -> Tip | None:
        """A DFS that hung a moment ago is not waited for as long again, unless `in_full`: a role change looks many times."""
        now_s = self._clock.monotonic_s()
        hung_lately = not in_full and now_s - self._hung_s.get(site, -HUNG_FOR_S) < HUNG_FOR_S
        try:
            tip = await within(self._deadline_s * HURRY if hung_lately else self._deadline_s, self._folders[site].tip())
        except DfsError as error:
            if isinstance(error.__cause__, TimeoutError) and not hung_lately:
                self._hung_s[site] = now_s
            return None
        self._hung_s.pop(site, None)
        return tip

    def _home_of(self, value: PairState | None) -> str:
        return self._first_home if value is None or value.home is None else value.home

    def _met(self, value: PairState | None) -> None:
        if rank(value) > rank(self._known):
            self._known = value

    # ---- writing
    async def _mend(self, site: str, tip: Tip, value: PairState) -> None:
        """Makes at the home what it lacks, as far as nobody else was faster: it is looked at again."""
        try:
            await within(self._deadline_s, self._folders[site].add(tip, value))
        except DfsError as error:
            raise Unavailable(
                f"the register is on site {site}'s DFS, which takes no files: {error.message}", waiting_for=f"site {site}'s DFS"
            ) from error

    async def _copy(self, value: PairState, tips: Tips) -> None:
        """To every DFS that lacks it; one that does not take it gets it from the next look."""
        for site, tip in tips.items():
            if rank(tip.value) < rank(value):
                with suppress(DfsError):
                    await within(self._deadline_s, self._folders[site].add(tip, value))


def _is_of_another_line(new: PairState, current: PairState | None) -> bool:
    """`new` was made of a value that another DFS ruled with: state ids of two lines may be alike."""
    if current is None or new.home is None:
        return False
    return (new.home, new.home_forced) != (current.home, current.home_forced)
