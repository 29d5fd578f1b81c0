"""Random walks of a model, each from a seed: one that breaks a promise names its rule, its seed and its steps."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Protocol, TypeVar

from tests.model.pieces import Broken


class Walker(Protocol):
    trace: list[str]
    told: Counter[str]

    def run(self) -> None: ...


W = TypeVar("W", bound=Walker)


def walked(world: W, seed: int, rule: str, bug: str) -> W:
    """The world after its walk. Raises Broken."""
    try:
        world.run()
    except Broken as error:
        steps = " ".join(name for name in world.trace if not name.startswith("tick"))
        raise Broken(f"{rule} {bug}, seed {seed}: {error}\n  {steps}") from None
    return world


def main(walk: Callable[[int, str, str], Walker], usual_rule: str) -> None:
    """Walks as the command line says: how many, the rule, the bug, the first seed."""
    walks, rule, bug, first = (*sys.argv[1:5], *("5000", usual_rule, "", "0")[len(sys.argv) - 1 :])
    seen: Counter[str] = Counter()
    for seed in range(int(first), int(first) + int(walks)):
        try:
            world = walk(seed, rule, bug)
        except Broken as error:
            sys.stdout.write(f"{error}\n")
            return
        seen += world.told + Counter(steps=len(world.trace))
    sys.stdout.write(f"{rule} {bug}: {walks} walks, no promise broken: {dict(seen)}\n")
