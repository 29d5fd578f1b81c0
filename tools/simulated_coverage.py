"""Reports which lines of the product's heart the simulator runs, and names those that it does not: `make simulate-coverage`.

What always holds: every file of SCOPE is either counted or in LEFT_OUT with the reason, and a row of either that fits no file
is an error, so that the table stays true; the same seeds of the same code give the same page. A line that runs is not a line
that is right: the page is for what is NOT run, which no checker of the simulator can have seen.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import io
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any

from coverage import Coverage

from tools.sources import ROOT, repository_files

SEEDS, FIRST_SEED = 400, 0
PAGE = ROOT / "docs" / "simulation-coverage.md"
SCOPE = (
    "storage/*", "remote_log/*", "gateway/epoch/*", "gateway/service/rows.py", "gateway/service/conditions.py",
    "gateway/service/key_gate.py", "gateway/service/receipts.py", "gateway/service/as_of.py", "gateway/site/site.py",
    "gateway/site/operations.py", "switchover/*", "twinlog/errors.py",
)
POINTS = {  # of runs that aim, where the points of ports are counted
    "engine.finish_base.after": "base data filled a site (of those that aim)",
    "engine.replace_rows.after": "a rejoin left rows again (of those that aim)",
}
LEFT_OUT = {  # files -> why the simulator does not run them, and what tests them instead
    "storage/disk/os_files.py": "the real disk; `tests/storage/disk/files_contract.py` compares it with the simulated one",
    "storage/disk/workers.py": "threads, in whose place simulated engines have time; `tests/storage/disk/test_workers.py`",
    "storage/disk/data_dir.py": "a lock of the operating system; `tests/storage/disk/test_data_dir.py`",
    "storage/rows/types.py": "values of columns, pure; property tests in `tests/storage/rows/test_types.py`",
    "storage/rows/keys.py": "the key codec, pure; property tests in `tests/storage/rows/test_keys.py`",
    "storage/rows/codec.py": "the row codec, pure; property tests in `tests/storage/rows/test_codec.py`",
    "storage/rows/compiled.py": "its fast lane, held to it by `tests/storage/rows/test_codec.py`",
    "storage/rows/arrow*.py": "its lane for Arrow, held to it by `tests/storage/rows/test_arrow.py`",
    "storage/rows/predicates.py": "the `where` of scans, pure; `tests/storage/rows/test_predicates.py`",
    "remote_log/dfs/directory*.py": "the real DFS; `tests/remote_log/dfs/dfs_contract.py` compares it with the simulated one",
    "remote_log/dfs/hdfs/*.py": "a real HDFS; `tests/remote_log/dfs/hdfs/test_hdfs_dfs.py`, by the contract of all DFSs",
    "remote_log/dfs/queued_writer.py": "the thread of an open file, of directory and HDFS; the same contract",
    "switchover/*sql*.py": "SQL databases; `tests/switchover/register/test_coordinator.py`",
}


@dataclass(frozen=True, slots=True)
class Gap:
    """Lines of one function that were not run, as ranges from first to last."""

    function: str
    ranges: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        lines = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in self.ranges)
        return f"`{self.function}`: {lines}"


@dataclass(frozen=True, slots=True)
class Measured:
    """One file: how many statements it has, how many of them were run, and where the others are."""

    path: str
    statements: int
    run: int
    gaps: tuple[Gap, ...]


def functions_of(source: str) -> dict[int, str]:
    """Line -> the innermost function or class around it, with its classes before it; a `def` line belongs to what is around."""
    names: dict[int, str] = {}

    def enter(node: ast.AST, around: str) -> None:
        for child in ast.iter_child_nodes(node):
            inner = around
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{around}.{child.name}" if around else child.name
                body = range(child.body[0].lineno, (child.end_lineno or child.lineno) + 1)
                names.update(dict.fromkeys(body, inner))
            enter(child, inner)

    enter(ast.parse(source), "")
    return names


def gaps(source: str, statements: Iterable[int], missing: Iterable[int]) -> tuple[Gap, ...]:
    """The functions with statements that were not run, in the order of the file. A range continues as long as no statement that
    was run, and none of another function, lies between. `statements`: the line on which each begins."""
    names, lacking = functions_of(source), set(missing)
    found: dict[str, list[tuple[int, int]]] = {}
    before = ""  # the function of the statement before, if that was not run
    for line in sorted(statements):
        name = names.get(line, "(module)")
        if line not in lacking:
            before = ""
            continue
        ranges = found.setdefault(name, [])
        if name == before:
            ranges[-1] = (ranges[-1][0], line)
        else:
            ranges.append((line, line))
        before = name
    return tuple(Gap(name, tuple(ranges)) for name, ranges in found.items())


def counted(paths: Iterable[str]) -> list[str]:
    """The files of SCOPE that are not left out. Raises ValueError for a row of SCOPE or LEFT_OUT that fits no file."""
    paths = list(paths)
    for pattern in SCOPE:
        if not any(fnmatch(path, pattern) for path in paths):
            raise ValueError(f"SCOPE names {pattern}, which is not there any more: name what took its place")
    scope = [path for path in paths if any(fnmatch(path, pattern) for pattern in SCOPE)]
    for pattern in LEFT_OUT:
        if not any(fnmatch(path, pattern) for path in scope):
            raise ValueError(f"LEFT_OUT names {pattern}, which is not there any more: take it out")
    return [path for path in scope if not any(fnmatch(path, pattern) for pattern in LEFT_OUT)]


def measure(seeds: Iterable[int], paths: Sequence[str], came: Counter[str]) -> list[Measured]:
    """Runs them, and looks. In a process that has imported none of the product yet, else its imports count as not run. `came`
    counts in how many of the runs each thing came about."""
    coverage = Coverage(data_file=None, include=[str(ROOT / path) for path in paths], config_file=False)
    coverage.start()
    try:
        draw = importlib.import_module("chaos.simulate.draw").draw
        room: Any = importlib.import_module("chaos.simulate.run")
        for seed in seeds:
            run = room.Run(draw(seed))
            found = run.execute()
            came.update(_came_about(run, found))
            if found.violations:
                print(f"  seed {seed} fails: {found.violations[0].sentence}", file=sys.stderr)
            room.collect()
    finally:
        coverage.stop()
    return [measured for path in paths if (measured := _measured(coverage, path)).statements]


def _came_about(run: Any, found: Any) -> set[str]:
    """Returns what a run held: its way of writing, its aim, and what ended in it as it should."""
    came = {f"workload `{found.plan.workload}`"}
    if run.world.steps:
        came.add("aims at steps")
    if any("at step" in line for line in found.trace):
        came.add("was struck at a step that it aimed at")
    machines = run.world.machines.values()
    ended = [operation for machine in machines for operation in machine.journal.all() if operation.state == "succeeded"]
    came |= {f"`{operation.kind}` succeeded" for operation in ended}
    came |= {f"`{operation.kind}` succeeded after a resume" for operation in ended if operation.attempt > 1}
    passed = {point for steps in run.world.steps.values() for point in steps.census}
    came |= {told for point, told in POINTS.items() if point in passed}
    return came


def _measured(coverage: Coverage, path: str) -> Measured:
    _, statements, _, missing, _ = coverage.analysis2(str(ROOT / path))
    source = (ROOT / path).read_text(encoding="utf-8")
    return Measured(path, len(statements), len(statements) - len(missing), gaps(source, statements, missing))


def percent(run: int, statements: int) -> str:
    """Rounded down, so that only what is whole says 100."""
    return f"{run * 1000 // statements / 10:.1f} %"


def page(files: Sequence[Measured], first: int, count: int, came: Counter[str]) -> str:
    """The whole page, as Markdown."""
    run, statements = sum(file.run for file in files), sum(file.statements for file in files)
    out = io.StringIO()
    out.write(
        "# What the simulator runs, and what it does not\n\n"
        f"Written by `make simulate-coverage`. Seeds {first} to {first + count - 1} ran **{percent(run, statements)}** of"
        f" {statements} statements in {len(files)} files:\nthe logs, the storage's core and engines, the epoch of an"
        " active, rows and conditions, the site and the role changes.\nA line that ran is no proof that it is right."
        " The simulator knows nothing of a line that did not run.\n\n"
        "| file | run | statements | not run |\n|---|---|---|---|\n"
    )
    for file in sorted(files, key=lambda file: (file.run / file.statements, file.path)):
        not_run = file.statements - file.run
        out.write(f"| `{file.path}` | {percent(file.run, file.statements)} | {file.statements} | {not_run} |\n")
    out.write(f"\n## What came about\n\n| in a run | runs of {count} |\n|---|---|\n")
    out.write("".join(f"| {what} | {runs} |\n" for what, runs in sorted(came.items())))
    out.write("\n## Not run, by function\n\nThe numbers are lines.\n")
    for file in files:
        if file.gaps:
            out.write(f"\n### `{file.path}`\n\n" + "".join(f"- {gap}\n" for gap in file.gaps))
    out.write("\n## Left out\n\n| files | why, and what tests them |\n|---|---|\n")
    for pattern, why in LEFT_OUT.items():
        out.write(f"| `{pattern}` | {why} |\n")
    return out.getvalue()


def main() -> int:
    parser = argparse.ArgumentParser(prog="simulated_coverage", description="Writes docs/simulation-coverage.md.")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="how many")
    parser.add_argument("--seed", type=int, default=FIRST_SEED, help="the first")
    given = parser.parse_args()
    paths = counted(str(path) for path in repository_files(ROOT, ".py"))
    came: Counter[str] = Counter()
    files = measure(range(given.seed, given.seed + given.seeds), paths, came)
    PAGE.write_text(page(files, given.seed, given.seeds, came), encoding="utf-8")
    run, statements = sum(file.run for file in files), sum(file.statements for file in files)
    print(f"{percent(run, statements)} of {statements} statements: {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
