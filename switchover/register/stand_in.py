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
from switchover.register.door import RegisterDoor
from switchover.register.port import Coordinator

NOTE = "register/given_up.json"
_REMEDY = "it names the coordinator that an operator gave up: delete it, and the site asks the configured one again"


class GivenUp(msgspec.Struct, frozen=True):
    """Names the register that was given up, by a digest: an address may hold a password."""

    register: str


async def given_up(files: Files) -> str | None:
    """Returns the digest of the register that was given up here; None: none was. Raises DamagedLog."""
    folder, _, name = NOTE.rpartition("/")
    return unseal(await files.read(NOTE), GivenUp, NOTE, _REMEDY).register if name in await files.list(folder) else None


class StandInCoordinator(RegisterDoor):
    """Coordinator: `configured`, whose digest is `register`, or what `make` makes once `give_up` was called, in any life."""

    def __init__(
        self, configured: Coordinator, register: str, make: Callable[[], Coordinator], files: Files, before: str | None
    ) -> None:
        super().__init__(make() if before == register else configured)
        self._configured, self._register, self._make, self._files = configured, register, make, files

    @property
    def stands_in(self) -> bool:
        """True while this site keeps the register itself."""
        return self._door is not self._configured

    async def give_up(self) -> None:
        """From now on this site keeps the register itself, whatever the configured one says later."""
        if not self.stands_in:
            await self._files.write_new(NOTE, seal(GivenUp(self._register)))
            self._door = self._make()

    async def close(self) -> None:
        await self._configured.close()
        if self.stands_in:
            await self._door.close()
