"""A model of a DFS that goes back: once in a walk its files are restored from an older copy, and no writer reaches them.

The rules that are compared; each includes the ones before it:
- "today": nobody looks whether the DFS still holds what was written there;
- "looks": before a writer makes a segment, it looks for the earlier ones of its epoch, and for what was durable in them. If
  some of it is gone, the epoch ends, and a restart copies there what is missing;
- "lapsed": once the lease of a synchronous active has run out, the next append that succeeds counts only with a look at the
  register behind it, which must name this epoch and no plan of the other site: the DFS may have forgotten the claim that
  fenced this writer.

What the operator owes: no takeover by the site of that DFS, also none by force, before the active, in sync, has looked there or
has begun a new epoch.
What is promised is what twinlog_model.py promises. `python -m tests.model.dfs.went_back [walks] [rule] [bug] [first seed]`.
"""

from __future__ import annotations

import random
from collections import Counter

from tests.model.pieces import LEASE, Broken, Frame, Segment
from tests.model.twinlog_model import HEALING, World
from tests.model.walks import leaning, main, walked
from tests.model.writing import Taken

RULES = ("today", "looks", "lapsed")
OFTEN = (
    "plan", "decide", "boot", "ack", "local_ok", "remote_ok", "remote_fail", "segment_create", "segment_check", "answer",
    "look",
)
EAGER = {"crash": 0.4, "takeover": 3.0, "cut": 0.5, "notice": 0.3}
HAS_READ = ("copy", "start", "open", "apply")  # the steps of a plan that needs the old remote log no more
Copy = tuple[dict[int, int], list[tuple[Segment, tuple[Frame, ...], bool]]]


