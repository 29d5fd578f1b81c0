"""Replay: many frames at once into an engine, in transactions of a bounded size.

What always holds: every frame is applied, whole and in order; a transaction takes at most `RECORDS_MAX` records and
`BYTES_MAX` bytes of frames, unless a single frame is larger: a group commit is never cut in two.
Source: storage/engine.py (`apply`), protocol.md 5 and 8 (replay at activation and at a rejoin).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from storage.log.frame import Frame

RECORDS_MAX = 1_000
BYTES_MAX = 4 << 20


class Applies(Protocol):
    """What takes the frames: the engine's barriers, or the engine itself."""

    async def apply(self, frames: Sequence[Frame]) -> None: ...


def transactions(
    frames: Iterable[Frame], records_max: int = RECORDS_MAX, bytes_max: int = BYTES_MAX
) -> Iterator[list[Frame]]:
    """The frames, in order, in groups for one `apply` each."""
    group: list[Frame] = []
    records = size = 0
    for frame in frames:
        if group and (records + frame.count > records_max or size + len(frame.data) > bytes_max):
            yield group
            group, records, size = [], 0, 0
        group.append(frame)
        records += frame.count
        size += len(frame.data)
    if group:
        yield group


async def replay(storage: Applies, frames: Iterable[Frame]) -> None:
    """Apply the frames, which follow what the engine holds. Raises what `apply` raises."""
    for group in transactions(frames):
        await storage.apply(group)
