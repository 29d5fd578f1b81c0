"""The commands `simulate`, `bugs` and `replay`: many seeds over the cores with progress, and one run again with its story.

What always holds: what is printed for a failing seed is enough to see it again: the seed, the commit, and a plan that
`replay` takes. Exit codes: 0 clean, 1 a promise broke, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import islice
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from chaos.servers.janitor import employ, own_prefix
from chaos.simulate.bugs import BUGS, planted
from chaos.simulate.draw import draw
from chaos.simulate.plan import BY_NAME, SeedPlan, parse, text
from chaos.simulate.rates import Rate, rates
from chaos.simulate.run import Result, Run, collect
from chaos.simulate.shrink import shrink
from twinlog.errors import InvalidInput

CHUNK = 25  # seeds that a worker does at a time
SHRINK_RUNS = 300


@dataclass(frozen=True, slots=True)
class SeedReport:
    """The report of one seed."""

    seed: int
    operations: int
    faults: int
    virtual_s: float
    violations: tuple[str, ...]  # promise, checker, sentence
    trace_hash: str


def arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos", description="The whole pair in one process on virtual time.")
    commands = parser.add_subparsers(dest="command", required=True)
    simulate = commands.add_parser("simulate", help="run seeds until they are done, or the time is over")
    simulate.add_argument("--seeds", type=int, default=1000, help="how many (default 1000)")
    simulate.add_argument("--seed", type=int, default=0, help="the first one (default 0)")
    simulate.add_argument("--minutes", type=float, help="stop after so long, however many seeds were asked for")
    simulate.add_argument("--faults", default="", metavar="LIST", help=f"only these, by commas: {', '.join(BY_NAME)}")
    simulate.add_argument("--bug", default="", metavar="NAME", help=f"plant a bug: {', '.join(BUGS)}")
    simulate.add_argument("--jobs", type=int, default=_cores(), help="processes (default: one for each core)")
    simulate.add_argument("--until-found", action="store_true", help="stop at the first seed that fails")
    simulate.add_argument("--no-shrink", action="store_true", help="do not look for a smaller plan that fails")
    simulate.add_argument("--json", action="store_true", help="one JSON document at the end")
    bugs = commands.add_parser("bugs", help="how many seeds it takes to find each planted bug")
    bugs.add_argument("--seeds", type=int, default=5000, help="at most, for each bug (default 5000)")
    bugs.add_argument("--seed", type=int, default=0, help="the first one (default 0)")
    bugs.add_argument("--finds", type=int, default=3, help="enough of each (default 3)")
    bugs.add_argument("--bug", default="", metavar="NAME", help="only this one")
    bugs.add_argument("--jobs", type=int, default=_cores(), help="processes (default: one for each core)")
    bugs.add_argument("--json", action="store_true", help="one JSON document at the end")
    replay = commands.add_parser("replay", help="run the plan of a file, and show the whole story")
    replay.add_argument("file", type=Path)
    replay.add_argument("--bug", default="", metavar="NAME")
    chosen = parser.parse_args(given)
    unknown = [name for name in _kinds(chosen) if name not in BY_NAME]
    if unknown:
        parser.error(f"--faults: {', '.join(unknown)}: there are {', '.join(BY_NAME)}")
    if chosen.bug and chosen.bug not in BUGS:
        parser.error(f"--bug {chosen.bug}: there are {', '.join(BUGS)}")
    if chosen.command != "replay" and (chosen.seeds < 1 or chosen.jobs < 1 or chosen.seed < 0):
        parser.error("--seeds and --jobs must be at least 1, --seed at least 0")
    return chosen


def _cores() -> int:
    """Those that this process may use: two processes on one core take a quarter longer than one."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _kinds(chosen: argparse.Namespace) -> tuple[str, ...]:
    named = tuple(name.strip() for name in getattr(chosen, "faults", "").split(",") if name.strip())
    return named or tuple(BY_NAME)


def main(given: list[str]) -> int:
    chosen = arguments(given)
    employ()
    if chosen.command == "replay":
        return _replay(chosen)
    if chosen.command == "bugs":
        return _bugs(chosen)
    return _simulate(chosen)


# ---- one run
def execute(plan: SeedPlan, bug: str = "") -> Result:
    with planted(bug) if bug else nullcontext():
        return Run(plan, prefix=own_prefix("simulate")).execute()


def _settle() -> None:
    """This process does nothing but run seeds: what they leave is collected between them, and what was imported never."""
    warnings.simplefilter("ignore", RuntimeWarning)  # a killed process leaves coroutines that never ran
    gc.collect()
    gc.freeze()
    gc.disable()


@contextmanager
def _settled() -> Iterator[None]:
    """The same, and the process is as it was behind it."""
    collecting = gc.isenabled()
    with warnings.catch_warnings():
        _settle()
        try:
            yield
        finally:
            gc.unfreeze()
            if collecting:
                gc.enable()


def _seen(kinds: tuple[str, ...], bug: str, seed: int) -> SeedReport:
    seen = _told(seed, execute(draw(seed, kinds), bug))
    collect()  # its killed tasks are rubbish that only the collector sees, and now it is at hand
    gc.freeze()  # what is left is kept by somebody's cache, and looked at no more
    return seen


def _told(seed: int, result: Result) -> SeedReport:
    told = tuple(f"{each.promise} {each.checker}: {each.sentence}" for each in result.violations[:5])
    return SeedReport(seed, result.operations, result.faults, result.virtual_s, told, result.trace_hash)