class Back(World):
    """`names`: of each segment, also of the file that a copy has in its place. `made`, `durable`: what the writer of each site
    has made in its epoch, and knows to be durable there."""

    def __init__(self, rng: random.Random, rule: str = "lapsed", bug: str = "") -> None:
        super().__init__(rng, bug)
        self.level = RULES.index(rule)
        self.names: list[tuple[Segment, int]] = []
        self.moments: list[list[Copy]] = [[], []]
        self.made: list[set[int]] = [set(), set()]
        self.durable: list[set[Frame]] = [set(), set()]
        self.unproved: list[int | None] = [None, None]  # an append behind a gap would let its site serve until then
        self.unanswered: list[list[Frame]] = [[], []]
        self.went_back = False
        self.hollow = [False, False]
        self.eager = 1.0
        self.told: Counter[str] = Counter()

    def rarely(self, share: float) -> bool:
        return super().rarely(min(0.9, share * self.eager))

    # ---- the DFS
    def take(self, name: str, i: int) -> None:
        super().take(name, i)
        for at, (s, made, durable) in enumerate(zip(self.sites, self.made, self.durable, strict=True)):
            if s.state != "active":
                self.unproved[at] = None
                self.unanswered[at].clear()
            if s.state not in ("active", "plan") or s.mode == "async":
                made.clear()
                durable.clear()
                continue
            made |= {self.name(segment) for segment in (s.segment, s.unchecked) if segment is not None}
            durable |= {p.frame for p in s.pending if p.remote}
            durable |= set(s.segment.frames) if s.state == "plan" and s.segment else set()
        for d, moments in zip(self.dfs, self.moments, strict=True):
            moments.append((dict(d.claims), [(segment, tuple(segment.frames), segment.closed) for segment in d.segments]))
            del moments[:-200]

    def name(self, segment: Segment) -> int:
        """A number that is given once."""
        known = next((number for each, number in self.names if each is segment), None)
        if known is None:
            known = len(self.names)
            self.names.append((segment, known))
        return known

    def step_dfs_back(self, j: int) -> Taken:
        """The DFS of site `j` is restored. Its own plan, if it has one, has read what it needs."""
        own, running = self.sites[j], self.coord.switching
        reads = running is not None and running.site == j and (own.plan != running or own.steps[0] not in HAS_READ)
        if self.went_back or self.calm or reads or self.writes < 3 or not self.rarely(0.5):
            return False
        self.restore(j, self.rng.choice(self.moments[j][-150:]))
        return None

    def restore(self, j: int, copy: Copy) -> None:
        own, d, writer = self.sites[j], self.dfs[j], self.sites[1 - j]
        claims, segments = copy
        for segment in (*d.segments, *(each for each in (writer.segment, writer.unchecked) if each)):
            segment.closed = True  # its writer appends to a file that is not there any more
        d.claims, d.segments = dict(claims), []
        for old, frames, closed in segments:
            d.segments.append(Segment(old.epoch, list(frames), closed))
            self.names.append((d.segments[-1], self.name(old)))
        self.went_back = True
        self.hollow[j] = self.coord.active != j or self.coord.switching is not None
        self.told["of a later epoch" if own.state == "active" and writer.state == "active" else "went back"] += 1

    def step_trim(self, i: int) -> Taken:
        before = set(self.dfs[1 - i].frames())
        taken = super().step_trim(i)
        self.durable[i] -= before - set(self.dfs[1 - i].frames())
        return taken

    # ---- the writer looks
    def lacks(self, i: int) -> bool:
        """The other site's DFS lacks what the writer of site `i` made there in its epoch."""
        d = self.dfs[1 - i]
        return not self.made[i] <= {self.name(segment) for segment in d.segments} or not self.durable[i] <= set(d.frames())

    def step_segment_create(self, i: int) -> Taken:
        s = self.sites[i]
        if s.state == "active" and s.mode != "async" and not (s.segment or s.unchecked or self.cut):
            if max(self.dfs[1 - i].claims, default=0) > s.epoch:
                self.halt(i)
                return None
            if s.epoch not in self.dfs[1 - i].claims:
                return False  # until a degrade and a resync
            if self.level and self.lacks(i):
                self.told["missed a segment"] += 1
                self.halt(i)
                return None
        taken = super().step_segment_create(i)
        if taken is None and s.mode == "sync":
            self.hollow[1 - i] = False
        return taken

    def step_segment_check(self, i: int) -> Taken:
        s = self.sites[i]
        if s.unchecked and not self.cut and s.epoch not in self.dfs[1 - i].claims:
            return False
        return super().step_segment_check(i)

    def step_resync(self, i: int) -> Taken:
        taken = super().step_resync(i)
        if taken is None and self.sites[i].mode == "sync":
            self.hollow[1 - i] = False
        return taken

    # ---- the lease of a synchronous active, which acknowledges only as long as it has one
    def step_noop(self, i: int) -> Taken:
        """An idle active appends nothing of weight."""
        s = self.sites[i]
        todo = [p for p in s.pending if not p.remote]
        if s.state != "active" or s.mode == "async" or self.cut or not s.segment or s.segment.closed or s.sent or todo:
            return False
        self.proved(i, self.now, s.reads_until)
        return None

    def step_remote_ok(self, i: int) -> Taken:
        before = self.sites[i].reads_until
        taken = super().step_remote_ok(i)
        if taken is None:
            self.proved(i, self.sites[i].sent_at, before)
        return taken

    def proved(self, i: int, started: int, before: int) -> None:
        """An append that was begun at `started` has succeeded."""
        s = self.sites[i]
        if self.level < RULES.index("lapsed") or started < before:
            s.reads_until = max(before, started + LEASE)
        else:
            s.reads_until = before
            self.unproved[i] = started + LEASE

    def step_look(self, i: int) -> Taken:
        s, until, c = self.sites[i], self.unproved[i], self.coord
        if s.state != "active" or until is None:
            return False
        theirs = c.switching is not None and c.switching.site != i and self.bug != "plan_unseen"
        if c.epoch != s.epoch or c.active != i or theirs:
            self.told["a look refused"] += 1
            return False
        s.reads_until, self.unproved[i] = max(s.reads_until, until), None
        return None

    def step_ack(self, i: int) -> Taken:
        """Applies also without a lease, and answers once there is one."""
        s = self.sites[i]
        if s.state != "active" or s.mode != "sync" or self.now < s.reads_until:
            return super().step_ack(i)
        if not s.pending or not (s.pending[0].local and s.pending[0].remote):
            return False
        s.storage.append(s.pending.pop(0).frame)
        self.unanswered[i].append(s.storage[-1])
        return None

    def step_answer(self, i: int) -> Taken:
        s, t, waiting = self.sites[i], self.sites[1 - i], self.unanswered[i]
        if s.state != "active" or not waiting or (s.mode == "sync" and self.now >= s.reads_until):
            return False
        frame = waiting.pop(0)
        self.acked[frame.name] = ("sync" if s.mode == "sync" else "async", s.epoch)
        if t.state == "active" and t.epoch > s.epoch and frame not in t.storage:
            raise Broken(f"{frame.name} acknowledged by a fenced epoch {s.epoch}")
        return None

    # ---- a takeover
    def step_takeover(self, i: int) -> Taken:
        return False if self.hollow[i] else super().step_takeover(i)

    def step_force(self, i: int) -> Taken:
        return False if self.hollow[i] else super().step_force(i)

    def step_decide(self, i: int) -> Taken:
        s, running = self.sites[i], self.coord.switching
        if s.state == "closed" and self.hollow[i] and running is not None and running.site == i and self.coord.active != i:
            self.put(i, switching=None)  # the operator gives it up: it would read what the DFS has now
            s.stopped_half_way = False
            return None
        return super().step_decide(i)

    def plan_start(self, i: int) -> Taken:
        s, at = self.sites[i], self.arbiter(i)
        seen = not self.needs_arbiter(i) or self.unreachable(i) or s.epoch in self.dfs[at].claims
        if not seen and self.bug != "own_claim_unseen":
            self.told["missed its claim"] += 1
            return self.stop_plan(i)
        taken = super().plan_start(i)
        if taken is None and s.segment is not None:
            s.reads_until = self.now + LEASE
        return taken

    def plan_open(self, i: int) -> Taken:
        at = self.arbiter(i)
        taken = super().plan_open(i)
        if taken is None and at != i and self.coord.mode == "sync":
            self.hollow[at] = False
        return taken

    # ---- the walk
    def run(self, steps: int = 700) -> None:
        leaning(self, steps, OFTEN, EAGER)
        self.heal()

    def heal(self) -> None:
        self.cut, self.calm = False, True
        for _ in range(60):
            for i in (0, 1):
                for name in (*HEALING, "noop", "look", "answer"):
                    self.take(name, i)
        super().heal()


def walk(seed: int, rule: str = "lapsed", bug: str = "") -> Back:
    """One walk. Raises Broken."""
    return walked(Back(random.Random(seed), rule, bug), seed, rule, bug)


if __name__ == "__main__":
    main(walk, "lapsed")
