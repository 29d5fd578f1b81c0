"""A model of the protocol, small enough to read in one sitting: random walks over it look for a broken promise.

It is the design's own check (docs/protocol.md, section 10), not the product: two sites, two DFSs, one coordinator, one log.
Every step is atomic; whatever is not atomic in reality is split into several steps, so that crashes, partitions and the other
site's steps may come between. `python -m tests.model.twinlog_model [walks] [bug]` runs it; a planted mistake must be found, the
plain protocol must not break. Whoever changes the protocol changes the model first.
"""

from __future__ import annotations

import random
import sys

from tests.model.changes import Changes
from tests.model.pieces import Broken

HEALING = (
    "tick", "notice", "boot", "undrain", "decide", "plan", "renew", "remote_fail", "remote_land", "remote_ok", "local_ok",
    "segment_create", "segment_check", "ack", "ship", "flush", "resync",
)


class World(Changes):
    """The promises, and a walk."""

    def check_opened(self, i: int, names: list[str], forced: bool) -> None:
        for name, (how, epoch) in self.acked.items():
            if name in names or name in self.given_up:
                continue
            # force gives up what was acknowledged asynchronously, and what a follower of the lost epoch had not received yet
            if not forced or (how == "sync" and epoch == self.coord.epoch):
                raise Broken(f"acknowledged {how} write {name} lost when site {i} opened: {names}")
            self.given_up.add(name)
        if (lost := self.continued - set(names)) and not forced:
            raise Broken(f"{lost}, from which an earlier epoch had opened, lost when site {i} opened: {names}")
        self.continued = set(names)
        if forced:  # the epoch that excluded them is given up itself
            self.excluded -= set(names)
        if self.excluded & set(names):
            raise Broken(f"excluded writes {self.excluded & set(names)} came back at site {i}")
        written = [name for name in names if name != "start"]
        if len(set(written)) != len(written):
            raise Broken(f"applied twice: {names}")
        self.excluded |= self.failed - set(names)

    def check(self) -> None:
        a, b = self.sites
        for s in self.sites:
            seqs = [f.seq for f in s.storage]
            if seqs != sorted(set(seqs)):
                raise Broken(f"storage out of order: {s.storage}")
            for before, frame in zip(s.storage, s.storage[1:], strict=False):
                if frame.previous != before.seq:
                    raise Broken(f"storage is no log: {before} {frame}")
        for s, t in ((a, b), (b, a)):
            if s.state != "active" or t.state != "standby" or t.known_epoch != s.epoch or self.forced:
                continue  # what a forced takeover gave up may stay at the other site until base data replaces it
            if t.storage != s.storage[: len(t.storage)]:
                raise Broken(f"standby is no prefix: {t.storage} / {s.storage}")
        self.check_actives()
        for s, t in ((a, b), (b, a)):
            if s.state == t.state == "active" and s.epoch < t.epoch and s.mode == "sync" and self.now < s.reads_until:
                raise Broken(f"epoch {s.epoch} still serves reads while {t.epoch} is open")

    def check_actives(self) -> None:
        if all(s.state == "active" and s.mode == "async" and s.lease for s in self.sites):
            raise Broken("two actives acknowledge without each other")

    def take(self, name: str, i: int) -> None:
        if getattr(self, f"step_{name}")(i) is not False:
            self.trace.append(f"{name}({'ab'[i]})")
            self.check()

    def run(self, steps: int = 600) -> None:
        names = [name.removeprefix("step_") for name in dir(self) if name.startswith("step_")]
        weights = [self.rng.choice((0.2, 1, 1, 1, 4)) for _ in names]  # each walk likes other steps than the one before
        for name in self.rng.choices(names, weights, k=steps):
            self.take(name, self.rng.randrange(2))
        self.heal()

    def heal(self) -> None:
        """Everything comes back: both sites must end equal, with every acknowledged write."""
        self.cut, self.calm = False, True
        for _ in range(120):
            for i in (0, 1):
                for name in HEALING:
                    self.take(name, i)
        self.check_healed()

    def check_healed(self) -> None:
        a, b = self.sites
        if sorted((a.state, b.state)) != ["active", "standby"]:
            raise Broken(f"not healed: {a.state} {b.state} {self.coord}")
        if a.storage != b.storage:
            raise Broken("the sites differ after healing")
        there = {f.name for f in a.storage}
        quarantined = a.quarantine | b.quarantine
        for name in self.acked.keys() - there:
            if name not in self.given_up:
                raise Broken(f"lost {name}")
            if name not in quarantined:
                raise Broken(f"{name} was acknowledged asynchronously, and was dropped without a trace")


def walk(seed: int, bug: str = "") -> World:
    """One walk. Raises Broken."""
    world = World(random.Random(seed), bug)
    try:
        world.run()
    except Broken as error:
        raise Broken(f"{bug or 'the protocol'}, seed {seed}: {error}\n  {' '.join(world.trace)}") from None
    return world


def main(walks: int, bug: str, first: int = 0) -> None:
    steps = 0
    for seed in range(first, first + walks):
        try:
            steps += len(walk(seed, bug).trace)
        except Broken as error:
            sys.stdout.write(f"{error}\n")
            return
    sys.stdout.write(f"{bug or 'the protocol'}: {walks} walks, {steps} steps, no promise broken\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000, *sys.argv[2:3] or [""], *map(int, sys.argv[3:4]))
