"""The quarantine of a site: files with frames that the log of the active does not contain, each with a manifest.

What always holds: a file and its manifest are durable when a call returns; a file is never replaced or deleted, only renamed
once it is merged; the name of what a remote log held has a digest of its content, so that no earlier file stands for another
one.
Source: protocol.md, P6.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from remote_log.replication.epoch_history import contains
from storage.disk.port import Files
from storage.engine import StorageEngine
from storage.log.chain import remaining
from storage.log.frame import Frame
from storage.log.record import RecordKind
from storage.rows.readable import readable_place, schemas_put_by

QUARANTINE = "quarantine"
ROW_KINDS = (RecordKind.UPSERT, RecordKind.UPDATE, RecordKind.DELETE)
DIGEST_BYTES = 6


class Quarantine:
    """The quarantine of one site. `left_out` says what `keep` has put there, for the operator; None: nothing."""

    def __init__(self, site: str, files: Files, engine: StorageEngine) -> None:
        self._site, self._files, self._engine = site, files, engine
        self.left_out: str | None = None

    async def put(self, frames: Sequence[Frame], source: str = "") -> str:
        """Writes a file with a manifest, unless it is there from an attempt before; returns its name without an ending."""
        name = f"{QUARANTINE}/{frames[0].epoch:012d}-{frames[0].first_seq}{source}"
        if f"{name.partition('/')[2]}.json" in await self._files.list(QUARANTINE):
            await self._files.make_durable(f"{name}.json")
            return name
        await self._files.write_new(f"{name}.frames", b"".join(frame.data for frame in frames))
        manifest = json.dumps(_manifest(self._site, frames, self._engine.applied.schemas()), indent=2).encode()
        await self._files.write_new(f"{name}.json", manifest)
        return name

    # ---- of a remote log (remote_log/writing/left_out.py)
    def cut_off(self, frames: Sequence[Frame]) -> list[Frame]:
        """The frames that the history of this site, which is the active, does not contain."""
        history = self._engine.applied.epochs
        return [frame for frame in frames if not contains(history, frame.epoch, frame.last_seq)]

    async def keep(self, cut_off: Sequence[Frame], damaged: Mapping[str, bytes]) -> None:
        """Puts aside what may have been acknowledged: rows and changes of tables that their own epoch did not cut off."""
        for path, data in damaged.items():
            *_, epoch, name = path.split("/")
            await self._files.write_new(f"{QUARANTINE}/{epoch}-{name}.damaged", data)
        ordered = sorted(cut_off, key=lambda frame: frame.position)
        standing = [frame for _, group in groupby(ordered, lambda frame: frame.epoch) for frame in remaining(group)]
        kept = [frame for frame in standing if any(r.kind in (*ROW_KINDS, RecordKind.DDL) for r in frame.records)]
        if kept:
            digest = hashlib.blake2b(b"".join(frame.data for frame in kept), digest_size=DIGEST_BYTES).hexdigest()
            name = await self.put(kept, f"-remote-{digest}")
            self.left_out = f"{sum(frame.count for frame in kept)} records of epoch {kept[0].epoch}: {name}.json"


def _manifest(site: str, frames: Sequence[Frame], schemas: Mapping[int, bytes]) -> dict[str, Any]:
    """Lists the exact keys, by table, that a person or a Spark job needs to reconcile: `name` and `row` for a person, `table`
    and `key` for a job."""
    known, keys = dict(schemas), []
    for frame in frames:
        for index, record in enumerate(frame.records):
            if record.kind == RecordKind.DDL:
                known |= schemas_put_by(record)
            elif record.kind in ROW_KINDS:
                name, row = readable_place(known, record.table, record.key)
                keys.append({
                    "name": name, "row": row, "operation": RecordKind(record.kind).name, "table": record.table,
                    "key": record.key.hex(), "seq": frame.first_seq + index, "version": frame.timestamp + index,
                })
    return {
        "site": site, "epoch": frames[0].epoch, "first_seq": frames[0].first_seq, "last_seq": frames[-1].last_seq,
        "frames": len(frames), "records": len(keys), "acknowledged": "possibly", "keys": keys,
    }
