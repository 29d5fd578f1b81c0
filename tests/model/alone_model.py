"""A model of a pair without a coordinator: the register on the two DFSs, and the loss of a site together with its DFS.

What is promised besides the promises of twinlog_model.py:
- an epoch is begun once, on whichever line of decisions;
- an asynchronous active serves nothing any more when a later epoch opens, or is open, in sight of it;
- a plan without an accepted loss loses nothing that was acknowledged, but by an active that a command degraded out of its
  sight; what is lost is in a quarantine;
- a failover without an accepted loss that was commanded last is not thrown away when the sites see each other again;
- the site that is left serves after the commands that it has: an ordinary failover, if the pair was well before; and it comes
  back by itself after a restart.

`python -m tests.model.alone_model [walks] [rule] [bug] [first seed]` runs it.
"""

from __future__ import annotations

import random
from contextlib import suppress

from tests.model.alone import Alone
from tests.model.pieces import LEASE, Broken
from tests.model.twinlog_model import HEALING
from tests.model.two_dfs import FORCED
from tests.model.walks import main, walked

COMMANDS = ("takeover", "force", "downgrade", "downgrade_closed", "anew")
ROUNDS = 200
OFTEN = ("plan", "renew", "decide", "boot", "ack", "local_ok")
EAGER = {"boot": 1, "tick": 1, "takeover": 0.5, "force": 2.5, "downgrade": 2.5, "downgrade_closed": 5, "anew": 2, "cut": 1.5}
NEITHER_EAGER = 0.3


class Pair(Alone):
    # ---- the promises
    def check_opened(self, i: int, names: list[str], forced: bool) -> None:
        c, plan, s, held = self.pair(i), self.sites[i].plan, self.sites[i], set(names)
        assert c is not None
        assert plan is not None
        forced = forced or plan.kind == "anew"
        ruling = max(self.register.newest, key=self.register.rank).epoch
        before = c.epoch if c.epoch in self.acked_in else max(self.acked_in)
        needed = self.acked_in[before] | (self.acked_in.get(ruling, set()) if forced else set())
        for name in needed - held - self.given_up:
            how, epoch = self.acked[name]
            if forced and not (how == "sync" and epoch in (before, ruling)):
                self.given_up.add(name)
            elif name not in self.apart_acks or not self.cut:
                raise Broken(f"acknowledged {how} write {name} lost when site {i} opened {s.epoch} ({plan.kind}): {names}")
        excluded = self.excluded_in[before] - (held if forced else set())
        if excluded & held:
            raise Broken(f"excluded writes {excluded & held} came back at site {i}")
        written = [name for name in names if name != "start"]
        if len(set(written)) != len(written):
            raise Broken(f"applied twice: {names}")
        self.excluded_in[s.epoch] = excluded | (self.failed - held)
        self.acked_in[s.epoch] = held & self.acked.keys()
        self.told[f"opened by {plan.kind}"] += 1
        if plan.kind != "restart":
            self.last_opened = s.epoch if plan == self.last_failover else None

    def check_actives(self) -> None:
        if not self.register.apart and self.forced == 0:
            super().check_actives()

    def check_healed(self) -> None:
        self.given_up |= self.apart_acks
        super().check_healed()

    # ---- a walk
    def run(self, steps: int = 700) -> None:
        names = [name.removeprefix("step_") for name in dir(self) if name.startswith("step_")]
        weights = [self.rng.choice((0.2, 1, 1, 1, 4)) * (3 if name in OFTEN else 1) for name in names]
        for name in self.rng.choices(names, weights, k=steps):
            self.eager = EAGER.get(name, NEITHER_EAGER)
            self.take(name, self.rng.randrange(2))
        self.eager = 1
        if self.rarely(0.1):
            self.lose(self.rng.randrange(2))
        self.heal()

    def heal(self) -> None:
        self.cut, self.calm = False, True
        for _ in range(12):
            for name in [*HEALING] * 10:
                self.take(name, 0)
                self.take(name, 1)
            with suppress(Broken):
                self.check_healed()
                break
        self.check_healed()
        there = {frame.epoch for frame in self.sites[0].storage if frame.name == "start"}
        if self.last_opened is not None and self.last_opened not in there:
            raise Broken(f"the failover that was commanded last opened {self.last_opened}, and was thrown away: {there} stay")

    # ---- the loss of a site with its DFS
    def lose(self, lost: int) -> None:
        left = 1 - lost
        s, c = self.sites[left], self.register.newest[left]
        values = (c, self.register.newest[lost], self.register.met[left])
        half_way = any(value.switching is not None and value.switching.site == lost for value in values)
        if self.rule in FORCED and half_way:
            self.told["lost in the middle of its own plan"] += 1  # a flaw: no command helps
            return
        both = self.register.newest[lost] == c and not half_way
        well = both and self.follows_well(left)
        asks_again = not both or (self.rule == "homes" and c.mode == "async" and c.home == lost)
        self.trace.append(f"lose({'ab'[lost]})")
        self.halt(lost)
        self.cut = True
        self.command(left, ("takeover",) if well else COMMANDS)
        if s.state != "active" or not s.lease:
            commands = "an ordinary failover" if well else "any command"
            raise Broken(f"the site that is left does not serve after {commands}: {s.state}, {self.register.newest[left]}")
        self.told["lost while all was well" if well else "lost"] += 1
        self.trace.append(f"restart({'ab'[left]})")
        self.halt(left)
        self.command(left, COMMANDS if asks_again and not well else ())
        if s.state != "active" or not s.lease:
            raise Broken(f"the site that is left does not come back by itself: {s.state}, {self.register.newest[left]}")

    def follows_well(self, i: int) -> bool:
        """The other site is the synchronous active, and `i` its standby."""
        s, t, c = self.sites[i], self.sites[1 - i], self.register.newest[i]
        follows = s.state == "standby" and s.plan is None and t.state == "active" and (t.epoch, 1 - i) == (c.epoch, c.active)
        return follows and c.switching is None and c.mode == t.mode == "sync"

    def outranked(self, i: int) -> bool:
        return self.register.known(i, self.sees(i)).epoch > self.sites[i].epoch

    def command(self, i: int, commands: tuple[str, ...]) -> None:
        """An operator at `i` commands until it serves; without commands it may only come back."""
        s, from_ = self.sites[i], self.now
        for round_ in range(1, ROUNDS + 1):
            tried = self.now > from_ + LEASE  # a lease of before has run out
            served = s.state == "active" and s.mode != "sync" and (s.lease or not tried) and not self.outranked(i)
            if served and tried:
                return
            self.calm = not commands
            for name in [*(commands if not served else ()), *HEALING]:
                self.take(name, i if name != "tick" else 0)
            if round_ % 20 == 0 and s.state != "standby" and commands:
                self.halt(i)  # it waits for what does not come: started anew


def walk(seed: int, rule: str = "homes", bug: str = "") -> Pair:
    """One walk. Raises Broken."""
    return walked(Pair(random.Random(seed), rule, bug), seed, rule, bug)


if __name__ == "__main__":
    main(walk, "homes")
