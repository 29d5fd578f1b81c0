"""Per-key order between blind and conditional writes.

A conditional write is evaluated against applied state, so it must see every earlier write to its keys applied, and no
other write to them may be logged until it is applied itself. Blind writes to a key that nobody holds pass at once.

What always holds: while a key is held, exactly one conditional owns it and no blind write to it is in flight; a hold ends
only when the write's fate is settled in the log, never when its client gives up. Source: protocol.md section 4.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

RowKey = tuple[int, bytes]  # table id, encoded key; a plain tuple: one is made for every row of a batch


class KeyGate:
    """Counts blind writes in flight per key, and holds keys for conditionals."""

    def __init__(self) -> None:
        self._blind: dict[RowKey, int] = {}
        self._held: dict[RowKey, asyncio.Future[None]] = {}  # resolves when the hold ends
        self._idle: dict[RowKey, asyncio.Future[None]] = {}  # resolves when no blind write is in flight

    @property
    def is_empty(self) -> bool:
        """True when no write is under way, and nothing waits for one."""
        return not (self._blind or self._held or self._idle)

    def try_enter(self, keys: Iterable[RowKey]) -> bool:
        """Count one blind write for each key, or change nothing and say False when one of them is held."""
        held = self._held
        if held:
            keys = list(keys)
            if any(key in held for key in keys):
                return False
        blind = self._blind
        count = blind.get
        for key in keys:
            blind[key] = count(key, 0) + 1
        return True

    async def enter(self, keys: list[RowKey]) -> None:
        """As `try_enter`, waiting for holds to end. The caller bounds the wait by its deadline."""
        while not self.try_enter(keys):
            waiting = [self._held[key] for key in keys if key in self._held]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)

    def leave(self, keys: Iterable[RowKey]) -> None:
        """The blind write's fate is settled."""
        blind = self._blind
        for key in keys:
            left = blind.pop(key) - 1
            if left:
                blind[key] = left
            elif self._idle:
                idle = self._idle.pop(key, None)
                if idle is not None and not idle.done():
                    idle.set_result(None)

    async def hold(self, keys: Iterable[RowKey]) -> list[RowKey]:
        """Own all keys, in one global order so that two conditionals never wait for each other; the keys owned."""
        ordered = sorted(set(keys))
        owned: list[RowKey] = []
        try:
            for key in ordered:
                while key in self._held:
                    await asyncio.wait([self._held[key]])
                self._held[key] = asyncio.get_running_loop().create_future()
                owned.append(key)
                while key in self._blind:
                    idle = self._idle.setdefault(key, asyncio.get_running_loop().create_future())
                    await asyncio.wait([idle])
        except BaseException:
            self.release(owned)
            raise
        return ordered

    def release(self, keys: Iterable[RowKey]) -> None:
        for key in keys:
            self._held.pop(key).set_result(None)
