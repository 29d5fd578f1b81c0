"""The door to the configured register, or, once an operator gave that up, to one that this site keeps for itself alone.

What always holds: the note that the configured register is given up is durable before the stand-in is asked; it names that
register, so that another one in the site's configuration ends the stand-in; a stand-in begins empty, as a lost register does:
only a forced failover gets past it. Source: docs/decisions/2026-11-22-coordinator-and-active-lost-together.md.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from storage.disk.port import Files
from storage.disk.sealed_json import seal, unseal
from switchover.register.port import Beat, Coordinator, PairState

NOTE = "register/given_up.json"
_REMEDY = "it names the coordinator that an operator gave up: delete it, and the site asks the configured one again"


class GivenUp(msgspec.Struct, frozen=True):
    """Names the register that was given up, by a digest: an address may hold a password."""

    register: str


async def given_up(files: Files) -> str | None:
    """Returns the digest of the register that was given up here; None: none was. Raises DamagedLog."""
    folder, _, name = NOTE.rpartition("/")
    return unseal(await files.read(NOTE), GivenUp, NOTE, _REMEDY).register if name in await files.list(folder) else None


class StandInCoordinator:
    """Coordinator: `configured`, whose digest is `register`, or what `make` makes once `give_up` was called, in any life."""

    def __init__(
        self, configured: Coordinator, register: str, make: Callable[[], Coordinator], files: Files, before: str | None
    ) -> None:
        self._configured, self._register, self._make, self._files = configured, register, make, files
        self._stand_in = make() if before == register else None

    @property
    def stands_in(self) -> bool:
        """True while this site keeps the register itself."""
        return self._stand_in is not None

    @property
    def _door(self) -> Coordinator:
        return self._stand_in or self._configured

    async def give_up(self) -> None:
        """From now on this site keeps the register itself, whatever the configured one says later."""
        if self._stand_in is None:
            await self._files.write_new(NOTE, seal(GivenUp(self._register)))
            self._stand_in = self._make()

    # ---- the port
    async def read(self) -> PairState | None:
        return await self._door.read()

    async def compare_and_set(self, expected_state_id: int, new: PairState, *, blind: bool = False) -> PairState:
        return await self._door.compare_and_set(expected_state_id, new, blind=blind)

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
        await self._configured.close()
        if self._stand_in is not None:
            await self._stand_in.close()
