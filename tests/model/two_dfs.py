"""The register of a pair without a coordinator, as the model has it: a value on each DFS, and who decides the next one where.

The rules that are compared (docs/decisions/2026-11-22-the-register-stays-on-two-dfs.md):
- "homes": the product's. A command that does not reach the register moves the home and goes on from the highest known value.
- "mended": the same, and where two lines are brought together and the active becomes asynchronous, the home becomes its DFS.
- "anew": the home moves as in the product, but nothing is decided past the register: a site that does not reach it begins the
  pair anew by command, on its own DFS, with an epoch above all that it knows of.
- "arbiter": as "anew", and the home is the DFS of the site that would take over, also while the active is asynchronous.
- "fixed": as "anew", and the home never moves otherwise: one folder in one place.
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.model.pieces import Value

RULES = ("homes", "mended", "anew", "arbiter", "fixed")
FORCED = ("homes", "mended")  # a command goes on from the highest known value
NOBODY = 2  # the active of a pair that begins anew
STEP = 10  # epochs that are left free where a site could not look
COPIED = 0.8  # a copy may get lost: the next look makes it


class TwoDfs:
    """`newest`: the value on each DFS. `met`: the highest value that each site's living process has met."""

    def __init__(self, rng: random.Random, rule: str, bug: str) -> None:
        self.rng, self.rule, self.bug = rng, rule, bug
        self.newest = [Value(), Value()]
        self.met = [Value(), Value()]
        self.apart = False  # two lines of decisions may have parted, and the DFSs have not held the same since

    def rank(self, value: Value) -> tuple[int, int, int, int, int]:
        return value.epoch, value.given, value.forced, value.number, value.home

    def look(self, i: int, sees: list[int]) -> Value | None:
        """The value, once its home holds it; None: it is out of reach of site `i`, which reaches the DFSs `sees`."""
        while True:
            value = max((self.newest[at] for at in sees), key=self.rank)
            known = self.met[i] = max(value, self.met[i], key=self.rank)
            if not {value.home, known.home} <= set(sees) and self.bug != "a_copy_counts":
                return None
            whole = self.reconciled(value, [self.newest[at] for at in sees if self.newest[at].home == at])
            if value.home in sees and whole != value:
                self.newest[value.home] = replace(whole, number=value.number + 1)
            elif value.home in sees and self.newest[value.home] != value:
                self.newest[value.home] = value
            else:
                self.copy(value, sees)
                return value

    def reconciled(self, ruling: Value, others: list[Value]) -> Value:
        """The ruling value with what another line has given away and acknowledged since the two parted."""
        for other in others if self.rule in FORCED else []:
            if other.forced == ruling.forced:
                continue
            ruling = replace(ruling, given=max(ruling.given, other.given))
            if (other.epoch, other.mode, ruling.mode) == (ruling.epoch, "async", "sync") and self.bug != "degrade_is_dropped":
                home = ruling.active if self.rule == "mended" else ruling.home
                ruling = replace(ruling, mode="async", home=home)
        return ruling

    def copy(self, value: Value, sees: list[int]) -> None:
        for at in sees:
            if self.rank(self.newest[at]) < self.rank(value) and self.rng.random() < COPIED:
                self.newest[at] = value
        if self.newest[0] == self.newest[1]:
            self.apart = False

    def decide(self, i: int, sees: list[int], before: Value, new: Value) -> None:
        """`new` behind `before`, which was read in the same step."""
        value = replace(new, number=before.number + 1, home=self.next_home(before, new))
        self.newest[before.home if before.home in sees else i] = value
        self.met[i] = value
        self.copy(value, sees)

    def next_home(self, before: Value, new: Value) -> int:
        moves = (before.epoch, before.mode) != (new.epoch, new.mode)
        if not moves or new.active == NOBODY or self.rule == "fixed":
            return before.home
        if new.mode == "sync":
            return 1 - new.active
        stays = self.rule == "arbiter" or self.bug == "home_stays"
        return before.home if stays else new.active

    def known(self, i: int, sees: list[int]) -> Value:
        """The highest value known, from which a command continues."""
        known = max(self.met[i], *(self.newest[at] for at in sees), key=self.rank)
        plan = known.switching
        over = {"over_a_takeover": ("takeover", "force"), "over_a_switchover": ("switchover",)}.get(self.bug, ())
        if known.home not in sees and plan is not None and plan.site != i and plan.kind in over:
            known = replace(known, switching=None)
        return known

    def force(self, i: int, known: Value, new: Value) -> None:
        """A command past the register: a line of its own, on the own DFS."""
        value = replace(new, number=known.number + 1, home=i, forced=known.forced + 1)
        self.newest[i] = self.met[i] = value
        self.apart = True

    def begin_anew(self, i: int, known: Value, given: int) -> None:
        self.newest[i] = self.met[i] = replace(known, active=NOBODY, mode="async", home=i, given=given)
        self.apart = True

    def forget(self, i: int) -> None:
        """The process of `i` is gone, and with it what it had met."""
        self.met[i] = self.newest[i]
