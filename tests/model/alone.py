"""The model's steps where the register is on the two DFSs (two_dfs.py): commands past it, leases by a look, last looks."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.model.pieces import LEASE, Broken, Plan, Value, led
from tests.model.twinlog_model import World
from tests.model.two_dfs import FORCED, NOBODY, STEP, TwoDfs
from tests.model.writing import Taken

TAKE_OVER = ("takeover", "force", "switchover", "anew")


class Alone(World):
    """`told`: how often what was met, so that walks which meet nothing are seen."""

    def __init__(self, rng: random.Random, rule: str = "homes", bug: str = "") -> None:
        super().__init__(rng, bug)
        self.register = TwoDfs(rng, rule, bug)
        self.rule, self.by_command, self.eager = rule, False, 1.0
        self.begun_epochs: dict[int, int] = {1: 0}  # epoch -> number of its plan
        self.acked_in: dict[int, set[str]] = {1: set()}  # by epoch that was opened: what of the acknowledged it has
        self.excluded_in: dict[int, set[str]] = {1: set()}
        self.apart_acks: set[str] = set()  # acknowledged asynchronously while decisions were made apart
        self.last_failover: Plan | None = None  # without an accepted loss; None: another command came after it
        self.last_opened: int | None = None  # the epoch that it opened
        self.told: Counter[str] = Counter()

    def rarely(self, share: float) -> bool:
        return super().rarely(min(0.9, share * self.eager))

    # ---- the register
    def sees(self, i: int) -> list[int]:
        return [i] if self.cut else [0, 1]

    def pair(self, i: int) -> Value | None:
        value = self.register.look(i, self.sees(i))
        if value is None and self.by_command:
            known = self.register.known(i, self.sees(i))
            return known if known.home not in self.sees(i) else None
        return value

    def put(self, i: int, **changes: Any) -> None:
        before = self.register.look(i, self.sees(i))
        if before is not None:
            self.register.decide(i, self.sees(i), before, replace(before, **changes))
            return
        assert self.by_command
        known = self.register.known(i, self.sees(i))
        self.register.force(i, known, replace(known, **changes))
        self.forced += 1
        self.told["forced"] += 1
        self.last_failover = self.last_opened = None

    # ---- commands
    def commanded(self, step: Callable[[int], Taken], i: int) -> Taken:
        self.by_command = self.rule in FORCED
        try:
            return step(i)
        finally:
            self.by_command = False

    def step_takeover(self, i: int) -> Taken:
        """A failover without an accepted loss, also at a site that came back and found no active to follow."""
        s, c = self.sites[i], self.pair(i)
        if s.state not in ("standby", "closed") or s.plan or c is None or c.active in (i, NOBODY):
            return False
        if c.mode != "sync" or not self.rarely(0.3):
            return False
        self.begin(i, "takeover")
        self.last_failover, self.last_opened = s.plan, None
        return None

    def step_force(self, i: int) -> Taken:
        return self.commanded(super().step_force, i)

    def step_downgrade(self, i: int) -> Taken:
        return self.commanded(super().step_downgrade, i)

    def step_downgrade_closed(self, i: int) -> Taken:
        return self.commanded(self.downgrade_closed, i)

    def downgrade_closed(self, i: int) -> Taken:
        s, c = self.sites[i], self.pair(i)
        if s.state != "closed" or c is None or c.active != i or not self.rarely(0.1):
            return False
        if c.switching is not None and (c.switching.site, c.switching.kind) != (i, "restart"):
            return False
        if c.mode == "async" and c.switching is None and c.home in self.sees(i):
            return False  # it says so already
        self.put(i, mode="async", switching=None)
        return None

    def step_anew(self, i: int) -> Taken:
        """The candidates' only way past a register that is out of reach: the pair begins anew here, whatever this site is."""
        s, known = self.sites[i], self.register.known(i, self.sees(i))
        if self.rule in FORCED or s.state not in ("active", "closed", "standby") or s.plan or not self.rarely(0.15):
            return False
        if self.register.look(i, self.sees(i)) is not None and known.active != NOBODY:
            return False
        if s.state == "active":
            self.halt(i)
        self.register.begin_anew(i, known, max([known.given, *self.dfs[i].claims, *(f.epoch for f in s.wal + s.storage)]))
        self.forced += 1
        self.told["anew"] += 1
        self.last_failover = self.last_opened = None
        return self.begin(i, "anew")

    # ---- plans
    def next_epoch(self, i: int, highest: int) -> int:
        c, plan = self.pair(i), self.sites[i].plan
        assert c is not None
        assert plan is not None
        outranks = self.rule not in FORCED and plan.kind != "anew" and self.bug != "anew_outranks"
        blind = self.cut and plan.kind in TAKE_OVER and self.bug != "no_room_left"
        epoch = highest + (STEP * (1 + outranks) if blind else 1)
        home = c.home if c.home in self.sees(i) else i
        return epoch + 1 if epoch % 2 != home and self.bug != "same_epochs" else epoch

    def begin(self, i: int, kind: str, steps: list[str] | None = None) -> Taken:
        taken = super().begin(i, kind, steps)
        s, c = self.sites[i], self.pair(i)
        s.mark = (c if c is not None else self.register.newest[i], not self.cut)
        return taken

    def abandon(self, i: int) -> Taken:
        if self.pair(i) is None:
            self.halt(i)  # it lets the pair go once it reaches the register
        return super().abandon(i)

    def halt(self, i: int) -> None:
        super().halt(i)
        self.register.forget(i)

    def step_crash(self, i: int) -> Taken:
        taken = super().step_crash(i)
        if taken is None:
            self.register.forget(i)
        return taken

    def plan_list(self, i: int) -> Taken:
        taken = super().plan_list(i)
        s = self.sites[i]
        if taken is None and s.begun is not None and s.begun.mode == "async":
            s.fenced_at = self.now  # its lease does not come from appends
        return taken

    def plan_wait(self, i: int) -> Taken:
        lease = self.sites[1 - i].lease
        taken = super().plan_wait(i)
        self.sites[1 - i].lease = lease  # it runs out by itself
        return taken

    def plan_read(self, i: int) -> Taken:
        s, plan = self.sites[i], self.sites[i].plan
        assert plan is not None
        if plan.kind != "anew":
            return super().plan_read(i)
        seen = [frame for at in self.sees(i) for frame in self.dfs[at].frames() if frame.epoch < s.epoch]
        s.tail = led(seen + s.wal, s.applied_seq, s.applied_epoch)[0]
        s.wal += [f for f in s.tail if f not in set(s.wal)]
        s.durable = len(s.storage)
        return None

    def plan_start(self, i: int) -> Taken:
        s, plan = self.sites[i], self.sites[i].plan
        assert plan is not None
        if self.pair(i) is None:
            return False
        taken = super().plan_start(i)
        if taken is None and self.begun_epochs.setdefault(s.epoch, plan.number) != plan.number:
            raise Broken(f"epoch {s.epoch} begins twice")
        return taken

    def plan_open(self, i: int) -> Taken:
        """A last look; what it showed may ask for the old active's lease to be waited out once more (opening.py)."""
        s, t, plan, begun, c = self.sites[i], self.sites[1 - i], self.sites[i].plan, self.sites[i].begun, self.pair(i)
        assert plan is not None
        assert begun is not None
        if c is None:
            return False
        if c.switching != plan:
            return self.stop_plan(i)
        has_stopped = plan.kind == "restart" or s.old_durable is not None
        if s.last_look is None:
            loss_accepted = plan.kind in ("force", "anew")
            if (begun.mode, c.mode, loss_accepted) == ("sync", "async", False) and self.bug != "degrade_is_overrun":
                self.put(i, switching=None)
                self.told["degrade met"] += 1
                return self.stop_plan(i)
            blind = not has_stopped and self.cut and s.mark is not None and s.mark[0] == c
            waits = not has_stopped and not blind and s.mark != (c, True) and self.bug != "no_last_wait"
            s.last_look = (self.now + LEASE if waits else self.now, blind, None if waits else c)
            return False
        until, blind, looked_at = s.last_look
        if self.now < until:
            return False
        if (blind and not self.cut and self.bug != "blind_opens") or looked_at not in (None, c):
            s.last_look = None
            self.told["looked anew"] += 1
            return False
        if not self.cut and not has_stopped and t.state == "active" and t.mode != "sync" and t.lease and t.epoch < s.epoch:
            raise Broken(f"epoch {t.epoch} still serves, in sight, when {s.epoch} opens")
        return super().plan_open(i)

    # ---- time, leases, acknowledgements
    def step_tick(self, i: int) -> Taken:
        taken = super().step_tick(i)
        for s in self.sites:
            s.lease = s.lease and self.now < s.lease_until
        return taken

    def step_renew(self, i: int) -> Taken:
        """A look at the register; where that is out of reach, the highest value met must do."""
        s, t = self.sites[i], self.sites[1 - i]
        if s.state != "active" or s.mode == "sync" or s.lease:
            return False
        c = self.register.look(i, self.sees(i)) if self.bug != "lease_without_a_look" else None
        c = c or self.register.met[i]
        if c.mode != "async" or c.switching is not None or (c.epoch, c.active) != (s.epoch, i):
            return False
        if not self.cut and t.state == "active" and t.epoch > s.epoch:
            raise Broken(f"epoch {s.epoch} goes on in sight of {t.epoch}")
        s.lease, s.lease_until = True, self.now + LEASE
        return None

    def may_not_know(self, i: int) -> bool:
        return self.sites[i].mode != "sync"

    def step_ack(self, i: int) -> Taken:
        s = self.sites[i]
        name = s.pending[0].frame.name if s.pending else ""
        taken = super().step_ack(i)
        if taken is None:
            self.acked_in[s.epoch].add(name)
            if s.mode != "sync" and (self.register.apart or s.epoch < max(value.epoch for value in self.register.newest)):
                self.apart_acks.add(name)
        return taken
