"""The model's changes of role: restart, takeover, forced takeover, switchover, rejoin."""

from __future__ import annotations

from itertools import pairwise

from tests.model.modes import Modes
from tests.model.pieces import LEASE, Broken, Frame, Plan, Segment, Site, chain, led
from tests.model.writing import Taken

ACTIVATION = ["claim", "list", "wait", "read", "copy", "start", "open", "apply"]
EARLY = ["drain", "catch", "down"]
LETS_GO = "lets_go"  # no mistake: a site lets its own plan go at any step: its journal is lost, or its log lacks what it needs


class Changes(Modes):
    # ---- who may begin what
    def step_boot(self, i: int) -> Taken:
        """A restarted gateway is closed until coordinator and claims tell it what it is."""
        s = self.sites[i]
        if s.state != "down" or not self.rarely(0.6):
            return False
        s.state = "closed"
        return None

    def step_decide(self, i: int) -> Taken:
        s = self.sites[i]
        c = self.pair(i) if s.state == "closed" else None
        if c is None:
            return False
        running = c.switching
        if running is not None and running.site == i:
            if self.bug == LETS_GO and self.rarely(0.3):
                s.stopped_half_way = False
                self.put(i, switching=None)
                return None
            if (running.kind == "switchover" and not s.stopped_half_way) or (running.kind == "takeover" and c.mode == "async"):
                self.put(i, switching=None)  # given up: nothing irreversible was done, or the old active was degraded unseen
                return None
            return self.resume(i) if running.kind == "switchover" else self.begin(i, running.kind)
        if c.active != i:
            if running is None and s.stopped_half_way and not self.calm and self.rarely(0.5):
                return self.resume(i)
            return self.rejoin(i) if running is None else False
        if running is not None and (self.calm or not self.rarely(0.1)):  # else: the operator lets it go on by a failover to it
            return False
        return self.begin(i, "restart")

    def resume(self, i: int) -> Taken:
        """A switchover past its point of no return, taken up again: who was drained may have gone on since."""
        return self.begin(i, "switchover", ["down", *ACTIVATION])

    def step_takeover(self, i: int) -> Taken:
        """Failover command at a standby. Its compare-and-set at the coordinator is the first step."""
        s, c = self.sites[i], self.pair(i)
        if s.state != "standby" or s.plan or c is None or c.active == i or c.mode != "sync" or not self.rarely(0.3):
            return False  # in an asynchronous mode it would lose acknowledged writes: refused without force
        return self.begin(i, "takeover")

    def step_force(self, i: int) -> Taken:
        """The same from an asynchronous active, with the loss accepted; also at a site that never rejoined."""
        s, c = self.sites[i], self.pair(i)
        if s.state not in ("standby", "closed") or s.plan or c is None:
            return False
        if c.active == i or c.mode != "async" or not self.rarely(0.15):
            return False
        self.forced += 1
        return self.begin(i, "force")

    def step_switchover(self, i: int) -> Taken:
        s, c = self.sites[i], self.pair(i)
        if s.state != "standby" or s.plan or c is None or c.active == i or c.switching or self.cut or not self.rarely(0.3):
            return False
        if self.sites[1 - i].state != "active":
            return False
        return self.begin(i, "switchover", EARLY + ACTIVATION)

    def begin(self, i: int, kind: str, steps: list[str] | None = None) -> Taken:
        s, c = self.sites[i], self.pair(i)
        assert c is not None
        self.plans += 1
        s.give_up_plan()
        s.begun, s.plan, s.steps = c, Plan(i, self.plans, kind), list(steps or ACTIVATION)
        if self.rarely(0.5):  # what is closed may be read while the leases run out
            at = s.steps.index("wait")
            s.steps[at : at + 2] = ["read", "wait"]
        claims = [] if kind == "restart" and c.mode == "async" else list(self.dfs[self.arbiter(i)].claims)
        s.epoch = self.next_epoch(i, max([c.given, *claims]))
        self.put(i, given=s.epoch, switching=c.switching if self.bug == "blind_restart" and kind == "restart" else s.plan)
        if s.steps[0] != "drain":
            s.state = "plan"
        return None

    def next_epoch(self, i: int, highest: int) -> int:
        return highest + 1

    def arbiter(self, i: int) -> int:
        """The DFS that holds the remote log in question: one's own for a takeover, the peer's for a restart."""
        plan = self.sites[i].plan
        return 1 - i if plan is not None and plan.kind == "restart" else i

    def needs_arbiter(self, i: int) -> bool:
        begun = self.sites[i].begun
        assert begun is not None
        return self.arbiter(i) == i or begun.mode == "sync"

    def lost_the_pair(self, i: int) -> bool:
        c = self.pair(i)
        return c is not None and c.switching != self.sites[i].plan and self.bug != "blind_restart"

    # ---- the steps of a plan
    def step_plan(self, i: int) -> Taken:
        s = self.sites[i]
        if s.plan is None:
            return False
        taken: Taken = getattr(self, f"plan_{s.steps[0]}")(i)
        if taken is None and s.steps:
            s.steps.pop(0)
        return False if taken is False else None

    def plan_drain(self, i: int) -> Taken:
        s, t = self.sites[i], self.sites[1 - i]
        if self.lost_the_pair(i) or t.state != "active" or self.rarely(0.05):
            return self.abandon(i)
        if self.cut:
            return False
        t.draining = True
        if t.pending:
            return False
        s.drained_seq = t.standing
        return None

    def plan_catch(self, i: int) -> Taken:
        s = self.sites[i]
        if self.lost_the_pair(i) or self.rarely(0.05):
            return self.abandon(i)
        if s.drained_seq is None or s.applied_seq < s.drained_seq:
            return self.abandon(i) if self.sites[1 - i].state != "active" else False  # nobody ships the rest
        s.durable = len(s.storage)
        s.caught_up = True
        return None

    def abandon(self, i: int) -> Taken:
        """The pair is let go; the old active admits writes again by itself when it sees that."""
        s, c = self.sites[i], self.pair(i)
        if c is not None and c.switching == s.plan:
            self.put(i, switching=None)
        s.give_up_plan()
        if s.state == "plan":
            self.halt(i)
        return True

    def step_undrain(self, i: int) -> Taken:
        s, c = self.sites[i], self.pair(i)
        if s.state != "active" or not s.draining or c is None:
            return False
        if c.switching is not None or (c.active, c.epoch) != (i, s.epoch):
            return False
        s.draining = False
        return None

    def plan_down(self, i: int) -> Taken:
        """The old active stops for good, and says what its storage holds durably; or nobody knows whether it did."""
        s, t, begun = self.sites[i], self.sites[1 - i], self.sites[i].begun
        assert begun is not None
        if self.lost_the_pair(i):
            return self.abandon(i)
        s.state, s.stopped_half_way = "plan", True
        if self.cut or t.state == "down":
            if begun.mode == "async" and not s.caught_up:
                return self.abandon(i)
            return None
        if t.state == "active":
            t.draining = True
            if t.pending and (t.mode == "sync" or t.lease):
                return False  # without a lease nobody is told any more what became of them
            t.durable = len(t.storage)
            self.halt(1 - i)
            t.state = "closed"
        elif t.state != "closed":
            return False
        s.old_durable = len(t.storage) and t.storage[-1].seq
        t.durable = len(t.storage)
        return None

    def plan_claim(self, i: int) -> Taken:
        s, d = self.sites[i], self.dfs[self.arbiter(i)]
        if self.lost_the_pair(i):
            return self.stop_plan(i)
        if not self.needs_arbiter(i):
            return None
        if self.unreachable(i):
            return False
        if max(d.claims, default=0) >= s.epoch:
            return self.stop_plan(i)
        d.claims[s.epoch] = i
        return None

    def stop_plan(self, i: int) -> Taken:
        self.halt(i)
        return True

    def unreachable(self, i: int) -> bool:
        return self.arbiter(i) != i and self.cut

    def fenced(self, i: int) -> bool:
        return self.needs_arbiter(i) and max(self.dfs[self.arbiter(i)].claims, default=0) > self.sites[i].epoch

    def plan_list(self, i: int) -> Taken:
        if not self.needs_arbiter(i):
            return None
        if self.unreachable(i):
            return False
        if self.fenced(i):
            return self.stop_plan(i)
        s = self.sites[i]
        older = [segment for segment in self.dfs[self.arbiter(i)].segments if segment.epoch < s.epoch]
        if s.looked_at is None:
            s.looked_at, s.looked = self.now, [(segment, len(segment.frames)) for segment in older]
            return False
        for segment in older if self.bug != "no_fence" else []:
            if not segment.closed:
                segment.closed = True  # one lease at a time
                return False
        grown = [segment for segment in older if not any(segment is at and len(at.frames) == size for at, size in s.looked)]
        s.fenced_at = self.now if grown and self.bug != "growth_unseen" else s.looked_at
        return None

    def plan_wait(self, i: int) -> Taken:
        """The old active's leases run out: the one at the coordinator is not renewed while this plan has the pair, the one for
        reads comes from appends, of which none was started after the log was last seen to grow that ever succeeds."""
        s = self.sites[i]
        if self.lost_the_pair(i):
            return self.stop_plan(i)
        if self.arbiter(i) != i or self.bug == "no_lease_wait":
            return None
        if s.fenced_at is not None and self.now < s.fenced_at + LEASE:
            return False
        self.sites[1 - i].lease = False
        return None

    def plan_read(self, i: int) -> Taken:
        s, plan = self.sites[i], self.sites[i].plan
        assert plan is not None
        if self.needs_arbiter(i) and self.unreachable(i):
            return False
        remote = self.dfs[self.arbiter(i)].frames() if self.needs_arbiter(i) else []
        if plan.kind != "restart" and self.bug != "attempt_stays":
            self.withdraw_attempts(s, remote)
        frames = [f for f in remote if f.epoch < s.epoch] + (s.wal if plan.kind == "restart" else [])
        tail, whole = led(frames, s.applied_seq, s.applied_epoch)
        if not whole and plan.kind != "force":
            raise Broken(f"gap: site {i} holds {s.storage[-1:]}, and the log leads on to {tail[-1:]} only of {sorted(frames)}")
        if not tail and plan.kind == "force":
            tail, _ = led(s.wal, s.applied_seq, s.applied_epoch)
        s.tail = tail
        if plan.kind == "switchover" and s.old_durable is not None and (s.end.seq if s.end else 0) < s.old_durable:
            return self.abandon(i)  # it holds more than arrived here: an asynchronous active that went on
        s.wal += [f for f in tail if f not in set(s.wal)]
        if self.bug != "no_flush_before_open":
            s.durable = len(s.storage)
        if self.bug == "apply_before_open":
            s.storage += tail
            s.durable, s.tail = len(s.storage), []
        return None

    def withdraw_attempts(self, s: Site, remote: list[Frame]) -> None:
        """The start of an epoch that this site never opened follows less than the old active may have gone on from."""
        while s.wal and (last := max(s.wal)).name == "start" and last.epoch > s.applied_epoch and last not in remote:
            s.wal.remove(last)

    def plan_copy(self, i: int) -> Taken:
        """A restart in synchronous mode: what only the WAL has goes into the new remote segment first."""
        s, d = self.sites[i], self.dfs[self.arbiter(i)]
        if self.arbiter(i) == i or not self.needs_arbiter(i):
            return None
        if self.cut:
            return False
        s.segment = Segment(s.epoch)
        d.segments.append(s.segment)
        if self.fenced(i):
            return self.stop_plan(i)
        s.segment.frames += [f for f in chain(s.wal) if f not in d.frames()]
        return None

    def plan_start(self, i: int) -> Taken:
        """The start of the epoch goes into both logs: from then on the end that it names is the truth, if it opens."""
        s, plan, begun = self.sites[i], self.sites[i].plan, self.sites[i].begun
        assert plan is not None
        assert begun is not None
        if self.unreachable(i) and self.needs_arbiter(i):
            return False
        if self.fenced(i) or self.lost_the_pair(i):
            return self.stop_plan(i)
        s.mode = begun.mode if plan.kind == "restart" else "async"
        last = s.end.seq if s.end else 0
        if plan.kind == "switchover" and self.may_open_sync(s, last):
            if self.cut:
                return False
            if max(self.dfs[1 - i].claims, default=0) > s.epoch:
                return self.stop_plan(i)
            self.dfs[1 - i].claims[s.epoch] = i
            s.mode, s.segment = "sync", Segment(s.epoch)
            self.dfs[1 - i].segments.append(s.segment)
        high = max([f.seq for f in s.wal + s.storage + self.dfs[self.arbiter(i)].frames()] + [last])
        s.start = Frame(s.epoch, high + 1, last, "start", s.mode, last)
        if s.segment:
            if s.segment.closed:
                return self.stop_plan(i)
            s.segment.frames.append(s.start)
        s.wal.append(s.start)
        return None

    def plan_open(self, i: int) -> Taken:
        """The compare-and-set that has the last word."""
        s, plan = self.sites[i], self.sites[i].plan
        assert plan is not None
        if self.lost_the_pair(i):
            return self.stop_plan(i)
        self.check_opened(i, [f.name for f in s.storage + s.tail], forced=plan.kind == "force")
        self.put(i, epoch=s.epoch, active=i, mode=s.mode, switching=None)
        s.stopped_half_way, s.known_epoch = False, s.epoch
        return None

    def plan_apply(self, i: int) -> Taken:
        s, plan = self.sites[i], self.sites[i].plan
        assert plan is not None
        assert s.start is not None
        s.storage += [*s.tail, s.start]
        if self.bug != "no_flush_at_takeover":
            s.durable = len(s.storage)
        s.next_seq, s.standing = s.start.seq + 1, s.start.seq
        s.state, s.lease = "active", False
        s.segment = s.segment if s.mode == "sync" else None
        if plan.kind != "restart":  # all of the old remote log that counts is durable here now
            self.dfs[i].segments = [segment for segment in self.dfs[i].segments if segment.epoch >= s.epoch]
            if self.bug == "no_flush_at_takeover":
                s.wal = [s.start]  # and the WAL was not needed, so it seemed
        s.give_up_plan()
        return None

    def may_open_sync(self, s: Site, last: int) -> bool:
        return s.old_durable is not None and s.old_durable >= last

    def check_opened(self, i: int, names: list[str], forced: bool) -> None:
        raise NotImplementedError

    # ---- as a follower
    def rejoin(self, i: int) -> Taken:
        """The old active, or a restarted standby, learns the active's history and cuts what diverges."""
        s, t = self.sites[i], self.sites[1 - i]
        if self.cut or t.state != "active" or t.epoch < s.known_epoch:
            return False
        starts = [f for f in t.storage if f.name == "start"]
        ends = {epoch.epoch: after.previous for epoch, after in pairwise(starts)}

        def shared(frame: Frame) -> bool:
            return frame.epoch in ends | {t.epoch: 0} and frame.seq <= ends.get(frame.epoch, frame.seq)

        own = chain(s.wal)
        opened = {f.epoch for f in starts} if self.bug != "unopened_attests" else {f.epoch for f in s.wal}
        known = [f.committed for f in s.wal if f.epoch in opened] + [f.seq for f in own if ends.get(f.epoch) == f.seq]
        attested = max(known, default=0)
        for frame in led(own, s.applied_seq, s.applied_epoch)[0]:
            if (frame.seq > attested and self.bug != "replay_unattested") or not shared(frame):
                break
            s.storage.append(frame)
        diverging = [f for f in own if not shared(f)]
        if any(f.mode == "async" or f.epoch == s.async_epoch for f in diverging) and self.bug != "drop_quarantine":
            s.quarantine |= {f.name for f in diverging}
        if s.storage and s.applied_epoch not in {f.epoch for f in starts}:
            s.storage = []  # base data will come: a forced takeover gave that epoch up
        while s.storage and not shared(s.storage[-1]):
            s.storage.pop()  # in the product: the rows are fetched again
        s.durable = len(s.storage)
        s.wal = []
        s.state, s.epoch, s.known_epoch, s.stopped_half_way = "standby", 0, t.epoch, False
        return None
