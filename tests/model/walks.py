"""Random walks of a model, each from a seed: one that breaks a promise names its rule, its seed and its steps."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from random import Random
from typing import Any, Protocol, TypeVar

from tests.model.pieces import Broken


class Walker(Protocol):
    trace: list[str]
    told: Counter[str]

    def run(self) -> None: ...


class Leaning(Protocol):
    rng: Random
    eager: float

    def take(self, name: str, i: int, /) -> Any: ...


W = TypeVar("W", bound=Walker)


def leaning(walk: Leaning, steps: int, often: Collection[str], eager: Mapping[str, float]) -> None:
    """Takes `steps` steps: those of `often` three times as often as others, and each as eagerly as `eager` says (1.0)."""
    names = [name.removeprefix("step_") for name in dir(walk) if name.startswith("step_")]
    weights = [walk.rng.choice((0.2, 1, 1, 1, 4)) * (3 if name in often else 1) for name in names]
    for name in walk.rng.choices(names, weights, k=steps):
        walk.eager = eager.get(name, 1.0)
        walk.take(name, walk.rng.randrange(2))
    walk.eager = 1.0


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
