"""The model's write path, replication and trimming: every step is atomic, and False when it cannot be taken now."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from tests.model.pieces import LEASE, Broken, Dfs, Frame, Pending, Segment, Site, Value, chain

WRITES_MAX = 14
Taken = bool | None  # False: it could not be taken


class Writing:
    """The state of the world, and the steps of an open epoch. `bug` names a mistake that is planted."""

    def __init__(self, rng: random.Random, bug: str = "") -> None:
        self.rng, self.bug = rng, bug
        self.sites = [Site(), Site()]
        self.dfs = [Dfs(), Dfs()]
        self.calm = False  # nobody commands anything any more
        self.cut = False  # partition between the sites
        self.now = 0
        self.coord = Value()
        self.acked: dict[str, tuple[str, int]] = {}  # name -> sync or async, epoch
        self.failed: set[str] = set()
        self.excluded: set[str] = set()
        self.continued: set[str] = set()  # what the last epoch that opened continued from
        self.given_up: set[str] = set()  # acknowledged, and lost by a forced takeover
        self.writes = self.plans = self.forced = 0
        self.trace: list[str] = []
        a, b = self.sites
        start = Frame(1, 1, 0, "start")
        a.state, a.epoch, a.next_seq, a.standing, a.wal, a.storage, a.durable = "active", 1, 2, 1, [start], [start], 1
        b.state = "standby"
        self.dfs[1].claims[1] = 0
        a.segment = Segment(1, [start])
        self.dfs[1].segments.append(a.segment)

    def rarely(self, share: float) -> bool:
        return self.rng.random() < share

    def pair(self, i: int) -> Value | None:
        """The pair's value, as site `i` reads it now; None: it is out of reach."""
        return self.coord

    def put(self, i: int, **changes: Any) -> None:
        """Site `i` changes the value that it read in the same step."""
        self.coord = replace(self.coord, **changes)

    def step_write(self, i: int) -> Taken:
        s = self.sites[i]
        if s.state != "active" or s.draining or len(s.pending) > 2 or self.writes >= WRITES_MAX:
            return False
        self.writes += 1
        previous = s.next_seq - 1 if self.bug == "forget_previous" else s.standing
        mode = "sync" if s.mode == "sync" else "async"
        frame = Frame(s.epoch, s.next_seq, previous, f"w{self.writes}", mode, s.applied_seq)
        s.next_seq += 1
        s.standing = frame.seq
        s.pending.append(Pending(frame))
        return None

    def step_local_ok(self, i: int) -> Taken:
        s = self.sites[i]
        todo = [p for p in s.pending if not p.local]
        if s.state != "active" or not todo:
            return False
        s.wal.append(todo[0].frame)
        todo[0].local = True
        return None

    def step_local_fail(self, i: int) -> Taken:
        """The sync failed: the frame may or may not be on disk; it and all that chain to it fail; the segment is sealed."""
        s = self.sites[i]
        todo = [p for p in s.pending if not p.local]
        if s.state != "active" or not todo or not self.rarely(0.3):
            return False
        at = s.pending.index(todo[0])
        if self.rarely(0.5):
            s.wal.append(todo[0].frame)
        self.failed |= {p.frame.name for p in s.pending[at:]}
        s.standing = todo[0].frame.previous
        if self.bug == "reuse_seq":
            s.next_seq = todo[0].frame.seq
        del s.pending[at:]
        return None

    # ---- the remote log; how an append that takes its time goes: sent, landed, answered
    def step_tick(self, i: int) -> Taken:
        if i or not (self.calm or self.rarely(0.3)):
            return False
        self.now += 1
        return None

    def step_remote_ok(self, i: int) -> Taken:
        """An append that is answered at once, or the answer of one that landed before."""
        s = self.sites[i]
        if s.state != "active" or s.mode == "async" or self.cut or not s.segment:
            return False
        if s.sent is None:
            if self.step_remote_send(i) is False or s.segment.closed:
                s.sent = None
                return False
            self.step_remote_land(i)
        if s.sent not in s.segment.frames:
            return False
        for p in s.pending:
            p.remote = p.remote or p.frame == s.sent
        s.sent, s.reads_until = None, max(s.reads_until, s.sent_at + LEASE)
        return None

    def step_remote_send(self, i: int) -> Taken:
        s = self.sites[i]
        todo = [p for p in s.pending if not p.remote]
        if s.state != "active" or s.mode == "async" or self.cut or not s.segment or s.sent or not todo:
            return False
        s.sent, s.sent_at = todo[0].frame, self.now
        return None

    def step_remote_land(self, i: int) -> Taken:
        s = self.sites[i]
        if s.sent is None or self.cut or not s.segment or s.segment.closed or s.sent in s.segment.frames:
            return False
        s.segment.frames.append(s.sent)
        return None

    def step_remote_fail(self, i: int) -> Taken:
        """An append whose outcome is unknown: the writer closes the segment and will open another."""
        s = self.sites[i]
        if s.state != "active" or not s.segment or not (s.segment.closed or (not self.calm and self.rarely(0.3))):
            return False
        todo = [p for p in s.pending if not p.remote]
        if todo and not s.segment.closed and self.rarely(0.5):
            s.segment.frames.append(todo[0].frame)
        s.segment = s.sent = None
        return None

    def step_segment_create(self, i: int) -> Taken:
        s = self.sites[i]
        if s.state != "active" or s.mode == "async" or s.segment or s.unchecked or self.cut:
            return False
        for segment in self.dfs[1 - i].segments:
            if segment.epoch == s.epoch:
                segment.closed = True  # lease recovery of its own old segment
        s.unchecked = Segment(s.epoch)
        self.dfs[1 - i].segments.append(s.unchecked)
        return None

    def step_segment_check(self, i: int) -> Taken:
        s = self.sites[i]
        if s.state != "active" or not s.unchecked or self.cut:
            return False
        if max(self.dfs[1 - i].claims) > s.epoch and self.bug != "no_claim_recheck":
            self.halt(i)
            return None
        s.segment, s.unchecked = s.unchecked, None
        for p in s.pending:
            p.remote = p.frame in s.segment.frames  # everything uncommitted is appended again
        return None

    def step_ack(self, i: int) -> Taken:
        s = self.sites[i]
        if s.state != "active" or not s.pending:
            return False
        p = s.pending[0]
        need_remote = s.mode == "sync" and self.bug != "ack_before_remote"
        if not p.local or (need_remote and not p.remote) or (s.mode != "sync" and not s.lease):
            return False
        s.pending.pop(0)
        s.storage.append(p.frame)
        self.acked[p.frame.name] = ("sync" if s.mode == "sync" else "async", s.epoch)
        other = self.sites[1 - i]
        if other.state == "active" and other.epoch > s.epoch and p.frame not in other.storage and not self.may_not_know(i):
            raise Broken(f"{p.frame.name} acknowledged by a fenced epoch {s.epoch}")
        return None

    def may_not_know(self, i: int) -> bool:
        """A later epoch may be open where this active cannot know of it."""
        return False

    def step_renew(self, i: int) -> Taken:
        """The lease of an asynchronous active: a compare-and-set on a value that no plan has."""
        s = self.sites[i]
        if s.state != "active" or s.lease:
            return False
        c = self.pair(i)
        if c is None or c.switching is not None or (c.epoch, c.active) != (s.epoch, i):
            return False
        s.lease = True
        return None

    def step_ship(self, i: int) -> Taken:
        s, t = self.sites[i], self.sites[1 - i]
        if s.state != "active" or self.cut or t.state != "standby" or s.epoch < t.known_epoch:
            return False
        if t.storage and t.storage[-1] not in s.storage:
            self.load_base(s, t)  # by its numbers it follows, but no frame of the log continues from there
            return None
        for frame in chain(s.wal):
            if frame.previous == t.applied_seq and frame in s.storage:
                t.storage.append(frame)
                t.known_epoch = max(t.known_epoch, s.epoch)
                return None
        first = (chain(s.wal) or [None])[0]
        if t.applied_seq < s.applied_seq and (first is None or first.previous > t.applied_seq):
            self.load_base(s, t)  # behind the log
            return None
        return False

    def load_base(self, s: Site, t: Site) -> None:
        t.storage = list(s.storage)
        t.durable, t.known_epoch = len(t.storage), s.epoch

    def step_flush(self, i: int) -> Taken:
        s = self.sites[i]
        if s.state in ("down", "closed") or s.durable == len(s.storage):
            return False
        s.durable += 1
        return None

    def step_trim(self, i: int) -> Taken:
        """The active deletes remote frames that the peer has durably applied, and WAL frames that nobody needs."""
        s, t = self.sites[i], self.sites[1 - i]
        if s.state != "active" or self.cut or t.state != "standby" or t.known_epoch != s.epoch:
            return False  # a position counts only once its holder follows this epoch
        safe = t.applied_seq if self.bug == "trim_early" else t.durable_seq
        for segment in self.dfs[1 - i].segments:
            if segment.frames and segment.frames[0].seq <= safe:
                segment.frames.pop(0)
                return None
        if len(s.wal) > 1 and s.wal[0].seq <= min(safe, s.durable_seq):
            s.wal.pop(0)
            return None
        return False

    def step_cut(self, i: int) -> Taken:
        if i or not self.rarely(0.2):
            return False
        self.cut = not self.cut
        return None

    def step_crash(self, i: int) -> Taken:
        """Unsynced bytes: any prefix of what was on its way may be there."""
        s = self.sites[i]
        if s.state == "down" or not self.rarely(0.15):
            return False
        self.failed |= {p.frame.name for p in s.pending}
        for p in s.pending:
            if not p.local and not self.rarely(0.5):
                break
            s.wal += [] if p.local else [p.frame]
        if s.segment and not s.segment.closed and not self.cut and s.mode != "async":
            for p in [p for p in s.pending if not p.remote]:
                if not self.rarely(0.5):
                    break
                s.segment.frames.append(p.frame)
        s.stop()
        return None

    def halt(self, i: int) -> None:
        """It stops by itself: nothing that was on its way is written any more."""
        self.failed |= {p.frame.name for p in self.sites[i].pending}
        self.sites[i].stop()
