"""Quarantined rows go back to the active: each as a conditional write, which the active makes only over an older row.

What always holds: all changes of one row, whatever files they are in, are merged together, in their order, or not at all; a
file with rows that the active does not have stays, and its manifest names them, unless these rows are to be put as well.
Source: protocol.md section 8 (rejoin).
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any, Literal

from remote_log.replication.messages import MergeReply, MergeRequest
from storage.disk.port import Files
from storage.log.frame import Frame, parse_frame
from storage.log.record import RecordKind
from switchover.quarantine import QUARANTINE
from twinlog.decoding import OBJECT, decoded
from twinlog.errors import DamagedLog, Refused

MERGE_CHUNK = 500
Merge = Callable[[MergeRequest], Awaitable[MergeReply]]
MergeOp = Literal["upsert", "update", "delete"]
MergeRow = tuple[int, MergeOp, bytes, bytes, int]  # table, operation, key, value, version
OPERATIONS: dict[RecordKind, MergeOp] = {RecordKind.UPSERT: "upsert", RecordKind.UPDATE: "update", RecordKind.DELETE: "delete"}


async def merge_quarantine(files: Files, merge: Merge, *, put_absent: bool) -> dict[str, Any]:
    """Sends every quarantined row to the active by `merge`, and renames a file that is merged. Returns the counts, for the
    operator.

    Raises Refused for a change of a table, once all else is merged; PeerError when the active does not answer.
    """
    merged = skipped = 0
    names = [name for name in await files.list(QUARANTINE) if name.endswith(".frames")]
    rows, refused = await _read(files, names)
    absent: set[tuple[int, bytes]] = set()
    for part in _parts(sorted({row for several in rows.values() for row in several}, key=lambda row: row[4])):
        reply = await merge(MergeRequest(part, put_absent))
        merged += reply.merged
        skipped += reply.skipped
        absent |= {(table, key) for table, key in reply.absent}
    for name, several in rows.items():
        path = f"{QUARANTINE}/{name}"
        waiting = [place for place in dict.fromkeys((row[0], row[2]) for row in several) if place in absent]
        await _note_absent(files, path.removesuffix(".frames") + ".json", waiting)
        if not waiting:
            await files.rename(path, f"{path}.merged")
    if refused is not None:
        raise refused
    return {"files": names, "merged_changes": merged, "skipped_changes": skipped, "rows_absent_at_the_active": len(absent)}


async def _read(files: Files, names: list[str]) -> tuple[dict[str, list[MergeRow]], Refused | None]:
    """The rows of each file that can be merged, and why another one cannot."""
    rows: dict[str, list[MergeRow]] = {}
    refused: Refused | None = None
    for name in names:
        try:
            rows[name] = _rows(_frames(await files.read(f"{QUARANTINE}/{name}")))
        except Refused as error:
            refused = error
    return rows, refused


async def _note_absent(files: Files, manifest: str, absent: list[tuple[int, bytes]]) -> None:
    """Writes into the manifest which rows wait for the operator's word."""
    document = decoded(OBJECT, await files.read(manifest), lambda what: DamagedLog(
        f"{manifest} cannot be read: {what}; the rows are in the .frames file beside it", file=manifest, offset=0
    ))
    names = {
        (entry.get("table"), entry.get("key")): {"name": entry.get("name"), "row": entry.get("row")}
        for entry in document.get("keys", ()) if isinstance(entry, dict)
    }
    document["absent_at_the_active"] = [
        {**names.get((table, key.hex()), {}), "table": table, "key": key.hex()} for table, key in absent
    ]
    await files.write_new(manifest, json.dumps(document, indent=2).encode())


def _frames(data: bytes) -> list[Frame]:
    frames: list[Frame] = []
    offset = 0
    while offset < len(data):
        frame = parse_frame(data, offset)
        frames.append(frame)
        offset += len(frame.data)
    return frames


def _rows(frames: list[Frame]) -> list[MergeRow]:
    """(table, operation, key, value, version) of every row change. Raises Refused on a record that cannot be merged."""
    rows = []
    for frame in frames:
        for index, record in enumerate(frame.records):
            kind = RecordKind(record.kind)
            if kind is RecordKind.DDL:
                raise Refused(
                    f"the quarantine changes table {record.table}: merge its rows by hand (sequence {frame.first_seq})"
                )
            if kind in OPERATIONS:
                rows.append((record.table, OPERATIONS[kind], record.key, record.value, frame.timestamp + index))
    return rows


def _parts(rows: list[MergeRow]) -> list[list[MergeRow]]:
    """All changes of one row stand in one part, in their order: they are merged together or not at all."""
    by_key: dict[tuple[int, bytes], list[MergeRow]] = {}
    for row in rows:
        by_key.setdefault((row[0], row[2]), []).append(row)
    parts: list[list[MergeRow]] = []
    for changes in by_key.values():
        if not parts or len(parts[-1]) >= MERGE_CHUNK:
            parts.append([])
        parts[-1] += changes
    return parts
