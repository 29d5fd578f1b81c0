"""The model's changes of mode: degrade, resync, and an active that notices that its time is over."""

from __future__ import annotations

from tests.model.pieces import kept, led
from tests.model.writing import Taken, Writing


class Modes(Writing):
    def step_downgrade(self, i: int) -> Taken:
        s = self.sites[i]
        if s.state != "active" or s.mode == "async" or not self.rarely(0.2):
            return False
        if self.bug != "downgrade_unrecorded" and not self.record_async(i):
            return False
        if s.mode == "sync" and self.bug != "no_async_note":
            s.async_epoch = s.epoch
        s.mode, s.segment, s.unchecked, s.sent = "async", None, None, None
        return None

    def record_async(self, i: int) -> bool:
        c = self.pair(i)
        if c is None or c.active != i or c.switching is not None or c.epoch != self.sites[i].epoch:
            return False
        self.put(i, mode="async")
        return True

    def step_downgrade_closed(self, i: int) -> Taken:
        """The active that cannot open without the other site's DFS: recorded, unless another plan has the pair."""
        s, c = self.sites[i], self.pair(i)
        if s.state != "closed" or c is None or c.mode == "async" or not self.rarely(0.1):
            return False
        if self.bug == "downgrade_closed_unasked":
            if not s.wal or s.wal[-1].epoch < s.known_epoch or s.known_epoch == 0:
                return False
            s.state, s.mode, s.lease, s.epoch = "active", "async", True, s.known_epoch
            s.storage += led(s.wal, s.applied_seq, s.applied_epoch)[0]
            s.standing, s.next_seq = s.applied_seq, max(f.seq for f in s.wal + s.storage) + 1
            return None
        if c.active != i or (c.switching is not None and (c.switching.site, c.switching.kind) != (i, "restart")):
            return False
        self.put(i, mode="async", switching=None)
        return None

    def step_notice(self, i: int) -> Taken:
        """An active whose lease ran out, or that meets a later epoch, stops by itself, sooner or later."""
        s = self.sites[i]
        c = self.pair(i) if s.state == "active" else None
        if c is None or c.epoch <= s.epoch or not self.rarely(0.3):
            return False
        self.halt(i)
        return None

    def step_resync(self, i: int) -> Taken:
        """Sync again only once the peer holds all that came before."""
        s, t, c = self.sites[i], self.sites[1 - i], self.pair(i)
        if s.state != "active" or self.cut or c is None or c.switching is not None or c.epoch != s.epoch or s.mode == "sync":
            return False
        d = self.dfs[1 - i]
        if s.mode == "async":  # needs the peer's DFS only: its gateway may be down
            if max(d.claims, default=0) > s.epoch:
                return False
            d.claims.setdefault(s.epoch, i)
            s.mode, s.catch_target = "catching", s.next_seq - 1
            for p in s.pending:
                p.remote = False
            return None
        if s.segment is None or t.state != "standby":
            return False
        target = min(s.catch_target, s.standing)
        held = t.known_epoch == s.epoch and t.durable_seq >= target
        whole = all(f in s.segment.frames or t.durable_seq >= f.seq for f in kept(s.storage))
        if not (held and whole) and self.bug != "sync_before_caught_up":
            return False
        s.mode = "sync"
        self.put(i, mode="sync")
        s.async_epoch = 0
        return None
