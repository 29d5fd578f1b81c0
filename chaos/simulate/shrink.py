"""Makes a failing plan smaller while it still fails: fewer faults, fewer operations, fewer clients, plainer knobs.

What always holds: what comes back fails in the same way (by the same checker, for the same promise) as what was given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec.structs import asdict, replace

from chaos.simulate.plan import Knobs, SeedPlan, without
from chaos.simulate.run import Result

Execute = Callable[[SeedPlan], Result]


def signature(result: Result) -> frozenset[tuple[str, str]]:
    """Returns the broken promises of a run: two runs with equal ones failed in the same way."""
    return frozenset((violation.promise, violation.checker) for violation in result.violations)


def shrink(failed: Result, execute: Execute, *, runs_max: int = 300, told: Callable[[str], None] = lambda _: None) -> Result:
    """The smallest failing run that was found within `runs_max` runs."""
    wanted = signature(failed)
    best, runs, smaller = failed, 0, True
    while smaller and runs < runs_max:
        smaller = False
        for candidate in _candidates(best.plan):
            runs += 1
            result = execute(candidate)
            if signature(result) & wanted:
                best, smaller = result, True
                told(f"{len(best.plan.faults)} faults, {best.plan.operations - len(best.plan.skipped)} operations")
                break
            if runs >= runs_max:
                break
    return best


def _candidates(plan: SeedPlan) -> Iterator[SeedPlan]:
    """Smaller plans, the boldest first."""
    count = len(plan.faults)
    for size in _halves(count):
        for first in range(0, count, size):
            yield without(plan, frozenset(range(first, min(first + size, count))))
    if plan.operations > 1:
        yield replace(plan, operations=plan.operations // 2)
        yield replace(plan, operations=plan.operations * 3 // 4)
    kept = [index for index in range(plan.operations) if index not in plan.skipped]
    for size in _halves(len(kept)):
        if size * 12 < len(kept):
            break
        for first in range(0, len(kept), size):
            yield replace(plan, skipped=tuple(sorted({*plan.skipped, *kept[first : first + size]})))
    plain = asdict(Knobs())
    for name, value in asdict(plan.knobs).items():
        if value != plain[name]:
            yield replace(plan, knobs=replace(plan.knobs, **{name: plain[name]}))


def _halves(count: int) -> Iterator[int]:
    size = count // 2
    while size >= 1:
        yield size
        size //= 2
