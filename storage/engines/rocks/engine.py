"""The embedded engine: RocksDB through rocksdict, replayed from twinlog's own log after a crash.

What always holds:
- one write batch holds the effects of all frames of an `apply` and the watermark, in one column family without RocksDB's
  log: so after a crash the database is at the end of some earlier `apply`, and the watermark found in it is `durable_seq`;
- a write or flush that failed is the last one before `reopen`, which keeps what is on the disk and this object;
- `applied` changes only after the write, all of it at once;
- nothing that can wait runs on the event loop: a write that RocksDB would hold back is refused there and repeated in a thread.
Threads: one applies, one reads (scans, history, purge), one keeps up (flush, notes, base data, rejoin).
Source: storage/engine.py, protocol.md 4 and 8, product.md 3.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Self, TypeVar

from rocksdict import Rdict, WriteBatch

from storage.disk.workers import Worker
from storage.engine import EngineState, EpochEntry, KeptSnapshot, RefusedChange, RequestOutcome, StoredRow, TableSize, horizon
from storage.engines.entries.effects import Effects
from storage.engines.entries.moves import Replacement, base_end, base_part, cut_back
from storage.engines.entries.write import EngineWrite, Packed
from storage.engines.meaning import admit, check_schema, refuse_unless_loading, refuse_when_failed, refuse_while_loading
from storage.engines.rocks import layout, purging, sizes
from storage.engines.rocks.opening import (
    RocksParts,
    RocksSettings,
    check_room,
    figures,
    keep_checkpoint,
    open_folder,
    write_options,
)
from storage.engines.rocks.snapshot import RocksSnapshot
from storage.engines.rocks.state import cut_off
from storage.engines.rocks.view import ROCKS_ERRORS, RocksView, stored_row
from storage.log.frame import Frame
from twinlog.errors import DataDirectoryError, EngineFailed, words

T = TypeVar("T")
_STALLED = "Write stall"
_STALL_WAIT_S = 0.002


class RocksEngine:
    """StorageEngine on a folder of its own. Make it with `open`."""

    def __init__(self, path: Path, opened: RocksParts, settings: RocksSettings, upkeep: Worker) -> None:
        self._path, self._settings = path, settings
        self._notes, self._database, self.applied, self._kept = opened
        self.durable_seq = self.applied.seq
        self._applier, self._reader, self._upkeep = Worker("rocks-apply"), Worker("rocks-read"), upkeep
        self._writing = threading.Lock()  # around read-then-write: applies, purge and base data never interleave
        self._write_options = write_options()
        self._applying = False
        self._closed = False
        self.failure: str | None = None
        self.refused: RefusedChange | None = None  # never: rows lie here by table id and key
        self._reopening = False
        self._snapshots: set[RocksSnapshot] = set()
        self._kept_bytes = 0  # as of the last flush

    @classmethod
    async def open(cls, path: Path, settings: RocksSettings) -> Self:
        """The engine in the folder `path`, made when it is not there. Raises DataDirectoryError."""
        upkeep = Worker("rocks-upkeep")
        try:
            opened = await upkeep.submit(lambda: open_folder(path, settings))
        except BaseException:
            await upkeep.close()
            raise
        return cls(path, opened, settings, upkeep)

    async def reopen(self) -> None:
        self.failure = self.failure or "it is being opened anew"
        self._reopening = True
        try:
            for snapshot in list(self._snapshots):
                snapshot.close()
            for worker in (self._applier, self._reader):  # an iterator that is still in use would keep the folder locked
                await worker.submit(lambda: None)
            await self._upkeep.submit(self._reopen)
        except EngineFailed as error:
            self.failure = error.message  # what failed before may be mended by now
            raise
        finally:
            self._reopening = False

    def _reopen(self) -> None:
        check_room(self._path, self._settings.write_buffer_bytes)  # else the first flush would fail again
        self._close_database()
        try:
            self._notes, self._database, self.applied, self._kept = open_folder(self._path, self._settings)
        except DataDirectoryError as error:
            raise EngineFailed(f"the storage cannot be opened anew: {error.message}", **error.fields) from error
        self.durable_seq = self.applied.seq
        self.failure = None

    def _close_database(self) -> None:
        """One that failed writes what it still can, and has perhaps been closed before."""
        try:
            with ROCKS_ERRORS:
                self._database.close()
        except EngineFailed:
            if self.failure is None:
                raise

    def _view(self) -> RocksView:
        """Returns a view of this moment. Call it on the reading thread, or in a thread that excludes `reopen`."""
        return RocksView(self._open_database())

    def _open_database(self) -> Rdict:
        if self._reopening:
            raise EngineFailed("the storage is being opened anew: begin the read again")
        return self._database

    # --- apply ---

    async def prepare_schema(self, table: int, schema: bytes | None) -> None:
        refuse_when_failed(self.failure)
        check_schema(schema)

    async def apply(self, frames: Sequence[Frame]) -> None:
        """HOT. One call at a time. A group of usual size is written here and now: rocksdict holds the GIL during a write, so
        a thread takes nothing off the loop, and two threads that both want the GIL made it two to five times slower
        (bench/engine.py). A very large group goes to a thread all the same, so that the loop has its turns in between.
        """
        assert not self._applying, "frames are applied in order: one apply at a time"
        state = self.applied
        refuse_while_loading(self.applied.loading)
        new = admit(frames, state.seq, state.epoch)
        if not new or self._apply_inline(new):
            return
        self._applying = True
        await self._applier.submit(lambda: self._apply_in_thread(new))

    def _apply_inline(self, frames: list[Frame]) -> bool:
        """False: too large for the event loop, or someone is writing, or RocksDB cannot take a write just now."""
        if sum(frame.count for frame in frames) > self._settings.inline_records_max:
            return False
        if not self._writing.acquire(blocking=False):
            return False
        try:
            with ROCKS_ERRORS:
                return self._try_apply(frames)
        finally:
            self._writing.release()

    def _apply_in_thread(self, frames: list[Frame]) -> None:
        try:
            self._until_done(lambda: self._try_apply(frames))
        finally:
            self._applying = False

    def _try_apply(self, frames: list[Frame]) -> bool:
        """False: RocksDB cannot take a write just now, nothing has changed."""
        state = self.applied
        effects = Effects(self._stored, state)
        for frame in frames:
            effects.add(frame)
        write = effects.write()
        if not self._write(layout.ranges(write), layout.entries(write, state)):
            return False
        self.applied = write.state
        return True

    def _stored(self, table: int, key: bytes) -> Packed | None:
        stored: bytes | None = self._database.get(layout.row_prefix(table) + key)
        return stored

    def _write(self, ranges: Iterable[layout.Range], entries: Iterable[tuple[bytes, bytes | None]]) -> bool:
        """One atomic write: the ranges are deleted, then the entries put, or deleted where None. False: RocksDB would have held
        it back."""
        refuse_when_failed(self.failure)
        batch = WriteBatch(raw_mode=True)
        for begin, end in ranges:
            batch.delete_range(begin, end)
        put = batch.put
        for key, value in entries:
            if value is None:
                batch.delete(key)
            else:
                put(key, value)
        try:
            self._database.write(batch, self._write_options)
        except Exception as error:
            if _STALLED in words(error):
                return False
            self.failure = words(error)
            raise
        return True

    def _until_done(self, attempt: Callable[[], bool]) -> None:
        """In a thread: `attempt` under the lock, again and again while RocksDB holds writes back."""
        while True:
            with self._writing, ROCKS_ERRORS:
                if attempt():
                    return
            time.sleep(_STALL_WAIT_S)

    # --- reads ---

    async def get(self, table: int, key: bytes) -> StoredRow | None:
        """HOT, on the event loop."""
        with ROCKS_ERRORS:
            stored = self._database.get(layout.row_prefix(table) + key)
        return None if stored is None else stored_row(key, stored)

    async def get_as_of(self, table: int, key: bytes, as_of: int) -> StoredRow | None:
        return await self._read(lambda: self._view().row_as_of(table, key, as_of))

    async def scan(
        self, table: int, start: bytes | None, end: bytes | None, *, reverse: bool, limit: int, as_of: int | None = None
    ) -> Sequence[StoredRow]:
        if as_of is None:
            return await self._read(lambda: self._view().rows(table, start, end, reverse, limit))
        return await self._read(lambda: self._view().rows_as_of(table, start, end, reverse, limit, as_of))

    async def snapshot(self) -> RocksSnapshot:
        """Returns a snapshot of this very moment, not of the one when a thread is free."""
        with ROCKS_ERRORS:
            snapshot = RocksSnapshot(self._view(), self._read, self._snapshots)
        self._snapshots.add(snapshot)
        return snapshot

    async def _read(self, fn: Callable[[], T]) -> T:
        def read() -> T:
            with ROCKS_ERRORS:
                return fn()

        return await self._reader.read(read)

    async def request_outcome(self, key: str) -> RequestOutcome | None:
        with ROCKS_ERRORS:
            stored = self._database.get(layout.request_key(key))
        return None if stored is None else layout.decode_outcome(stored)

    # --- upkeep ---

    async def flush(self) -> int:
        await self._upkeep.submit(self._flush)
        return self.durable_seq

    def _flush(self) -> None:
        """Applies continue meanwhile; what they add is not counted."""
        refuse_when_failed(self.failure)
        seq = self.applied.seq
        with ROCKS_ERRORS:
            try:
                self._database.flush(True)
            except Exception as error:
                self.failure = words(error)
                raise
        self.durable_seq = seq
        self._kept_bytes = self._kept.pinned_bytes()

    # --- kept snapshots ---

    async def keep_snapshot(self, name: str, taken_ms: int) -> None:
        """A checkpoint: hard links to the files of this moment."""
        state = self.applied
        await self._upkeep.submit(lambda: self._keep(name, taken_ms, state))

    def _keep(self, name: str, taken_ms: int, state: EngineState) -> None:
        with self._writing:
            if self.applied is not state:
                raise EngineFailed("the storage was changed before the snapshot could be kept")
            self._flush()  # the checkpoint would do it too, but with the GIL held
            keep_checkpoint(self._kept, self._database, state, name, taken_ms)

    def kept_snapshots(self) -> list[KeptSnapshot]:
        return self._kept.held()

    async def release_snapshot(self, name: str) -> None:
        await self._upkeep.submit(lambda: self._release(name))

    def _release(self, name: str) -> None:
        self._kept.release(name)
        self._kept_bytes = self._kept.pinned_bytes()

    def meta(self, name: str) -> bytes | None:
        return self._notes.get(name)

    async def set_meta(self, name: str, value: bytes | None) -> None:
        await self._upkeep.submit(lambda: self._notes.put(name, value))

    async def purge(self, now_ms: int) -> None:
        """Forget versions and outcomes whose time is over at `now_ms` (milliseconds since 1970)."""
        begin: bytes | None = layout.HISTORY[0]
        while begin is not None:
            begin = await self._reader.submit(partial(self._purge_history, begin, now_ms))
        while await self._reader.submit(partial(self._purge_requests, now_ms)):
            pass

    def _purge_history(self, begin: bytes, now_ms: int) -> bytes | None:
        with ROCKS_ERRORS:
            gone, after = purging.old_history(self._view(), self.applied.tables, now_ms, begin)
        self._until_done(lambda: self._write((), ((key, None) for key in gone)))
        return after

    def _purge_requests(self, now_ms: int) -> bool:
        oldest_kept = horizon(now_ms, self._settings.request_ttl_s)
        more = False

        def attempt() -> bool:
            nonlocal more
            gone, more = purging.old_requests(self._view(), self._database.get, oldest_kept)
            return self._write((), ((key, None) for key in gone))

        self._until_done(attempt)
        return more

    async def table_size(self, table: int) -> TableSize | None:
        if table not in self.applied.tables.by_id:
            return None
        return await self._read(lambda: sizes.table_size(self._open_database(), table, time.monotonic))

    def counters(self) -> dict[str, int]:
        closing = self._reopening or self._closed  # rocksdict refuses every look at a database that it is closing
        return ({} if closing else figures(self._database)) | {"kept_bytes": self._kept_bytes}

    async def close(self) -> None:
        """Flush and let the folder go. Closing twice is fine."""
        for snapshot in list(self._snapshots):
            snapshot.close()
        await self._applier.close()
        await self._reader.close()
        if not self._closed:
            self._closed = True
            try:
                if self.failure is None:
                    await self._upkeep.submit(self._flush)
            finally:
                await self._upkeep.submit(self._close_database)
        await self._upkeep.close()

    # --- base data and rejoin ---

    async def replace_rows(
        self, rows: Sequence[Replacement], applied_seq: int, applied_epoch: int, last_timestamp: int
    ) -> None:
        def make(state: EngineState) -> EngineWrite:
            return cut_back(state, rows, applied_seq, applied_epoch, last_timestamp)

        await self._upkeep.submit(lambda: self._move(make, durably=True, cutting=True))

    async def load_base(
        self, rows: Sequence[tuple[int, StoredRow]], outcomes: Sequence[tuple[str, RequestOutcome]], progress: bytes,
        first: bool, schemas: dict[int, bytes] | None,
    ) -> None:
        if not first:
            refuse_unless_loading(self.applied.loading)

        def make(state: EngineState) -> EngineWrite:
            return base_part(state, rows, outcomes, progress, first, schemas)

        await self._upkeep.submit(lambda: self._move(make, durably=first))

    async def finish_base(self, seq: int, epoch: int, last_timestamp: int, epochs: Sequence[EpochEntry]) -> None:
        refuse_unless_loading(self.applied.loading)

        def make(state: EngineState) -> EngineWrite:
            return base_end(state, seq, epoch, last_timestamp, epochs)

        await self._upkeep.submit(lambda: self._move(make, durably=True))

    def _move(self, make: Callable[[EngineState], EngineWrite], *, durably: bool, cutting: bool = False) -> None:
        """Set the state to another than the next frames would; a flush before or after it is another item of this thread."""
        assert not self._applying, "base data and a rejoin exclude an apply"

        def attempt() -> bool:
            before = self.applied
            write = make(before)
            gone = cut_off(self._view(), self._database.get, before, write) if cutting else []
            if not self._write(layout.ranges(write), chain(((key, None) for key in gone), layout.entries(write, before))):
                return False
            self.durable_seq = min(self.durable_seq, write.state.seq)
            self.applied = write.state
            return True

        self._until_done(attempt)
        if durably:
            self._flush()
