"""What a RocksDB engine has applied, and the two moves of it that are not an apply: base data, and the cut at a rejoin.

What always holds: each function gives the changes to write and the state that holds once they are written, so the two
cannot part. Source: storage/engine.py, protocol.md 7 (base data) and 8 (rejoin).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from storage.engine import EpochEntry, RequestOutcome, StoredRow
from storage.engines.applied import State
from storage.engines.entries import layout
from storage.engines.meaning import Tables
from storage.engines.rocks.purging import requests_after
from storage.engines.rocks.view import View

Replacement = tuple[int, bytes, StoredRow | None]


class Write(NamedTuple):
    """`ranges` are deleted first, then `changes` are put, or deleted where None; `state` holds afterwards."""

    ranges: Sequence[layout.Range]
    changes: Mapping[bytes, bytes | None]
    state: State


def load_state(view: View) -> State:
    """The state as the database has it."""
    stored = view.get(layout.APPLIED_KEY)
    seq, epoch, timestamp = (0, 0, 0) if stored is None else layout.unpack_applied(stored)
    tables = Tables({
        int.from_bytes(key[1:], "big"): layout.decode_table(value) for key, value in view.walk(layout.SCHEMAS)
    })
    epochs = tuple(layout.decode_epoch(value) for _, value in view.walk(layout.EPOCHS))
    return State(seq, epoch, timestamp, view.get(layout.LOADING_KEY), tables, epochs)


def cut(
    state: State, view: View, get: Callable[[bytes], bytes | None], rows: Sequence[Replacement], seq: int, epoch: int,
    last_timestamp: int,
) -> Write:
    """Set these rows, and go back to `seq`. Their history goes too, for it may hold what is cut, and so do the outcomes of
    requests above `seq`: answering a retry from one would acknowledge a write that no longer exists.
    """
    tables = state.tables.without_history({table for table, _, _ in rows}, last_timestamp)
    assert seq <= state.seq, f"the watermark goes back: it is {state.seq}, not below {seq}"
    changes: dict[bytes, bytes | None] = {}
    for table, key, row in rows:
        changes.update((entry, None) for entry, _ in view.walk(layout.key_history_range(table, key)))
        changes[layout.row_prefix(table) + key] = None if row is None else layout.pack_row(row.version, row.value)
    changes.update((layout.schema_key(number), layout.encode(table)) for number, table in tables.by_id.items())
    changes.update(dict.fromkeys(requests_after(view, get, seq)))
    changes.update((layout.epoch_key(entry.epoch), None) for entry in state.epochs if entry.epoch > epoch)
    changes[layout.APPLIED_KEY] = layout.pack_applied(seq, epoch, state.timestamp)
    kept = tuple(entry for entry in state.epochs if entry.epoch <= epoch)
    return Write((), changes, state._replace(seq=seq, epoch=epoch, tables=tables, epochs=kept))


def base_part(
    state: State, rows: Sequence[tuple[int, StoredRow]], outcomes: Sequence[tuple[str, RequestOutcome]], progress: bytes,
    first: bool, schemas: Mapping[int, bytes] | None,
) -> Write:
    """Rows and request outcomes of a base, and how far it has come; the first part empties the database, and what `schemas` no
    longer name is dropped."""
    changes: dict[bytes, bytes | None] = {layout.LOADING_KEY: progress}
    ranges: list[layout.Range] = []
    if first:
        state = State(0, 0, 0, None, Tables({}), ())
        ranges.append(layout.CONTENT)
        changes[layout.APPLIED_KEY] = layout.pack_applied(0, 0, 0)
    if schemas is not None:
        gone = sorted(state.tables.by_id.keys() - schemas.keys())
        ranges += map(layout.row_range, gone)
        changes.update((layout.schema_key(number), None) for number in gone)
        state = state._replace(tables=Tables.of_base(schemas, 0))
        changes.update((layout.schema_key(number), layout.encode(table)) for number, table in state.tables.by_id.items())
    for number, row in rows:
        changes[layout.row_prefix(number) + row.key] = layout.pack_row(row.version, row.value)
    for key, outcome in outcomes:
        changes.update(layout.request_entries(key, outcome))
    return Write(ranges, changes, state._replace(base=progress))


def base_end(state: State, seq: int, epoch: int, timestamp: int, epochs: Sequence[EpochEntry]) -> Write:
    """The base is whole: versions of its rows are kept from `timestamp` on."""
    tables = Tables.of_base(state.tables.schemas(), timestamp)
    changes: dict[bytes, bytes | None] = {
        layout.APPLIED_KEY: layout.pack_applied(seq, epoch, timestamp), layout.LOADING_KEY: None,
    }
    changes.update((layout.schema_key(number), layout.encode(table)) for number, table in tables.by_id.items())
    changes.update((layout.epoch_key(entry.epoch), layout.encode(entry)) for entry in epochs)
    return Write((), changes, State(seq, epoch, timestamp, None, tables, tuple(epochs)))
