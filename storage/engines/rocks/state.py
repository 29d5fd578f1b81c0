"""Reads an engine's state from a RocksDB database, and finds what goes from it at a rejoin. Blocking, on a view that is given.

Source: storage/engine.py, protocol.md 8 (rejoin).
"""

from __future__ import annotations

from collections.abc import Callable

from storage.engine import EngineState, TableSet
from storage.engines.entries.write import EngineWrite
from storage.engines.rocks import layout
from storage.engines.rocks.purging import requests_after
from storage.engines.rocks.view import RocksView


def load_state(view: RocksView) -> EngineState:
    """The state as the database has it."""
    stored = view.get(layout.APPLIED_KEY)
    seq, epoch, timestamp = (0, 0, 0) if stored is None else layout.unpack_applied(stored)
    tables = TableSet({
        int.from_bytes(key[1:], "big"): layout.decode_table(value) for key, value in view.walk(layout.SCHEMAS)
    })
    epochs = tuple(layout.decode_epoch(value) for _, value in view.walk(layout.EPOCHS))
    return EngineState(seq, epoch, timestamp, view.get(layout.LOADING_KEY), tables, epochs)


def cut_off(view: RocksView, get: Callable[[bytes], bytes | None], before: EngineState, write: EngineWrite) -> list[bytes]:
    """The keys that go when `write` cuts `before` back: versions of the rows that it sets, later epochs and requests."""
    gone = [
        entry for table, rows in write.rows.items() for key in rows
        for entry, _ in view.walk(layout.key_history_range(table, key))
    ]
    gone += requests_after(view, get, write.state.seq)
    gone += [layout.epoch_key(entry.epoch) for entry in before.epochs if entry.epoch > write.state.epoch]
    return gone
