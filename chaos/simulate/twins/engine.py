"""The simulated storage engine: the dumb twin, with a little time at the points where the real one waits.

What always holds: a crash, or opening it anew, goes back to the end of some transaction between the last flush and now, for
a flush in the background may have kept more than was asked for; what was under way has happened wholly or not at all. It
outlives the processes of its site: call `crash` when one was killed. `break_down` and `repair` (memory.py): a full disk.
Source: storage/engine.py.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from storage.engine import EpochEntry, KeptSnapshot, RefusedChange, RequestOutcome, StoredRow
from storage.engines.memory.engine import MemoryEngine, MemorySnapshot
from storage.engines.memory.state import MemoryState
from storage.engines.unshown import UNSHOWN, refusal_of, schema_changes, unshown_tables
from storage.log.frame import Frame
from twinlog.errors import EngineFailed

APPLY_S = (0.00005, 0.0005)  # at least, and so much more at most
FLUSH_S = (0.001, 0.02)
READ_S = (0.0005, 0.05)
INLINE = 0.7  # of the applies end before anything else runs, as small ones do
NOTHING_MORE = 0.5  # of the crashes go back to the last flush exactly


@dataclass(frozen=True, slots=True)
class StorageCopy:
    """All that a storage holds, at one moment."""

    state: MemoryState
    notes: dict[str, bytes]
    kept: dict[str, tuple[KeptSnapshot, MemoryState]]


class SimSnapshot(MemorySnapshot):
    """`is_open` until it is closed, whether it can still be read or not."""

    path = "snapshot of the storage"
    is_open = True

    def close(self) -> None:
        self.is_open = False

    def abandon(self) -> None:
        self.close()


class SimEngine(MemoryEngine):
    """StorageEngine. `slow`: a factor. `slow_reads`: the share of reads of a row that take a while; what they answer was true
    at its beginning or at its end."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self._random = random
        self.slow = 1.0
        self.slow_reads = 0.0
        self._applying = False
        self._will_refuse = False
        self._refuses: RefusedChange | None = None
        self._snapshots: list[SimSnapshot] = []

    def open_snapshots(self) -> list[SimSnapshot]:
        """Returns the snapshots that the process has taken and not closed."""
        self._snapshots = [snapshot for snapshot in self._snapshots if snapshot.is_open]
        return self._snapshots

    def refuse_next_change(self) -> None:
        """The database behind it refuses the next schema change for ever, and whoever asks before does not learn it."""
        self._will_refuse = True

    def repair(self) -> None:
        """Undoes `break_down`; what is refused already stays so, and nothing more will be."""
        super().repair()
        self._will_refuse = False

    def _check_not_refused(self, frames: Sequence[Frame]) -> None:
        """A refusal outlives the process: it is the database's. Nothing of these frames is applied then."""
        if self._refuses is None and not self._will_refuse:
            return
        state = self.applied
        changes = schema_changes(frame for frame in frames if frame.last_seq > state.seq)
        if self._will_refuse and changes:
            self._will_refuse = False
            table, (epoch, seq) = min(changes.items(), key=lambda change: change[1])
            self._refuses = RefusedChange(epoch, seq, table, "table 't': no such thing here")
        stuck = self._refuses
        if stuck is None or changes.get(stuck.table, (0, 0)) < (stuck.epoch, stuck.seq):
            return
        if stuck.table in unshown_tables(self.meta(UNSHOWN), {stuck.table: (stuck.epoch, stuck.seq)}):
            return
        self.refused = stuck
        error = refusal_of("this", stuck.problem, (stuck.epoch, stuck.seq))
        self.failure = error.message
        raise error

    @property
    def has_refusal_ahead(self) -> bool:
        """True until the storage has passed the change that its database refuses, which a restarted process has yet to meet."""
        return self._refuses is not None and not self._refuses.is_behind(self.applied)

    @property
    def durable_epoch(self) -> int:
        """Returns the epoch of the frame that ends at `durable_seq`."""
        marks = self._state.marks
        return marks[0].epoch if marks else self._state.epoch

    def crash(self, kept: int | None = None) -> None:
        """The process is gone. `kept`: transactions since the last flush that survive; None: as it happens."""
        self._applying = False
        self._snapshots.clear()
        self.refused = None
        if kept is None:
            random = self._random
            kept = 0 if random.random() < NOTHING_MORE else random.randrange(len(self._state.marks) + 1)
        super().crash(kept)

    def killed(self, *, machine: bool) -> None:
        """Its process is gone, or the machine under it: the same here."""
        self.crash()

    def wipe(self) -> None:
        """A new disk."""
        fresh = MemoryEngine()
        self._state, self._notes, self._kept = fresh._state, fresh._notes, fresh._kept
        self._life += 1
        self.crash()

    def end(self) -> None:
        """The run is over."""

    def copied(self) -> StorageCopy:
        """Returns a copy of all that it holds, as a backup or a snapshot of its disk does; for `put_back`."""
        kept = {name: (each, state.copy()) for name, (each, state) in self._kept.items()}
        return StorageCopy(self._state.copy(), dict(self._notes), kept)

    def put_back(self, copied: Any) -> None:
        """A copy takes the place of what is here. No process runs."""
        self._state, self._notes, self._kept = copied.state, copied.notes, copied.kept
        self._life += 1
        self.crash()

    async def apply(self, frames: Sequence[Frame]) -> None:
        if self._applying:
            raise RuntimeError("frames are applied in order: one apply at a time")
        self._check_usable()
        self._check_not_refused(frames)
        if self._random.random() < INLINE:
            await super().apply(frames)
            self._passed()
            return
        self._applying = True
        life = self._life
        try:
            await self._take(APPLY_S)
        finally:
            if life == self._life:
                self._applying = False
        await super().apply(frames)
        self._passed()

    def _passed(self) -> None:
        if self.refused is not None and self.refused.is_behind(self.applied):
            self.refused = None

    async def flush(self) -> int:
        if self._random.random() < 0.5:  # what is durable is so at the end, or long before it is told
            await super().flush()
            seq = self.durable_seq
            await self._take(FLUSH_S)
            self._check_usable()
            return seq
        await self._take(FLUSH_S)
        return await super().flush()

    async def set_meta(self, name: str, value: bytes | None) -> None:
        await self._take(APPLY_S)
        await super().set_meta(name, value)

    async def get(self, table: int, key: bytes) -> StoredRow | None:
        if not self.slow_reads or self._random.random() >= self.slow_reads:
            return await super().get(table, key)
        if self._random.random() < 0.5:
            found = await super().get(table, key)
            await self._take(READ_S)
            return found
        await self._take(READ_S)
        return await super().get(table, key)

    async def get_as_of(self, table: int, key: bytes, as_of: int) -> StoredRow | None:
        await self._take(APPLY_S)
        return await super().get_as_of(table, key, as_of)

    async def scan(
        self, table: int, start: bytes | None, end: bytes | None, *, reverse: bool, limit: int, as_of: int | None = None
    ) -> Sequence[StoredRow]:
        await self._take(APPLY_S)
        return await super().scan(table, start, end, reverse=reverse, limit=limit, as_of=as_of)

    async def snapshot(self) -> MemorySnapshot:
        await self._take(APPLY_S)
        taken = await super().snapshot()
        self._snapshots.append(SimSnapshot(taken._copy, taken._is_alive))
        return self._snapshots[-1]

    async def keep_snapshot(self, name: str, taken_ms: int) -> None:
        before = self.applied
        await self._take(FLUSH_S)
        if self.applied[:2] != before[:2]:
            raise EngineFailed("the storage was changed before the snapshot could be kept")
        await super().keep_snapshot(name, taken_ms)

    def digest_of_kept(self, name: str) -> str:
        """Returns the digest of all that both sites must hold alike. The highest timestamp is left out: a site remembers those
        of a lost epoch."""
        state = self._kept[name][1]
        rows = [(table, key, row.version, row.value) for (table, key), row in sorted(state.rows.items())]
        tables = [(number, table.schema) for number, table in sorted(state.tables.items())]
        return digest_of(state.seq, state.epoch, rows, tables, [entry for _, entry in sorted(state.epochs.items())])

    async def release_snapshot(self, name: str) -> None:
        await self._take(APPLY_S)
        await super().release_snapshot(name)

    async def purge(self, now_ms: int) -> None:
        await self._take(APPLY_S)
        await super().purge(now_ms)

    async def replace_rows(
        self, rows: Sequence[tuple[int, bytes, StoredRow | None]], applied_seq: int, applied_epoch: int, last_timestamp: int
    ) -> None:
        await self._take(FLUSH_S)
        await super().replace_rows(rows, applied_seq, applied_epoch, last_timestamp)

    async def load_base(
        self, rows: Sequence[tuple[int, StoredRow]], outcomes: Sequence[tuple[str, RequestOutcome]], progress: bytes,
        first: bool, schemas: dict[int, bytes] | None,
    ) -> None:
        await self._take(FLUSH_S if first else APPLY_S)
        await super().load_base(rows, outcomes, progress, first, schemas)

    async def finish_base(self, seq: int, epoch: int, last_timestamp: int, epochs: Sequence[EpochEntry]) -> None:
        await self._take(FLUSH_S)
        await super().finish_base(seq, epoch, last_timestamp, epochs)

    async def reopen(self) -> None:
        await self._take(FLUSH_S)
        stands_at = self.refused
        await super().reopen()
        self.refused = stands_at

    async def _take(self, range_s: tuple[float, float]) -> None:
        """In the process: a killed one does not come back from it."""
        await asyncio.sleep((range_s[0] + range_s[1] * self._random.random()) * self.slow)


def digest_of(
    seq: int, epoch: int, rows: Sequence[tuple[int, bytes, int, bytes]], schemas: Sequence[tuple[int, bytes]],
    epochs: Sequence[EpochEntry],
) -> str:
    """Returns the digest of what a kept snapshot holds, whichever engine kept it."""
    told = repr((seq, epoch, rows, schemas, [(entry.epoch, entry) for entry in epochs]))
    return hashlib.blake2b(told.encode(), digest_size=8).hexdigest()
