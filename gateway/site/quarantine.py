"""Quarantined rows go back to the active: each as a conditional write, which the active makes only over an older row.

What always holds: all changes of one row are merged together or not at all; a file with rows that the active does not have
stays, and its manifest names them, unless these rows are to be put as well. Source: protocol.md section 8 (rejoin).
"""

from __future__ import annotations

import json
from typing import Any, Literal

from remote_log.replication.messages import MergeRequest
from storage.disk.port import Files
from storage.log.frame import Frame, parse_frame
from storage.log.record import RecordKind
from switchover.other_site import OtherSite
from switchover.rejoin import QUARANTINE
from twinlog.decoding import OBJECT, decoded
from twinlog.errors import DamagedLog, Refused

MERGE_CHUNK = 500
MERGE_TIMEOUT_S = 60.0
MergeOp = Literal["upsert", "update", "delete"]
MergeRow = tuple[int, MergeOp, bytes, bytes, int]  # table, operation, key, value, version
OPERATIONS: dict[RecordKind, MergeOp] = {RecordKind.UPSERT: "upsert", RecordKind.UPDATE: "update", RecordKind.DELETE: "delete"}


async def merge_quarantine(files: Files, other: OtherSite, *, put_absent: bool) -> dict[str, Any]:
    """Sends every quarantined row to the active, and renames a file that is merged. Returns the counts, for the operator.

    Raises Refused for a change of a table, PeerError when the active does not answer.
    """
    merged = skipped = kept = 0
    names = [name for name in await files.list(QUARANTINE) if name.endswith(".frames")]
    for name in names:
        path = f"{QUARANTINE}/{name}"
        absent: list[tuple[int, bytes]] = []
        for part in _parts(_rows(_frames(await files.read(path)))):
            reply = await other.merge(MergeRequest(part, put_absent), MERGE_TIMEOUT_S)
            merged += reply.merged
            skipped += reply.skipped
            absent += reply.absent
        await _note_absent(files, path.removesuffix(".frames") + ".json", absent)
        kept += len(absent)
        if not absent:
            await files.rename(path, f"{path}.merged")
    return {"files": names, "merged_changes": merged, "skipped_changes": skipped, "rows_absent_at_the_active": kept}


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
