"""The quarantine of a site: files with frames that the log of the active does not contain, each with a manifest.

What always holds: a file and its manifest are durable when a call returns; a file is never replaced or deleted, only renamed
once it is merged; either is there whole, or not at all; the name of what a remote log held has a digest of its content, so that
no earlier file stands for another one.
Source: protocol.md, P6.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from itertools import groupby
from typing import Any

from remote_log.replication.epoch_history import contains
from storage.disk.port import Files
from storage.engine import StorageEngine
from storage.log.chain import remaining
from storage.log.frame import Frame
from storage.log.record import Record, RecordKind
from storage.rows.readable import readable_place, schemas_put_by
from switchover.diverging import ROW_KINDS

QUARANTINE = "quarantine"
DIGEST_BYTES = 6
Frames = Callable[[], AsyncGenerator[list[Frame], None]]  # the same frames each time, in order, a group at a time


class Quarantine:
    """The quarantine of one site. `left_out` says what `keep` has put there, for the operator; None: nothing."""

    def __init__(self, site: str, files: Files, engine: StorageEngine) -> None:
        self._site, self._files, self._engine = site, files, engine
        self.left_out: str | None = None

    async def put(self, frames: Frames, source: str = "") -> str:
        """Writes a file with a manifest, unless it is there from an attempt before; returns its name without an ending.

        `frames` gives the same frames each time it is called, at least one: they are written as they come, never held.
        """
        async with aclosing(frames()) as groups:
            first = (await anext(groups))[0]
        name = f"{QUARANTINE}/{first.epoch:012d}-{first.first_seq}{source}"
        if f"{name.partition('/')[2]}.json" in await self._files.list(QUARANTINE):
            await self._files.make_durable(f"{name}.json")
            return name
        content = _Content(self._site, first)
        await self._files.write_parts(f"{name}.frames", content.bytes_of(frames))
        await self._files.write_parts(f"{name}.json", content.manifest_of(frames, self._engine.applied.schemas()))
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
            name = await self.put(partial(_at_once, kept), f"-remote-{digest}")
            self.left_out = f"{sum(frame.count for frame in kept)} records of epoch {kept[0].epoch}: {name}.json"


async def _at_once(frames: list[Frame]) -> AsyncGenerator[list[Frame], None]:
    yield frames


class _Content:
    """The two files of a quarantine, in parts. The manifest comes second: its head has what the first one counts."""

    def __init__(self, site: str, first: Frame) -> None:
        self._site, self._first, self._last_seq = site, first, 0
        self._frames = self._records = 0

    async def bytes_of(self, source: Frames) -> AsyncGenerator[bytes, None]:
        async with aclosing(source()) as groups:
            async for frames in groups:
                self._frames += len(frames)
                self._records += sum(record.kind in ROW_KINDS for frame in frames for record in frame.records)
                self._last_seq = frames[-1].last_seq
                yield b"".join(frame.data for frame in frames)

    async def manifest_of(self, source: Frames, schemas: Mapping[int, bytes]) -> AsyncGenerator[bytes, None]:
        """Lists the exact keys, by table, that a person or a Spark job needs to reconcile: `name` and `row` for a person,
        `table` and `key` for a job. JSON, with one line for each key."""
        head = {
            "site": self._site, "epoch": self._first.epoch, "first_seq": self._first.first_seq, "last_seq": self._last_seq,
            "frames": self._frames, "records": self._records, "acknowledged": "possibly",
        }
        yield json.dumps(head, indent=2).encode()[:-2] + b',\n  "keys": ['
        known, between = dict(schemas), ""
        async with aclosing(source()) as groups:
            async for frames in groups:
                lines = []
                for frame in frames:
                    for index, record in enumerate(frame.records):
                        if record.kind == RecordKind.DDL:
                            known |= schemas_put_by(record)
                        elif record.kind in ROW_KINDS:
                            lines.append(f"{between}\n    {json.dumps(_key(known, frame, index, record))}")
                            between = ","
                yield "".join(lines).encode()
        yield b"\n  ]\n}\n"


def _key(schemas: Mapping[int, bytes], frame: Frame, index: int, record: Record) -> dict[str, Any]:
    name, row = readable_place(schemas, record.table, record.key)
    return {
        "name": name, "row": row, "operation": RecordKind(record.kind).name, "table": record.table,
        "key": record.key.hex(), "seq": frame.first_seq + index, "version": frame.timestamp + index,
    }
