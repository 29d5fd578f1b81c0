"""A model of a register that goes back: its database is restored from a backup, and goes on from there, at any time.

Each site keeps a durable mark, the last value that it met. The rules that are compared:
- "today": the value in the register is believed as it is;
- "order": a value that ranks below the mark is not believed;
- "line": nor is one whose history does not hold the mark: the register went back, and another site went on from there;
- "known": nor is one that never gave away an epoch of which a claim, the own log or storage knows, or the other site.
Each rule includes the ones before it. A site that meets a value which it does not believe stops, and only a command gets past
it: the pair begins anew there, with an epoch above all that are known, and what is known of lower epochs counts no more.

What is promised besides the promises of twinlog_model.py: without that command nothing that was acknowledged synchronously is
lost, and what was acknowledged asynchronously is lost to nobody who knew of that mode; what is lost is in a quarantine.
`python -m tests.model.went_back [walks] [rule] [bug] [first seed]` runs it.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

from tests.model.changes import ACTIVATION
from tests.model.pieces import Value, led
from tests.model.twinlog_model import World
from tests.model.two_dfs import NOBODY, STEP
from tests.model.walks import leaning, main, walked
from tests.model.writing import Taken

RULES = ("today", "order", "line", "known")
OFTEN = ("plan", "renew", "decide", "boot", "ack", "local_ok", "remote_ok", "ship")
EAGER = {"crash": 0.4, "takeover": 0.5, "cut": 0.5, "local_fail": 0.2, "remote_fail": 0.3}
Line = tuple[Value, ...]


def rank(value: Value) -> tuple[int, int, int]:
    return value.epoch, value.given, value.number


class Restored(World):
    """`line`: every value of the register, which go back with it. `moments`: each line that a backup may hold."""

    def __init__(self, rng: random.Random, rule: str = "known", bug: str = "") -> None:
        super().__init__(rng, bug)
        self.level = RULES.index(rule)
        self.line: Line = (self.coord,)
        self.moments = [self.line]
        self.marks = [self.coord, self.coord]
        self.knew_async: list[set[int]] = [set(), set()]  # the epochs of which a site has met the asynchronous mode
        self.unseen: set[str] = set()  # acknowledged asynchronously, and the register forgot before the other site met it
        self.eager = 1.0
        self.told: Counter[str] = Counter()

    # ---- the register
    def step_go_back(self, i: int) -> Taken:
        if i or self.calm or not self.rarely(0.1):
            return False
        self.line = self.rng.choice(self.moments[-12:])
        self.coord = self.line[-1]
        self.told["went back"] += 1
        return None

    def put(self, i: int, **changes: Any) -> None:
        self.coord = replace(self.coord, **{"number": self.coord.number + 1, **changes})
        self.line = (*self.line, self.coord)
        self.moments.append(self.line)
        self.meet(i)

    def meet(self, i: int) -> None:
        self.marks[i] = self.coord
        if self.coord.mode == "async":
            self.knew_async[i].add(self.coord.epoch)

    def pair(self, i: int) -> Value | None:
        if self.contradicts(i):
            return None
        self.meet(i)
        return self.coord

    def contradicts(self, i: int) -> bool:
        """True when what this site durably knows, or can learn while it is not open, says that the register went back."""
        if self.is_before(self.marks[i]):
            return True
        if self.level < RULES.index("known") or self.sites[i].state == "active":
            return False
        return self.known_epoch(i) > self.coord.given or self.other_says_so(i)

    def other_says_so(self, i: int) -> bool:
        asked = not self.cut and self.sites[1 - i].state != "down" and self.bug != "no_word"
        return asked and self.is_before(self.marks[1 - i])

    def is_before(self, mark: Value) -> bool:
        """The register does not lead on from `mark`."""
        c = self.coord
        if self.level == 0 or c.anew > mark.given:
            return False
        return rank(c) < rank(mark) or (self.level >= RULES.index("line") and mark not in self.line)

    def known_epoch(self, i: int) -> int:
        s = self.sites[i]
        seen = [] if self.bug == "no_claims" else [i] if self.cut or self.bug == "own_claims" else [0, 1]
        own = [s.known_epoch, *(frame.epoch for frame in s.wal + s.storage)]
        return max([*own, *(epoch for at in seen for epoch in self.dfs[at].claims)])

    def step_look(self, i: int) -> Taken:
        """A site that runs looks at the register now and then."""
        down = self.sites[i].state == "down" or not self.rarely(0.3)
        return False if down or self.pair(i) is None else None

    def step_notice(self, i: int) -> Taken:
        s = self.sites[i]
        if s.state == "active" and self.contradicts(i) and self.rarely(0.3):
            self.told["an active stopped"] += 1
            self.halt(i)
            return None
        return super().step_notice(i)

    def step_crash(self, i: int) -> Taken:
        taken = super().step_crash(i)
        if taken is None and self.bug == "mark_not_durable":
            self.marks[i] = Value(epoch=0, given=0, number=0)
        return taken

    def step_undo(self, i: int) -> Taken:
        """Its own plan, which it has given up, has the pair again."""
        s, c = self.sites[i], self.pair(i)
        if s.state != "standby" or s.plan or c is None or c.switching is None or c.switching.site != i:
            return False
        self.put(i, switching=None)
        return None

    # ---- the command, and its plan
    def step_anew(self, i: int) -> Taken:
        s, c = self.sites[i], self.coord
        stuck = self.contradicts(i) or self.other_says_so(i) or c.active == NOBODY
        if self.level == 0 or s.state not in ("active", "closed", "standby") or s.plan or not stuck or not self.rarely(0.2):
            return False
        if s.state == "active":
            self.halt(i)
        self.forced += 1
        self.told["begun anew"] += 1
        return self.begin(i, "anew")

    def begin(self, i: int, kind: str, steps: list[str] | None = None) -> Taken:
        if kind != "anew":
            return super().begin(i, kind, steps)
        word = self.marks[1 - i].given if not self.cut else 0
        given = max(self.known_epoch(i), self.marks[i].given, self.coord.given, word)
        anew = given + (STEP if self.bug != "no_room" else 0)
        self.put(i, epoch=given, given=anew, active=NOBODY, mode="sync", switching=None,
                 anew=anew if self.bug != "no_pardon" else 0)
        return super().begin(i, kind, steps or ACTIVATION)

    def step_takeover(self, i: int) -> Taken:
        return False if self.coord.active == NOBODY else super().step_takeover(i)

    def step_force(self, i: int) -> Taken:
        return False if self.coord.active == NOBODY else super().step_force(i)

    def step_switchover(self, i: int) -> Taken:
        return False if self.coord.active == NOBODY else super().step_switchover(i)

    def lost_the_pair(self, i: int) -> bool:
        return self.contradicts(i) or super().lost_the_pair(i)

    def plan_read(self, i: int) -> Taken:
        s, plan = self.sites[i], self.sites[i].plan
        assert plan is not None
        if plan.kind == "switchover" and s.begun is not None and s.begun.mode == "async":
            frames = [frame for frame in self.dfs[i].frames() if frame.epoch < s.epoch]
            if not led(frames, s.applied_seq, s.applied_epoch)[1]:
                return self.abandon(i)  # resumed behind an active that went on: it stops with a gap, and loses nothing
        if plan.kind != "anew":
            return super().plan_read(i)
        seen = [i] if self.cut else [0, 1]
        for segment in [segment for at in seen for segment in self.dfs[at].segments if segment.epoch < s.epoch]:
            segment.closed = True
        frames = [frame for at in seen for frame in self.dfs[at].frames() if frame.epoch < s.epoch]
        self.withdraw_attempts(s, frames)
        s.tail = led(frames + s.wal, s.applied_seq, s.applied_epoch)[0]
        s.wal += [f for f in s.tail if f not in set(s.wal)]
        s.durable = len(s.storage)
        return None

    def rejoin(self, i: int) -> Taken:
        """Quarantines also what was applied here, and what is of an epoch that the active's history does not have."""
        s, t = self.sites[i], self.sites[1 - i]
        starts = {frame.epoch for frame in t.storage if frame.name == "start"}
        applied, before = set(s.storage), [*s.wal, *s.storage]
        taken = super().rejoin(i)
        if taken is None and self.bug != "drop_committed":
            gone = [frame for frame in before if frame not in t.storage]
            if any(frame in applied or frame.epoch not in starts for frame in gone):
                s.quarantine |= {frame.name for frame in gone}
        return taken

    def rarely(self, share: float) -> bool:
        return super().rarely(min(0.9, share * self.eager))

    def run(self, steps: int = 700) -> None:
        leaning(self, steps, OFTEN, EAGER)
        self.heal()

    # ---- the promises
    def check_opened(self, i: int, names: list[str], forced: bool) -> None:
        plan = self.sites[i].plan
        forced = forced or (plan is not None and plan.kind == "anew")
        anew = plan is not None and plan.kind == "anew"
        for name, (how, epoch) in self.acked.items():
            unseen = how == "async" and epoch not in self.knew_async[i] and self.told["went back"] > 0
            if name not in names and (anew or unseen):
                self.given_up.add(name)
        if self.told["went back"]:
            self.excluded, self.continued = set(), set()
        super().check_opened(i, names, forced)
        self.told[f"opened by {plan.kind}" if plan else ""] += 1

    def heal(self) -> None:
        """The operator begins anew where a site is stuck, until one serves."""
        self.cut, self.calm = False, True
        for _ in range(120):
            i = self.rng.randrange(2)
            for name in ("boot", "notice", "anew"):
                self.take(name, i)
            for name in ("tick", "plan", "undo", "tick", "plan"):
                for at in (0, 1):
                    self.take(name, at)
        super().heal()


def walk(seed: int, rule: str = "known", bug: str = "") -> Restored:
    """One walk. Raises Broken."""
    return walked(Restored(random.Random(seed), rule, bug), seed, rule, bug)


if __name__ == "__main__":
    main(walk, "known")
