"""Schema changes that a database refuses, and that its engine applies without the database showing them: by command only.

The log means what it says, at both sites: the table has its new schema, its rows are kept, and no column's id is used twice.
What stays as it was is the table that a person sees in this site's database. A later change of the table that the database
takes shows it whole again.
What always holds: a change is named by its table and the epoch and sequence up to which changes of that table are not shown, so
however frames come grouped, each replay shows the same, and a change that a later epoch has at a sequence that it took back is
another one; the note outlives a base, whose schemas are those of the log.
Source: docs/decisions/2026-11-22-a-change-that-a-database-refuses.md.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from storage.engine import RefusedChange, StorageEngine
from storage.log.frame import Frame
from storage.log.record import RecordKind
from twinlog.decoding import decoded
from twinlog.errors import EngineFailed

UNSHOWN: Final = "unshown_changes"  # the engine's note
Changes = Mapping[int, tuple[int, int]]  # table id: epoch and sequence of its last schema change
NO_CHANGES: Final[Changes] = MappingProxyType({})
_NOTHING: Final = (0, 0)
_DDL: Final = int(RecordKind.DDL)
_decode = msgspec.msgpack.Decoder(dict[int, tuple[int, int]]).decode


def schema_changes(frames: Iterable[Frame]) -> Changes:
    """The schema changes in `frames`. HOT."""
    return {
        record.table: (frame.epoch, frame.first_seq + index)
        for frame in frames for index, record in enumerate(frame.records) if record.kind == _DDL
    }


def unshown_upto(engine_note: bytes | None) -> dict[int, tuple[int, int]]:
    """Table id -> epoch and sequence up to which its changes are not shown. Raises EngineFailed for a note that is damaged."""
    if engine_note is None:
        return {}
    return decoded(_decode, engine_note, lambda what: EngineFailed(f"the note {UNSHOWN} is damaged: {what}"))


def unshown_tables(engine_note: bytes | None, changes: Changes) -> Collection[int]:
    """The tables of `changes` whose change is not shown."""
    upto = unshown_upto(engine_note)
    return {table for table, at in changes.items() if at <= upto.get(table, _NOTHING)}


def refusal_of(site: str, problem: str, at: tuple[int, int] | None) -> EngineFailed:
    """The failure of an engine whose database refuses a change; `at`: epoch and sequence, None in base data."""
    said, way = f"the database refuses a change of {problem}", "bring the database to take it"
    if at is None:
        return EngineFailed(f"{said}; {way}")
    epoch, seq = at
    skip = f"twinlog log skip {site} --epoch {epoch} --seq {seq}"
    return EngineFailed(f"{said}; it is the schema change at sequence {seq} of epoch {epoch}: {way}, or `{skip}`")


def standing_at(engine: StorageEngine) -> RefusedChange | None:
    """The schema change that keeps `engine` from going on; None as soon as it is to be left unshown."""
    change = engine.refused
    if change is None or (change.epoch, change.seq) <= unshown_upto(engine.meta(UNSHOWN)).get(change.table, _NOTHING):
        return None
    return change


async def leave_unshown(engine: StorageEngine, change: RefusedChange) -> None:
    """From here on, also after a restart, `engine` applies changes of the table up to this one without showing them."""
    upto = unshown_upto(engine.meta(UNSHOWN))
    upto[change.table] = max((change.epoch, change.seq), upto.get(change.table, _NOTHING))
    await engine.set_meta(UNSHOWN, msgspec.msgpack.encode(upto))
