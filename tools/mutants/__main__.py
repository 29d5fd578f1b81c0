"""`python -m tools.mutants`: plants the mutants of the lists one after the other, and reports what finds each.

Exit codes: 0 everything is as the lists say, 1 something else, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

import msgspec

from tools.mutants.hunt import Found, Tree, hunt
from tools.mutants.mutant import Mutant, load
from tools.mutants.propose import drawn
from tools.mutants.rooms import rooms, tests_of
from tools.sources import ROOT


def main(given: list[str]) -> int:
    chosen = _arguments(given)
    if chosen.propose:
        mutants = drawn(ROOT, chosen.files or rooms(ROOT), chosen.propose, chosen.seed)
    else:
        mutants = [mutant for mutant in load(ROOT) if chosen.only in mutant.name]
    missed = 0
    for mutant, found in _hunted(mutants, chosen):
        sys.stdout.write(msgspec.json.encode({
            "name": mutant.name, "file": mutant.file, "within": mutant.within, "before": mutant.before, "after": mutant.after,
            "nth": mutant.nth, "seed": found.seed, "violation": found.violation, "test": found.test,
            "took_s": round(found.took_s, 1),
        }).decode() + "\n")
        sys.stdout.flush()
        missed += not is_as_listed(mutant, found)
    return 1 if missed else 0


def is_as_listed(mutant: Mutant, found: Found) -> bool:
    """Returns whether something found the mutant, or nothing did where the list argues that nothing can, or does yet."""
    return bool(found.test or found.seed is not None) != bool(mutant.survives or mutant.missed)


def _arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants")
    parser.add_argument("--only", default="", metavar="TEXT", help="those with this text in their name")
    parser.add_argument("--propose", type=int, default=0, metavar="N", help="not the lists: N drawn by the rules")
    parser.add_argument("--files", nargs="*", help="draw them from these files")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--seeds", type=int, default=2000, help="of the simulator for each, 0 for none (default 2000)")
    parser.add_argument("--no-tests", action="store_true", help="the simulator alone")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    return parser.parse_args(given)


def _hunted(mutants: list[Mutant], chosen: argparse.Namespace) -> Iterator[tuple[Mutant, Found]]:
    """Yields each with what found it, as they end, `jobs` at a time."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(chosen.jobs) as pool:
        trees: Queue[Tree] = Queue()
        for number in range(chosen.jobs):
            tree = Tree(ROOT, Path(folder) / str(number))
            tree.compile()
            trees.put(tree)

        def work(mutant: Mutant) -> Found:
            tree = trees.get()
            try:
                tests = () if chosen.no_tests else mutant.tests or tests_of(ROOT, mutant.file)
                return hunt(tree, mutant, tests=tests, seeds=chosen.seeds)
            finally:
                trees.put(tree)

        yield from zip(mutants, pool.map(work, mutants), strict=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
