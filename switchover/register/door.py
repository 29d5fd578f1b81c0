"""A door to the register: every call is passed to the one behind it. Doors that judge, or that choose a register, build on it.

What always holds: answers and errors come through as they are. Source: the Coordinator port (port.py).
"""

from __future__ import annotations

from collections.abc import Callable

from switchover.register.port import Beat, Coordinator, PairState


class RegisterDoor:
    """Coordinator, over another one."""

    def __init__(self, door: Coordinator) -> None:
        self._door = door

    async def read(self) -> PairState | None:
        return await self._door.read()

    async def compare_and_set(self, expected: PairState | None, new: PairState, *, blind: bool = False) -> PairState:
        return await self._door.compare_and_set(expected, new, blind=blind)

    async def renew(self, site: str, epoch: int, beat: Beat) -> PairState:
        return await self._door.renew(site, epoch, beat)

    async def held(self, value: PairState) -> bool:
        return await self._door.held(value)

    async def force(self, change: Callable[[PairState | None], PairState]) -> PairState:
        return await self._door.force(change)

    @property
    def known(self) -> PairState | None:
        return self._door.known

    @property
    def unseen(self) -> str | None:
        return self._door.unseen

    async def close(self) -> None:
        await self._door.close()
