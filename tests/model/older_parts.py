"""A model of parts that come back older: the WAL or the storage of a site, or both, put back as they were at an earlier moment.

One part of one site goes back in a walk, once, while the pair is synchronous; its process is gone then. The rules of a log,
each with the ones before it:
- "today": a restart and a rejoin demand whole logs;
- "joined": what stands in front of a hole is in no log that is written, copied or replayed: the storages have it;
- "aside": what a remote log holds and the history of the active has cut goes into a quarantine before it is deleted. Nobody
  else may have it: an active that was degraded while it was closed, with an older disk, opened without it.
A hole is where one log was trimmed and the other one went back. The trimmer keeps the newest frame of a synchronous remote log:
else nothing would show that a log or a storage reaches less far than it did.

What is promised is what twinlog_model.py promises; and no log has a hole in the end. A site that cannot open, for its own copy
lacks what only the other one has, gives way to that. `python -m tests.model.older_parts [walks] [rule] [bug] [first seed]`.
"""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

from tests.model.pieces import Broken, Frame, Site, kept, led
from tests.model.twinlog_model import HEALING, World
from tests.model.walks import main, walked
from tests.model.writing import Taken

RULES = ("today", "joined", "aside")
PARTS = ("wal", "storage", "disk")
OFTEN = ("ack", "local_ok", "remote_ok", "ship", "flush", "trim", "boot", "decide", "plan", "write", "set_aside")
Copy = tuple[tuple[Frame, ...], tuple[Frame, ...]]


def joined(frames: list[Frame], end: Frame | None) -> list[Frame]:
    """Returns what stands and leads to `end`, as far back as no link is missing."""
    log = kept(frames)
    if not log or log[-1] != end:
        return []
    first = len(log) - 1
    while first and log[first].previous == log[first - 1].seq:
        first -= 1
    return log[first:]


