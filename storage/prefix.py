"""Decides whether a site's storage is a prefix of the log, by the notes that base data and a rejoin leave in the engine.

What always holds: as long as some rows may be later than others, or must be replaced as a whole, `is_prefix` is False.
Source: protocol.md sections 7 (base data) and 8 (rejoin).
"""

from __future__ import annotations

from storage.engine import StorageEngine

BASE_WANTED = "base_wanted"  # a note: what the storage holds cannot be repaired, base data must replace it
FLOOR = "rejoin_floor"  # a note: below this sequence some rows are later than others, and the storage is no prefix
NO_FLOOR = 2**62 - 1  # as the floor: above every sequence; it is not known yet


def floor_of(engine: StorageEngine) -> int:
    """The sequence from which on the storage is a prefix again; 0: it always was."""
    return int(engine.meta(FLOOR) or b"0")


def needs_base(engine: StorageEngine) -> bool:
    """Returns True when the storage holds no prefix of the log: half of a base, or what a rejoin could not repair."""
    return engine.applied.loading or engine.meta(BASE_WANTED) is not None


def is_prefix(engine: StorageEngine) -> bool:
    """Returns True when the storage holds a prefix of the active's log, and no mixture of two moments."""
    return not needs_base(engine) and engine.applied.seq >= floor_of(engine)
