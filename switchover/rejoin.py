"""Rejoin: a site that is not the active learns the active's history, cuts what diverges, and becomes a follower.

The same steps for a standby that restarted, an active that stepped down and an active that died: where nothing diverges, each
finds nothing to do.

What always holds:
- a frame above the end that the active recorded for its epoch never stays in the storage or the log of this site;
- what may have been acknowledged is written to the quarantine, with a manifest, before it is cut (P6); where no log here has it
  for the quarantine, the rejoin stops and says so, until an operator accepts that loss;
- rows that diverging frames had changed are fetched again from the active, if the own log still has all these frames; until the
  log has brought this site past the point of that fetch (the floor) it may not take over;
- a log that is an older copy, or has a hole, proves nothing by what it lacks: nothing in front of a hole is replayed.
Source: protocol.md section 8 (Rejoin a).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from remote_log.replication.epoch_history import common_end, contains
from remote_log.replication.messages import RowsRequest, unpack_history
from remote_log.replication.sink import Sink
from storage.disk.port import Files
from storage.engine import EpochEntry, StorageEngine, StoredRow
from storage.engines.applying import FrameApplier
from storage.failpoints import Failpoints
from storage.log.chain import gaps, remaining, unbroken
from storage.log.frame import Flags, Frame
from storage.log.record import RecordKind
from storage.log.wal import Wal
from storage.prefix import FLOOR, needs_base
from switchover.other_site import OtherSite
from switchover.preflight.loss import UNKNOWN
from switchover.quarantine import ROW_KINDS, Quarantine
from twinlog.errors import Diverged, Refused

ASYNC_EPOCH = "async_epoch"  # in this epoch the site acknowledged asynchronously what it had written while it was synchronous
CALL_TIMEOUT_S = 10.0
ROWS_PER_CALL = 1_000


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
    """One rejoin of `site` to `peer`, which `other` asks. `accepted`: the loss that an operator accepts (`Diverged`)."""

    def __init__(
        self, *, site: str, peer: str, engine: StorageEngine, applier: FrameApplier, wal: Wal, files: Files,
        other: OtherSite, sink: Sink, failpoints: Failpoints, accepted: int | str | None = None,
    ) -> None:
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
        frames = await self._wal.read_all()
        await self._replay_own(frames)
        self._failpoints.hit("rejoin.replayed")
        await self._cut(frames)
        await self._applier.forget_after(self.report.end_seq)
        self._failpoints.hit("rejoin.cut")
        await self._wal.clear()
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

    async def _replay_own(self, frames: list[Frame]) -> None:
        """Applies what a crash took from the storage and the own log still has, as far as it is known to be committed."""
        attested = self._attested(frames)
        at = self._engine.applied.seq
        good: list[Frame] = []
        for frame in unbroken(frames):
            if frame.last_seq <= at:
                continue
            if frame.last_seq > attested or not self._shared(frame) or frame.previous != (good[-1].last_seq if good else at):
                break
            good.append(frame)
        if good:
            await self._applier.replay(good)
            await self._engine.flush()
        self.report.replayed_frames = len(good)

    def _attested(self, frames: list[Frame]) -> int:
        """Everything that stands up to here was committed: a later frame says so, or the active's history ends an epoch with
        the very frame that is here, and so with all that it links to."""
        ends = {(before.epoch, after.previous) for before, after in pairwise(self._history)}
        known = [frame.last_seq for frame in unbroken(frames) if (frame.epoch, frame.last_seq) in ends]
        opened = {entry.epoch for entry in self._history}  # the start of an epoch that never opened attests nothing
        return max([frame.committed for frame in frames if frame.epoch in opened] + known, default=0)

    async def _cut(self, frames: list[Frame]) -> None:
        """Quarantine or drop what diverges; bring the storage back to the common end."""
        engine = self._engine
        end, why = 0, ""
        try:
            end = common_end(self._history, engine.applied.epoch, engine.applied.seq)
        except Refused as error:
            why = error.message
        diverging, at = [frame for frame in remaining(frames) if not self._shared(frame)], engine.applied.seq
        touched = [frame for frame in diverging if frame.last_seq <= at] if end < at else []
        common = self._last_common_end() if why else end
        leads = bool(touched) and touched[-1].last_seq == at and not gaps(touched) and touched[0].previous <= common
        reaches_back = leads and not why
        if end < at and not leads:
            self._check_not_lost(end, UNKNOWN if why else at - end)
        if why:
            await self._ask_for_base(why)
        await self._quarantine(diverging, self._attested(frames))
        if reaches_back:  # what this site's WAL failed to keep, and continued without, the active may have from the remote log
            end = touched[0].previous
        self.report.end_seq = end
        if end == engine.applied.seq and not needs_base(engine):
            if not self._holds:
                await self._ask_for_base("the active's log does not hold what is applied here, though the numbers agree")
            elif end < self._begins_after:
                await self._ask_for_base(f"the active's log begins after {self._begins_after}")
        if end >= engine.applied.seq or self.report.base_needed:
            return
        if not reaches_back or any(r.kind == RecordKind.DDL for frame in touched for r in frame.records):
            await self._ask_for_base("the own log does not reach back to the common end, or tables changed since")
            return
        await self._refetch(touched, end)

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

    async def _refetch(self, touched: list[Frame], end: int) -> None:
        keys = sorted({(r.table, r.key) for f in touched for r in f.records if r.kind in ROW_KINDS})
        rows: list[tuple[int, bytes, StoredRow | None]] = []
        floor, last_timestamp = end, 0
        while len(rows) < len(keys):
            part = keys[len(rows) : len(rows) + ROWS_PER_CALL]
            asked = RowsRequest(part)
            reply = await self._other.rows(asked, CALL_TIMEOUT_S)
            self._sink.check_rows(asked, reply)
            floor, last_timestamp = max(floor, reply.seq), max(last_timestamp, reply.last_timestamp)
            for (table, key), row in zip(part, reply.rows, strict=False):  # an answer has its bound
                rows.append((table, key, None if row is None else StoredRow(key, row[0], row[1])))
        await self._engine.set_meta(FLOOR, str(floor).encode())
        epoch = max(entry.epoch for entry in self._history if entry.first_seq <= end)
        await self._engine.replace_rows(rows, end, epoch, last_timestamp)
        self.report.refetched_rows = len(rows)

    async def _quarantine(self, diverging: list[Frame], attested: int) -> None:
        """Frames that may have been acknowledged, as a file with a manifest; the others only counted."""
        if not diverging:
            return
        # a downgrade acknowledges what was waiting, so everything that diverges counts once one frame is asynchronous
        noted = int(self._engine.meta(ASYNC_EPOCH) or b"0")
        held = max(self._engine.applied.seq, attested)
        acknowledged = any(frame.epoch == noted or _asynchronous(frame) or _was_committed(frame, held) for frame in diverging)
        kept = diverging if acknowledged else []
        self.report.dropped_frames = len(diverging) - len(kept)
        if not kept:
            self.report.notes.append(
                f"dropped {len(diverging)} frames that were never acknowledged "
                f"(sequences {diverging[0].first_seq} to {diverging[-1].last_seq})"
            )
            return
        # one that is there is whole since an attempt that had begun to clear
        name = await Quarantine(self._site, self._files, self._engine).put(kept)
        self.report.quarantined_frames = len(kept)
        self.report.quarantine = name


def _asynchronous(frame: Frame) -> bool:
    return bool(frame.flags & Flags.ASYNC) or any(r.kind == RecordKind.MODE and r.value == b"async" for r in frame.records)


def _was_committed(frame: Frame, held_seq: int) -> bool:
    """It was acknowledged, in whatever mode, and the active has gone on without it: from a log or a register of earlier.
    Starts and marks are nobody's loss. `held_seq`: the storage here, or a later frame, says that so much was committed."""
    return frame.last_seq <= held_seq and any(r.kind in ROW_KINDS for r in frame.records)
