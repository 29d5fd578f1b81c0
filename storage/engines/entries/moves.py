"""The moves of an engine that are not an apply: base data comes in, and a rejoin goes back. The same for every engine.

What always holds: each function returns what is to be written together with the state that holds then, so the two cannot part.
Source: storage/engine.py, protocol.md 7 (base data) and 8 (rejoin).
This module is pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from storage.engine import EngineState, EpochEntry, RequestOutcome, StoredRow, TableSet
from storage.engines.entries.write import EngineWrite, Packed, pack_row

Replacement = tuple[int, bytes, StoredRow | None]  # table, key, the row that is to be there; None: none


def base_part(
    state: EngineState, rows: Sequence[tuple[int, StoredRow]], outcomes: Sequence[tuple[str, RequestOutcome]], progress: bytes,
    first: bool, schemas: Mapping[int, bytes] | None,
) -> EngineWrite:
    """Rows and request outcomes of a base, and how far it has come; the first part empties the database, and what `schemas` no
    longer name is dropped."""
    if first:
        state = EngineState()
    gone: list[int] = []
    named: TableSet | None = None
    if schemas is not None:
        gone = sorted(state.tables.by_id.keys() - schemas.keys())
        named = TableSet.of_base(schemas, 0)
        state = state._replace(tables=named)
    put: defaultdict[int, dict[bytes, Packed | None]] = defaultdict(dict)
    for number, row in rows:
        put[number][row.key] = pack_row(row.version, row.value)
    return EngineWrite(
        state._replace(base=progress), emptied=first, dropped=gone, rows=put, requests=outcomes,
        schemas={**dict.fromkeys(gone), **(named.by_id if named is not None else {})},
    )


def base_end(state: EngineState, seq: int, epoch: int, timestamp: int, epochs: Sequence[EpochEntry]) -> EngineWrite:
    """The base is whole: versions of its rows are kept from `timestamp` on."""
    tables = TableSet.of_base(state.tables.schemas(), timestamp)
    after = EngineState(seq, epoch, timestamp, None, tables, tuple(epochs))
    return EngineWrite(after, schemas=tables.by_id, epochs=epochs)


def cut_back(
    state: EngineState, rows: Sequence[Replacement], seq: int, epoch: int, last_timestamp: int
) -> EngineWrite:
    """Set these rows, and go back to `seq`: `last_timestamp` is when their histories begin.

    The engine itself removes what only it can find: the replaced versions of these rows, which may hold what is cut, epochs
    above `epoch`, and the outcomes of requests above `seq`: answering a retry from one would acknowledge a write that is gone.
    """
    assert seq <= state.seq, f"the watermark goes back: it is {state.seq}, not below {seq}"
    tables = state.tables.without_history({table for table, _, _ in rows}, last_timestamp)
    put: defaultdict[int, dict[bytes, Packed | None]] = defaultdict(dict)
    for table, key, row in rows:
        put[table][key] = None if row is None else pack_row(row.version, row.value)
    kept = tuple(entry for entry in state.epochs if entry.epoch <= epoch)
    return EngineWrite(state._replace(seq=seq, epoch=epoch, tables=tables, epochs=kept), rows=put, schemas=tables.by_id)
