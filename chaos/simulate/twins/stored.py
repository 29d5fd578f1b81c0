"""A file on the simulated disk: what the operating system holds of it, what of that is synced, and what a crash leaves.

What always holds: what is synced never changes but by `truncate_tail` or a flipped bit; what is not may be lost in any part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random


@dataclass(slots=True, eq=False)
class Stored:
    """A file as the operating system sees it: `data`, then zeros up to `size`. `unsynced`: (offset, length) of writes that
    are in memory only; before them there were zeros, for each place of a log is written once."""

    data: bytearray
    size: int
    synced_size: int
    is_log: bool = False
    is_open: bool = False
    unsynced: list[tuple[int, int]] = field(default_factory=list)

    def write(self, offset: int, data: bytes) -> None:
        held = self.data
        if len(held) < offset:
            held.extend(bytes(offset - len(held)))
        held[offset : offset + len(data)] = data
        self.size = max(self.size, offset + len(data))

    def synced(self) -> None:
        self.unsynced.clear()
        self.synced_size = self.size

    def keep(self, choose: Callable[[bytes], bytes]) -> None:
        """Keeps of each write that is not synced only the bytes that `choose` leaves."""
        writes, self.unsynced = self.unsynced, []
        kept = [(offset, choose(bytes(self.data[offset : offset + length]))) for offset, length in writes]
        for offset, length in writes:
            self.data[offset : offset + length] = bytes(length)
        self.size = self.synced_size
        del self.data[self.size :]
        for offset, data in kept:
            if data:
                self.write(offset, data)
        self.synced_size = self.size


def cut_short(stored: Stored, random: Random) -> None:
    """The write was cut short: only its first bytes came to the operating system."""
    left = random.randrange(sum(length for _, length in stored.unsynced) + 1)
    kept: list[tuple[int, int]] = []
    for offset, length in stored.unsynced:
        take = min(left, length)
        stored.data[offset + take : offset + length] = bytes(length - take)
        left -= take
        if take:
            kept.append((offset, take))
    stored.unsynced = kept


def share_of(random: Random, data: bytes) -> bytes:
    """Nothing, all, or the first bytes."""
    draw = random.random()
    if draw < 0.3:
        return b""
    return data if draw < 0.6 else data[: random.randrange(len(data) + 1)]


def flipped(random: Random, data: bytes) -> bytes:
    if not data or random.random() < 0.5:
        return data
    changed = bytearray(data)
    changed[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(changed)