class Older(World):
    def __init__(self, rng: random.Random, rule: str = "aside", bug: str = "") -> None:
        super().__init__(rng, bug)
        self.level = RULES.index(rule)
        self.joins = self.level > 0
        self.copies: list[list[Copy]] = [[], []]
        self.went_back = ""
        self.stuck: set[int] = set()  # sites that stopped at a gap: the operator lets the other one take over
        self.told: Counter[str] = Counter()
        self.alone = False  # a site was degraded while it was closed, after a part went back: it does not read the remote log

    def take(self, name: str, i: int) -> None:
        for s, moments in zip(self.sites, self.copies, strict=True):
            moments.append((tuple(s.wal), tuple(s.storage[: s.durable])))
        super().take(name, i)

    def step_back(self, i: int) -> Taken:
        s = self.sites[i]
        sound = self.coord.mode == "sync" and self.coord.switching is None
        if self.went_back or self.calm or not sound or not self.rarely(0.5) or self.writes < 4:
            return False
        part = self.went_back = self.rng.choice(PARTS)
        self.halt(i)
        wal, storage = self.rng.choice(self.copies[i][-200:])
        if part in ("wal", "disk"):
            s.wal = list(wal)
        if part in ("storage", "disk"):
            s.storage, s.durable = list(storage), len(storage)
        self.told[f"{part} went back"] += 1
        return None

    def step_trim(self, i: int) -> Taken:
        s, d = self.sites[i], self.dfs[1 - i]
        before = d.frames()
        taken = super().step_trim(i)
        if s.mode == "sync" and len(before) == 1 and not d.frames():
            s.segment.frames.extend(before) if s.segment else d.segments[-1].frames.extend(before)
            return False
        self.keep(i, [frame for frame in before if frame not in d.frames()])
        return taken

    def step_set_aside(self, i: int) -> Taken:
        """The active looks at what older epochs left in its remote log, before it trims that."""
        s, t = self.sites[i], self.sites[1 - i]
        if s.state != "active" or self.cut or t.state != "standby" or t.known_epoch != s.epoch:
            return False
        return None if self.keep(i, self.dfs[1 - i].frames()) else False

    def keep(self, i: int, frames: list[Frame]) -> bool:
        """Puts into quarantine at site `i` what its history has cut of these frames of older epochs; False: nothing new."""
        s = self.sites[i]
        left_out = {frame.name for frame in frames if frame.epoch < s.epoch and is_cut(s, frame)} - s.quarantine - {"start"}
        if self.level < RULES.index("aside") or not left_out:
            return False
        self.told["set aside"] += len(left_out & self.acked.keys() - {frame.name for frame in s.storage})
        s.quarantine |= left_out
        return True

    def step_ship(self, i: int) -> Taken:
        s, t = self.sites[i], self.sites[1 - i]
        follows = s.state == "active" and t.state == "standby" and not self.cut and s.epoch >= t.known_epoch
        if self.went_back and follows and t.storage and t.storage[-1] not in s.storage:
            self.halt(1 - i)  # it holds more than the active: it rejoins
            t.state = "closed"
            return None
        return super().step_ship(i)

    def run(self, steps: int = 700) -> None:
        names = [name.removeprefix("step_") for name in dir(self) if name.startswith("step_")]
        weights = [self.rng.choice((0.2, 1, 1, 4)) * (4 if name in OFTEN else 1) for name in names]
        for name in self.rng.choices(names, weights, k=steps):
            self.take(name, self.rng.randrange(2))
        self.heal()

    def step_downgrade_closed(self, i: int) -> Taken:
        """A site whose storage and log are known to lack something is refused. What only the remote log has is not known."""
        s, t = self.sites[i], self.sites[1 - i]
        end = max(((f.epoch, f.seq) for f in s.wal), default=(0, 0))
        older = end < (s.applied_epoch, s.applied_seq) or not led(s.wal, s.applied_seq, s.applied_epoch)[1]
        told = not self.cut and t.state == "standby" and t.applied_seq > max(end[1], s.applied_seq)
        if self.went_back and (older or told or self.coord.epoch not in {f.epoch for f in s.wal + s.storage}):
            return False
        taken = super().step_downgrade_closed(i)
        self.alone = self.alone or (taken is None and self.went_back != "")
        return taken

    # ---- the plan
    def plan_read(self, i: int) -> Taken:
        s, plan, begun = self.sites[i], self.sites[i].plan, self.sites[i].begun
        assert plan is not None
        assert begun is not None
        if self.needs_arbiter(i) and self.unreachable(i):
            return False
        remote = [f for f in self.dfs[self.arbiter(i)].frames() if f.epoch < s.epoch] if self.needs_arbiter(i) else []
        older = max(((f.epoch, f.seq) for f in s.wal), default=(0, 0)) < (s.applied_epoch, s.applied_seq)
        frames = remote + (s.wal if plan.kind == "restart" else [])
        gap = plan.kind != "force" and not led(frames, s.applied_seq, s.applied_epoch)[1]
        if self.went_back and plan.kind == "restart" and (gap or (older and begun.mode == "async")):
            self.stuck.add(i)
            self.told["stuck"] += 1
            return self.stop_plan(i)
        if self.went_back and gap:
            self.stuck.add(i)
            return self.stop_plan(i)
        local = list(s.wal)
        taken = super().plan_read(i)
        if taken is None and self.joins and plan.kind != "force":
            if plan.kind == "restart":
                log = joined(remote + local, s.end)
                first = next((at for at, frame in enumerate(log) if frame in local), 0)
                s.wal = log[first:] if joined(s.wal, s.end) != kept(s.wal) or not s.wal else s.wal
            elif joined(s.wal, s.end) != kept(s.wal):
                s.wal = joined(s.wal, s.end)
        return taken

    def plan_apply(self, i: int) -> Taken:
        s, before = self.sites[i], self.dfs[i].frames()
        taken = super().plan_apply(i)
        if taken is None and s.state == "active":
            self.keep(i, [frame for frame in before if frame not in self.dfs[i].frames()])
        return taken

    def plan_copy(self, i: int) -> Taken:
        s, d = self.sites[i], self.dfs[self.arbiter(i)]
        if not self.joins:
            return super().plan_copy(i)
        wal, before = s.wal, d.frames()
        s.wal = []
        taken = super().plan_copy(i)
        s.wal = wal
        if taken is None and s.segment is not None:
            s.segment.frames += [f for f in joined(wal + before, s.end) if f not in before]
        return taken

    def rejoin(self, i: int) -> Taken:
        s = self.sites[i]
        wal = list(s.wal)
        if self.joins:
            log = kept(s.wal)
            s.wal = joined(s.wal, log[-1]) if log else []
        applied = list(s.storage)
        taken = super().rejoin(i)
        if taken is False:
            s.wal = wal
        elif self.went_back:  # what is in this storage only is not dropped: the site stays closed, and says so
            s.quarantine |= {frame.name for frame in applied if frame not in wal and frame not in self.sites[1 - i].storage}
        return taken

    # ---- the promises
    def check_opened(self, i: int, names: list[str], forced: bool) -> None:
        if (forced and self.went_back) or self.alone:  # the command says so; it must be in a quarantine in the end
            self.given_up |= self.acked.keys() - set(names)
            self.continued &= set(names)
        super().check_opened(i, names, forced)

    def check_healed(self) -> None:
        super().check_healed()
        for s in self.sites:
            check_whole(s)

    def heal(self) -> None:
        """The operator: a site that stopped at a gap is given up by a takeover."""
        self.cut, self.calm = False, True
        for _ in range(60):
            for i in (0, 1):
                for name in (*HEALING, "set_aside"):
                    self.take(name, i)
            for i in sorted(self.stuck):
                self.give_way(i)
        super().heal()

    def give_way(self, i: int) -> None:
        """`twinlog failover --to` the other site: a takeover, or, if that is the active, its restart."""
        j, c = 1 - i, self.coord
        if self.sites[j].state in ("closed", "standby") and self.sites[j].plan is None:
            self.stuck.clear()
            self.forced += c.mode != "sync" and c.active != j
            self.begin(j, "restart" if c.active == j else "takeover" if c.mode == "sync" else "force")


def is_cut(s: Site, frame: Frame) -> bool:
    """True when the history of the active does not contain it. Within its epoch its own writer decided what it cut."""
    starts = [each for each in s.storage if each.name == "start"]
    ends = {epoch.epoch: after.previous for epoch, after in pairwise(starts)}
    return frame.epoch not in ends or frame.seq > ends[frame.epoch]


def check_whole(s: Site) -> None:
    """Raises Broken when the log has a hole."""
    log = kept(s.wal)
    for before, frame in pairwise(log):
        if frame.previous != before.seq:
            raise Broken(f"a hole in a log: {frame} after {before}")


def walk(seed: int, rule: str = "aside", bug: str = "") -> Older:
    """One walk. Raises Broken."""
    return walked(Older(random.Random(seed), rule, bug), seed, rule, bug)


if __name__ == "__main__":
    main(walk, "aside")
