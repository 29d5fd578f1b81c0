"""Makes lines of a history of what is stored at a site: its tables, its log, its quarantines.

What always holds: nothing here changes what it reads; rows and names are decoded by the product, as its clients would get them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

from chaos.history.history import DumpedRow, LoggedFrame, Quarantine, QuarantinedRow
from storage.engine import StorageEngine
from storage.log.frame import Frame
from storage.rows.codec import RowCodecs
from storage.rows.schema import decode_schema

ROWS_MAX = 1_000_000


async def tables_of(engine: StorageEngine) -> dict[str, dict[str, DumpedRow]]:
    """All rows of all tables with a key of one column: name -> key -> row."""
    tables: dict[str, dict[str, DumpedRow]] = {}
    codecs = RowCodecs()
    for number, schema in sorted(engine.applied.schemas().items()):
        table = decode_schema(schema)
        codec = codecs.get(table)
        key_column = table.primary_key[0]
        rows: dict[str, DumpedRow] = {}
        for stored in await engine.scan(number, None, None, reverse=False, limit=ROWS_MAX):
            row = codec.decode_row(stored.key, stored.value)
            rows[str(row.pop(key_column))] = DumpedRow(row, stored.version)
        tables[table.name] = rows
    return tables


def logged(frames: Iterable[Frame]) -> tuple[LoggedFrame, ...]:
    return tuple(
        LoggedFrame(
            frame.epoch, frame.first_seq, frame.last_seq, frame.previous, hashlib.blake2b(frame.data, digest_size=8).hexdigest()
        )
        for frame in frames
    )


def quarantined(site: str, manifest: Mapping[str, Any], schemas: Mapping[int, bytes], at_s: float) -> Quarantine:
    """Returns what a manifest names; rows of a table that is not there any more have no name."""
    names = {number: decode_schema(schema) for number, schema in schemas.items()}
    codecs = RowCodecs()
    rows = []
    for entry in manifest["keys"]:
        table = names.get(entry["table"])
        if table is not None:
            key = codecs.get(table).keys.decode(bytes.fromhex(entry["key"]))
            rows.append(QuarantinedRow(table.name, str(key[0]), entry["seq"], entry["version"]))
    return Quarantine(site, manifest["epoch"], manifest["first_seq"], manifest["last_seq"], at_s, True, tuple(rows))
