"""Every schedule of a small program up to a number of switches that nobody had to make.

Most mistakes between threads show with one or two such switches, at the right places (Musuvathi and Qadeer, CHESS), so a bound
on them keeps the number of schedules small and the search whole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from chaos.threads.schedule import Scheduler


@dataclass(frozen=True, slots=True)
class Explored:
    """`schedules`: how many were tried. `fault`: what the first one that went wrong raised, by its `choices`."""

    schedules: int
    fault: str | None
    choices: tuple[int, ...] = ()


def explore(run: Callable[[Scheduler], None], watched: list[str], switches_max: int, schedules_max: int = 100_000) -> Explored:
    """`run` makes its program anew under each scheduler, and raises when something went wrong."""
    waiting: list[tuple[int, ...]] = [()]
    tried = 0
    while waiting and tried < schedules_max:
        choices = waiting.pop()
        scheduler = Scheduler(choices, watched)
        tried += 1
        try:
            run(scheduler)
        except Exception as error:
            return Explored(tried, f"{type(error).__name__}: {error}", tuple(taken[0] for taken in scheduler.taken))
        switches = 0
        for at, (choice, costs) in enumerate(scheduler.taken):
            if at >= len(choices):
                before = tuple(taken[0] for taken in scheduler.taken[:at])
                others = (other for other in range(1, len(costs)) if switches + costs[other] <= switches_max)
                waiting += [(*before, other) for other in others]
            switches += costs[choice]
    return Explored(tried, None)
