"""Rejoin: a site that is not the active learns the active's history, cuts what diverges, and becomes a follower.

The same steps for a standby that restarted, an active that stepped down and an active that died: where nothing diverges, each
finds nothing to do.

What always holds:
- a frame above the end that the active recorded for its epoch never stays in the storage or the log of this site;
- what may have been acknowledged is written to the quarantine, with a manifest, before it is cut (P6); where no log here has it
  for the quarantine, the rejoin stops and says so, until an operator accepts that loss;
- rows that diverging frames had changed are fetched again from the active, if the own log still has all these frames; until the
  log has brought this site past the point of that fetch (the floor) it may not take over;
- a log that is an older copy, or has a hole, proves nothing by what it lacks: nothing in front of a hole is replayed;
- the log is read several times rather than held: what is in memory of it has a bound, whatever its length.
Source: protocol.md section 8 (Rejoin a).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from itertools import pairwise, takewhile

from remote_log.replication.epoch_history import common_end, contains
from remote_log.replication.messages import RowsReply, RowsRequest, unpack_history
from remote_log.replication.sink import Sink
from storage.disk.port import Files
from storage.engine import EpochEntry, StorageEngine, StoredRow
from storage.engines.applying import FrameApplier
from storage.failpoints import Failpoints
from storage.log.frame import Frame
from storage.log.wal import Wal
from storage.prefix import FLOOR, NO_FLOOR, floor_of, needs_base
from switchover.diverging import ROW_KINDS, Attested, Diverging
from switchover.other_site import OtherSite
from switchover.preflight.loss import UNKNOWN
from switchover.quarantine import Quarantine
from twinlog.errors import Diverged, Refused

ASYNC_EPOCH = "async_epoch"  # in this epoch the site acknowledged asynchronously what it had written while it was synchronous
CALL_TIMEOUT_S = 10.0
ROWS_PER_CALL = 1_000
REFETCH_ROWS = 20_000  # rows that are fetched before they are written, and their bytes
REFETCH_BYTES = 16 << 20


@dataclass(slots=True)
class RejoinReport:
    """The findings and results of a rejoin, for the journal and the operator."""

    active_epoch: int = 0
    end_seq: int = 0
    replayed_frames: int = 0
    dropped_frames: int = 0
    quarantined_frames: int = 0
    quarantine: str | None = None
    refetched_rows: int = 0
    base_needed: bool = False
    notes: list[str] = field(default_factory=list)


class Rejoin:
    """One rejoin of `site` to `peer`, which `other` asks. `clear_wal`: empties `wal`; what it held may be kept for a backup.
    `accepted`: the loss that an operator accepts (`Diverged`)."""

    def __init__(
        self, *, site: str, peer: str, engine: StorageEngine, applier: FrameApplier, wal: Wal, files: Files,
        other: OtherSite, sink: Sink, failpoints: Failpoints, clear_wal: Callable[[], Awaitable[None]],
        accepted: int | str | None = None,
    ) -> None:
        self._clear_wal = clear_wal
        self._site, self._peer, self._accepted = site, peer, accepted
        self._engine, self._applier, self._wal, self._files = engine, applier, wal, files
        self._other, self._sink, self._failpoints = other, sink, failpoints
        self.report = RejoinReport()
        self._history: list[EpochEntry] = []
        self._holds, self._begins_after = True, 0  # the active's log: this site's position, and from where on

    async def run(self) -> RejoinReport:
        """All steps. Each is idempotent: after a crash the whole is run again."""
        await self._sink.settle()
        await self.learn()
        await self._wal.settle()
        attested = await self._attested()
        await self._replay_own(attested)
        self._failpoints.hit("rejoin.replayed")
        await self._cut(attested)
        await self._applier.forget_after(self.report.end_seq)
        self._failpoints.hit("rejoin.cut")
        await self._clear_wal()
        self._failpoints.hit("rejoin.cleared")
        await self._sink.set_followed_epoch(self.report.active_epoch)
        return self.report

    async def learn(self) -> None:
        """The active's epochs, and where each began."""
        sink = self._sink
        reply = await self._other.epochs(sink.point, CALL_TIMEOUT_S)
        if reply.epoch < sink.followed_epoch:
            raise Refused(f"the other site says epoch {reply.epoch}, but this site has followed {sink.followed_epoch} already")
        sink.verifier.history(reply.history, reply.epoch, "the active's answer")
        await sink.confirm(reply.epoch)
        self._history = unpack_history(reply.history)
        self._holds, self._begins_after = reply.holds, reply.begins_after
        self.report.active_epoch = reply.epoch

    def _shared(self, frame: Frame) -> bool:
        return contains(self._history, frame.epoch, frame.last_seq)

    async def _attested(self) -> int:
        attested, standing = Attested(self._history), self._wal.standing()
        async for frames in self._wal.every_frame():
            for frame in frames:
                attested.note(frame, leads_to_end=standing.leads_to_end(frame))
        return attested.seq

    async def _replay_own(self, attested: int) -> None:
        """Applies what a crash took from the storage and the own log still has, as far as it is known to be committed."""
        async with aclosing(self._own_tail(attested)) as groups:
            async for frames in groups:
                await self._applier.replay(frames)
                self.report.replayed_frames += len(frames)
        if self.report.replayed_frames:
            await self._engine.flush()

    async def _own_tail(self, attested: int) -> AsyncGenerator[list[Frame], None]:
        at, standing = self._engine.applied.seq, self._wal.standing()
        async with aclosing(self._wal.every_frame(at)) as groups:
            async for frames in groups:
                unbroken = [frame for frame in frames if standing.leads_to_end(frame)]
                good = list(takewhile(lambda frame: frame.last_seq <= attested and self._shared(frame), unbroken))
                for place, frame in enumerate(good):
                    if frame.previous != (good[place - 1].last_seq if place else at):
                        good = good[:place]
                        break
                if good:
                    at = good[-1].last_seq
                    yield good
                if len(good) < len(unbroken):
                    return

    async def _diverging(self) -> AsyncGenerator[list[Frame], None]:
        """The frames that stand here and that the active's log does not contain, in order, a group at a time."""
        standing = self._wal.standing()
        async with aclosing(self._wal.every_frame()) as groups:
            async for frames in groups:
                diverging = [frame for frame in frames if not self._shared(frame) and standing.has(frame)]
                if diverging:
                    yield diverging

    async def _cut(self, attested: int) -> None:
        """Quarantine or drop what diverges; bring the storage back to the common end."""
        engine = self._engine
        end, why, at = 0, "", engine.applied.seq
        try:
            end = common_end(self._history, engine.applied.epoch, at)
        except Refused as error:
            why = error.message
        diverging = Diverging(at, max(at, attested), int(engine.meta(ASYNC_EPOCH) or b"0"))
        async for frames in self._diverging():
            for frame in frames:
                diverging.note(frame)
        leads = end < at and diverging.leads_from(self._last_common_end() if why else end)
        reaches_back = leads and not why
        if end < at and not leads:
            self._check_not_lost(end, UNKNOWN if why else at - end)
        if why:
            await self._ask_for_base(why)
        await self._quarantine(diverging)
        if reaches_back and diverging.touched_previous is not None:
            end = diverging.touched_previous  # what this site's WAL failed to keep, the active may have from the remote log
        self.report.end_seq = end
        if end == at and not needs_base(engine):
            if not self._holds:
                await self._ask_for_base("the active's log does not hold what is applied here, though the numbers agree")
            elif end < self._begins_after:
                await self._ask_for_base(f"the active's log begins after {self._begins_after}")
            elif floor_of(engine) == NO_FLOOR:
                await self._ask_for_base("nobody knows to which point of the log the rows belong that a rejoin had fetched")
        if end >= at or self.report.base_needed:
            return
        if not reaches_back or diverging.touched_tables:
            await self._ask_for_base("the own log does not reach back to the common end, or tables changed since")
            return
        await self._refetch(end)

    def _last_common_end(self) -> int:
        """The end that this site shares with the active's log, by the epochs that its storage knows, where the active does not
        know the last of them."""
        own = self._engine.applied.epochs
        shared = (
            common_end(self._history, entry.epoch, after.previous)
            for entry, after in pairwise(own) if any(entry.epoch == theirs.epoch for theirs in self._history)
        )
        return max(shared, default=0)

    def _check_not_lost(self, end: int, at_risk: int | str) -> None:
        """Raises Diverged when the storage here alone has what was committed: the active continues without it, and no log here
        has it for the quarantine. The active opened on an older copy, say; or the own log is one, or was trimmed by what the
        active's site had before."""
        applied, site, peer = self._engine.applied, self._site, self._peer
        if needs_base(self._engine) or self._accepted == at_risk:
            return
        counted, lacks = f"up to {at_risk} records", f"which site {peer} has only up to {end}, and continues from there"
        if at_risk == UNKNOWN:
            counted, lacks = "an unknown number of records", f"and site {peer} does not know that epoch"
        raise Diverged(
            f"site {site} has diverged: it has applied sequence {applied.seq} of epoch {applied.epoch}, {lacks}; the storage of"
            f" site {site} alone holds {counted} that may have been acknowledged, and no log here has them for the quarantine."
            " Put the newest copy of what went back in its place; or"
            f" continue with these records: `twinlog failover --to {site} --accept-data-loss`; or give them up: `twinlog rejoin"
            f" {site} --accept-data-loss --count {at_risk}`", held_seq=applied.seq, end_seq=end, at_risk=at_risk,
        )

    async def _ask_for_base(self, why: str) -> None:
        await self._sink.want_base()
        self.report.base_needed = True
        self.report.notes.append(f"filled with base data: {why}")

    async def _refetch(self, end: int) -> None:
        """Sets the rows that the touched frames had changed to those of the active, and the storage back to `end`.

        More than fit into one transaction go in several. The storage stays where it is until the last of them, so that a rejoin
        that was cut off finds the same frames, and nothing vouches for its rows meanwhile.
        """
        engine = self._engine
        at, floor, last_timestamp, in_parts = engine.applied, end, 0, False
        rows: dict[tuple[int, bytes], StoredRow | None] = {}
        size = 0
        async with aclosing(self._touched_keys(at.seq)) as groups:
            async for keys in groups:
                async for asked, reply in self._fetched([key for key in keys if key not in rows]):
                    floor, last_timestamp = max(floor, reply.seq), max(last_timestamp, reply.last_timestamp)
                    for (table, key), row in zip(asked.keys, reply.rows, strict=False):  # an answer has its bound
                        rows[table, key] = None if row is None else StoredRow(key, row[0], row[1])
                        size += len(key) + (len(row[0]) if row is not None else 0)
                    self.report.refetched_rows += len(reply.rows)
                    if size >= REFETCH_BYTES or len(rows) >= REFETCH_ROWS:
                        in_parts = True
                        await engine.set_meta(FLOOR, str(NO_FLOOR).encode())
                        await engine.replace_rows(_listed(rows), at.seq, at.epoch, last_timestamp)
                        self._failpoints.hit("rejoin.fetched")
                        rows, size = {}, 0
        if not in_parts:
            await engine.set_meta(FLOOR, str(floor).encode())
        epoch = max(entry.epoch for entry in self._history if entry.first_seq <= end)
        await engine.replace_rows(_listed(rows), end, epoch, last_timestamp)
        if in_parts:
            self._failpoints.hit("rejoin.set_back")
            await engine.set_meta(FLOOR, str(floor).encode())

    async def _touched_keys(self, applied_seq: int) -> AsyncGenerator[list[tuple[int, bytes]], None]:
        """The (table, key) of every row that the touched frames change; some of them again in a later group."""
        keys: set[tuple[int, bytes]] = set()
        async with aclosing(self._diverging()) as groups:
            async for frames in groups:
                touched = [frame for frame in frames if frame.last_seq <= applied_seq]
                keys |= {(r.table, r.key) for frame in touched for r in frame.records if r.kind in ROW_KINDS}
                if len(keys) >= ROWS_PER_CALL:
                    yield sorted(keys)
                    keys = set()
        yield sorted(keys)

    async def _fetched(self, keys: list[tuple[int, bytes]]) -> AsyncGenerator[tuple[RowsRequest, RowsReply], None]:
        """The active's answers, each about the first rows that were asked for."""
        while keys:
            asked = RowsRequest(keys[:ROWS_PER_CALL])
            reply = await self._other.rows(asked, CALL_TIMEOUT_S)
            self._sink.check_rows(asked, reply)
            yield asked, reply
            keys = keys[len(reply.rows) :]

    async def _quarantine(self, diverging: Diverging) -> None:
        """Frames that may have been acknowledged, as a file with a manifest; the others only counted."""
        if not diverging.frames:
            return
        if not diverging.acknowledged:
            self.report.dropped_frames = diverging.frames
            self.report.notes.append(
                f"dropped {diverging.frames} frames that were never acknowledged "
                f"(sequences {diverging.first_seq} to {diverging.last_seq})"
            )
            return
        # one that is there is whole since an attempt that had begun to clear
        name = await Quarantine(self._site, self._files, self._engine).put(self._diverging)
        self.report.quarantined_frames = diverging.frames
        self.report.quarantine = name


def _listed(rows: dict[tuple[int, bytes], StoredRow | None]) -> list[tuple[int, bytes, StoredRow | None]]:
    return [(table, key, row) for (table, key), row in rows.items()]
