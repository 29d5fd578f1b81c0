"""A planted bug: names of the product stand for something else for a while."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from chaos.simulate.draw import audited, plain
from chaos.simulate.plan import PLAIN, SeedPlan

Replaced = tuple[Any, str, Any]  # an object (class or module), one of its names, and what is to stand there


@dataclass(frozen=True, slots=True)
class Bug:
    """`sentence`: what it breaks. `promise`: the one of docs/protocol.md that no longer holds. `checkers`: any of these must
    notice, on one of the `seeds` seeds from `first_seed` on, with faults of `kinds` only."""

    name: str
    sentence: str
    promise: str
    checkers: tuple[str, ...]
    first_seed: int
    seeds: int
    patches: tuple[Replaced, ...]
    kinds: tuple[str, ...] = PLAIN
    drawn: Callable[[int], SeedPlan] | None = None  # the plan of a seed, where none of `kinds` alone shows the bug

    @contextmanager
    def planted(self) -> Iterator[None]:
        with ExitStack() as stack:
            for owner, name, replacement in self.patches:
                stack.enter_context(patch.object(owner, name, replacement))
            yield

    def plan(self, seed: int) -> SeedPlan:
        """Returns the plan that is run with the bug and without it."""
        if self.drawn is not None:
            return self.drawn(seed)
        return audited(plain(seed, self.kinds), self.kinds)

    @property
    def window(self) -> range:
        return range(self.first_seed, self.first_seed + self.seeds)
