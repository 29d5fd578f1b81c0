"""The coordinator's twin in memory, for the simulator and for tests: one register object, one door to it per site.

What always holds: a change happens in one go, without a suspension in between; a door that is cut off answers Unavailable
and changes nothing, except where `lose_answer` asks for the other kind of failure: changed, but not heard of.
"""

from __future__ import annotations

from msgspec.structs import replace

from switchover.register.port import PairState, next_state_id, superseded
from switchover.register.single import OneRegister
from switchover.register.went_back import same_facts
from twinlog.errors import Unavailable


class MemoryRegister:
    """The shared value and every value that it had. `unreachable_for` holds the sites that are cut off."""

    def __init__(self) -> None:
        self.history: list[PairState] = []
        self.unreachable_for: set[str] = set()

    @property
    def value(self) -> PairState | None:
        return self.history[-1] if self.history else None


class MemoryCoordinator(OneRegister):
    """One site's door to the register."""

    def __init__(self, register: MemoryRegister, site: str) -> None:
        self._register, self._site = register, site
        self.lose_answer = False  # the next change takes place, and its caller hears Unavailable

    async def read(self) -> PairState | None:
        self._check_reachable()
        return self._register.value

    async def compare_and_set(self, expected: PairState | None, new: PairState, *, blind: bool = False) -> PairState:
        self._check_reachable()
        current = self._register.value
        if expected != current:
            raise superseded(expected, current)
        value = replace(new, state_id=next_state_id(expected))
        self._register.history.append(value)
        if self.lose_answer:
            self.lose_answer = False
            raise Unavailable("the coordinator did not answer in time", waiting_for="coordinator")
        return value

    async def held(self, value: PairState) -> bool:
        self._check_reachable()
        at = next((each for each in reversed(self._register.history) if each.state_id <= value.state_id), None)
        return at is not None and same_facts(at, value)

    async def close(self) -> None:
        """Nothing is held."""

    def _check_reachable(self) -> None:
        if self._site in self._register.unreachable_for:
            raise Unavailable(f"the coordinator does not answer {self._site}", waiting_for="coordinator")