def _replay(chosen: argparse.Namespace) -> int:
    console = Console()
    try:
        plan = parse(chosen.file.read_text())
    except (OSError, InvalidInput) as error:
        sys.stderr.write(f"{chosen.file}: {error}\n")
        return 2
    result = execute(plan, chosen.bug)
    _tell(console, result)
    return 1 if result.violations else 0


def _tell(console: Console, result: Result) -> None:
    """The plan and its timeline; times in seconds of the run."""
    out = partial(console.print, highlight=False, markup=False, soft_wrap=True)
    out(text(result.plan).rstrip())
    out(f"# {result.operations} operations, {result.virtual_s:.1f} s, trace {result.trace_hash}")
    for line in result.trace:
        out(f"# {line}")
    for violation in result.violations[:10]:
        out(f"# BROKEN {violation.promise} ({violation.checker}): {violation.sentence}")
        for call in result.history.calls:
            if call.id in violation.calls[:4]:
                out(f"#    call {call.id} by {call.process}: {_brief(call)}")
    if not result.violations:
        out("# every promise held")


def _brief(call: Any) -> str:
    asked = msgspec.json.encode(call.operation).decode()
    told = msgspec.json.encode(call.outcome).decode() if call.outcome is not None else "never ended"
    ended = f"{call.returned_s:.3f}" if call.returned_s is not None else "..."
    return f"{call.invoked_s:.3f} to {ended} {asked[:300]} -> {told[:300]}"


# ---- many runs
def _simulate(chosen: argparse.Namespace) -> int:
    console = Console(stderr=chosen.json)
    began_s = time.monotonic()
    failed: list[SeedReport] = []
    totals: Counter[str] = Counter()
    virtual_s = 0.0
    progress = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn(),
        console=console,
    )
    with progress:
        task = progress.add_task("seeds", total=chosen.seeds)
        for seen in _all_seen(chosen, began_s):
            totals.update(seeds=1, operations=seen.operations, faults=seen.faults)
            virtual_s += seen.virtual_s
            if seen.violations:
                failed.append(seen)
                told = f"seed {seen.seed}: {seen.violations[0]}"
                progress.console.print(told, highlight=False, markup=False, soft_wrap=True)
            progress.update(task, advance=1, description=f"seeds, {len(failed)} failed")
            if failed and chosen.until_found:
                break
    took_s = time.monotonic() - began_s
    document = {
        "first_seed": chosen.seed, "seeds": totals["seeds"], "operations": totals["operations"], "faults": totals["faults"],
        "virtual_s": round(virtual_s, 1), "took_s": round(took_s, 1), "failed": [seen.seed for seen in failed],
        "violations": {str(seen.seed): list(seen.violations) for seen in failed},
    }
    if chosen.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(document)).decode() + "\n")
        return 1 if failed else 0
    console.print(
        f"{totals['seeds']} seeds, {totals['operations']} operations, {totals['faults']} faults, "
        f"{virtual_s / 3600:.1f} simulated hours in {took_s:.1f} s: {len(failed)} failed", highlight=False,
    )
    if failed and not chosen.no_shrink:
        _shrink_first(console, chosen, failed[0].seed)
    return 1 if failed else 0


def _all_seen(chosen: argparse.Namespace, began_s: float) -> Iterator[SeedReport]:
    """Every seed's, as they end. A worker's seeds follow one another, so a run is reported soon after it ended."""
    seeds = range(chosen.seed, chosen.seed + chosen.seeds)
    work = partial(_seen, _kinds(chosen), chosen.bug)

    def is_late() -> bool:
        return chosen.minutes is not None and time.monotonic() - began_s > chosen.minutes * 60

    if chosen.jobs == 1:
        with _settled():
            for seed in seeds:
                if is_late():
                    return
                yield work(seed)
        return
    with multiprocessing.get_context("forkserver").Pool(chosen.jobs, _settle) as pool:
        for seen in pool.imap_unordered(work, seeds, CHUNK if chosen.seeds > 4 * CHUNK else 1):
            yield seen
            if is_late():
                return


def _bugs(chosen: argparse.Namespace) -> int:
    """Exit code 1: one was not found."""
    console = Console(stderr=chosen.json)
    names = (chosen.bug,) if chosen.bug else tuple(BUGS)
    seeds = range(chosen.seed, chosen.seed + chosen.seeds)
    table = Table("bug", "promise", "found at seed no.", "finds", "of seeds", box=None)
    found: list[Rate] = []
    with multiprocessing.get_context("forkserver").Pool(chosen.jobs, _settle) as pool, Live(table, console=console):
        for rate in rates(names, seeds, chosen.finds, partial(_in_order, pool, chosen.jobs)):
            found.append(rate)
            table.add_row(rate.bug, BUGS[rate.bug].promise, str(rate.first or "never"), str(rate.finds), str(rate.seeds))
    if chosen.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(found)).decode() + "\n")
    return 0 if all(rate.first for rate in found) else 1


def _in_order(pool: Pool, jobs: int, work: Callable[[int], bool], seeds: Iterable[int]) -> Iterator[bool]:
    """A few at a time, so that little is run in vain when enough is known."""
    waiting = iter(seeds)
    while several := list(islice(waiting, 4 * jobs)):
        yield from pool.map(work, several, 1)


def _shrink_first(console: Console, chosen: argparse.Namespace, seed: int) -> None:
    console.print(f"\nThe smallest plan found that fails as seed {seed} does, for `replay`:\n", highlight=False)
    failed = execute(draw(seed, _kinds(chosen)), chosen.bug)
    _tell(console, shrink(failed, partial(execute, bug=chosen.bug), runs_max=SHRINK_RUNS))
