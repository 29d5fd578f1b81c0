"""Doors over the simulated network to the pair's register at the witness.

What always holds: the register changes in one go, at the moment at which a request arrives; a caller that hears nothing in
time, or of a broken connection, does not know whether it did. Source: switchover/register/port.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf

from msgspec.structs import replace

from chaos.simulate.twins.network import CallInFlight, Network
from chaos.simulate.twins.watch import Decided
from switchover.register.port import PairState, next_state_id, superseded
from switchover.register.single import OneRegister
from switchover.register.went_back import leads_on, same_facts
from twinlog.errors import Unavailable

PLACE = "w"


class SimRegister:
    """The witness's value, every one that it had, and the Watch over them. `down`: it answers nothing, nothing happens."""

    def __init__(self) -> None:
        self.history: list[PairState] = []
        self.down = False
        self.agrees = True
        self.is_apart, self.met_s = False, -inf
        self._before_loss: PairState | None = None
        self._before_return: PairState | None = None
        self.decided: Decided = lambda before, value, author: None
        self.forced: Callable[[str], None] = lambda site: None  # there is no second place where something could be decided
        self.met: Callable[[], None] = lambda: None
        self.forgotten: Callable[[], None] = lambda: None

    @property
    def value(self) -> PairState | None:
        return self.history[-1] if self.history else None

    def says_sync(self, epoch: int, active: str) -> bool:
        value, forgotten = self.value, self._before_return
        if self._went_back():
            return False  # what it forgot may say otherwise
        if forgotten is not None and (forgotten.epoch, forgotten.active, forgotten.mode) == (epoch, active, "async"):
            return False  # changes since then do not bring back that the active of this epoch downgraded
        return value is not None and (value.epoch, value.active, value.mode) == (epoch, active, "sync")

    @property
    def remembered(self) -> PairState | None:
        value = self.value
        if self._went_back():
            return self._before_return
        return value if value is not None and value.active is not None else self._before_loss or self._before_return

    def _went_back(self) -> bool:
        """Nobody has begun anew since, nor come further than what was forgotten."""
        value, before = self.value, self._before_return
        return value is not None and before is not None and not leads_on(value, before)

    def lost(self, place: str) -> None:
        if place == PLACE and self.history:
            self._before_loss = self.remembered
            self.history.clear()
            self.forgotten()

    def go_back(self, changes: int) -> int:
        """To where it was so many changes ago, as from a backup, but not to before the pair was open. Returns how many."""
        marks = [0, *(n for n in range(1, len(self.history)) if not same_facts(self.history[n - 1], self.history[n]))]
        opened = [n for n in marks if self.history and self.history[n].active is not None]
        at = opened[max(0, len(opened) - 1 - changes)] if opened else len(self.history)
        gone = len([n for n in marks if n > at])
        if gone:
            self._before_return = self.remembered
            del self.history[at + 1 :]
        return gone

    def serve_read(self, call: CallInFlight) -> None:
        if not self.down:
            call.answer(self.value)

    def serve_held(self, value: PairState, call: CallInFlight) -> None:
        if not self.down:
            at = next((each for each in reversed(self.history) if each.state_id <= value.state_id), None)
            call.answer(at is not None and same_facts(at, value))

    def serve_change(self, expected: PairState | None, new: PairState, call: CallInFlight) -> None:
        if self.down:
            return
        current = self.value
        if expected != current:
            call.fail(superseded(expected, current))
            return
        value = replace(new, state_id=next_state_id(expected))
        self.history.append(value)
        self.decided(current, value, call.src)
        call.answer(value)


class SimCoordinator(OneRegister):
    """Coordinator, for one life of a process at `src`. Requests are lost on the link to "w", answers on the link from it."""

    def __init__(self, register: SimRegister, src: str, network: Network, timeout_s: float = 3.0) -> None:
        self._register, self._src, self._network, self._timeout_s = register, src, network, timeout_s

    async def read(self) -> PairState | None:
        state: PairState | None = await self._network.call(
            self._src, PLACE, self._register.serve_read, self._timeout_s, _failed
        )
        return state

    async def compare_and_set(self, expected: PairState | None, new: PairState, *, blind: bool = False) -> PairState:
        state: PairState = await self._network.call(
            self._src, PLACE, partial(self._register.serve_change, expected, new), self._timeout_s, _failed
        )
        return state

    async def held(self, value: PairState) -> bool:
        found: bool = await self._network.call(
            self._src, PLACE, partial(self._register.serve_held, value), self._timeout_s, _failed
        )
        return found

    async def close(self) -> None:
        """Nothing is held."""


def _failed(why: str, sent: bool) -> Unavailable:
    return Unavailable(f"the coordinator does not answer: {why}", waiting_for="coordinator", sent=sent)
