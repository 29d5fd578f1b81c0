"""The common part of coordinators that keep their value in one place: such a one answers and knows all, or does not answer.

What always holds: nothing can be forced past it, and there is nothing that it does not see. Source: protocol.md section 5.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from switchover.register.port import Beat, PairState, update
from switchover.register.transitions import renew_lease


class OneRegister(ABC):
    """The rest of the Coordinator port, made of its compare-and-set."""

    @abstractmethod
    async def read(self) -> PairState | None: ...

    @abstractmethod
    async def compare_and_set(self, expected: PairState | None, new: PairState, *, blind: bool = False) -> PairState: ...

    @abstractmethod
    async def close(self) -> None: ...

    @property
    def known(self) -> PairState | None:
        return None

    @property
    def unseen(self) -> str | None:
        return None

    @abstractmethod
    async def held(self, value: PairState) -> bool: ...

    async def renew(self, site: str, epoch: int, beat: Beat) -> PairState:
        """A new value each time: it also orders this renewal before whatever comes next."""
        state = await self.read()
        return await self.compare_and_set(state, renew_lease(state, site, epoch, beat))

    async def force(self, change: Callable[[PairState | None], PairState]) -> PairState:
        return await update(self, change)
