"""`python -m chaos fuzz`: a million inputs for a group of readers, or for the HTTP edge; the exit code is 1 for a finding.

python -m chaos fuzz rows --inputs 1000000 --seed 7
python -m chaos fuzz rows --only "as Arrow" --first 40728 --inputs 1 --seed 1      one input again
python -m chaos fuzz openapi --examples 500 --seed 3                               requests by the OpenAPI document
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence

from chaos.fuzz.running import Report, run
from chaos.fuzz.target import Target

GROUPS = ("logs", "rows", "peer", "files", "identities", "edge")


def targets_of(group: str) -> list[Target]:
    """Returns the targets of a group; what one alone needs is imported for that one."""
    from importlib import import_module

    make: Callable[[], list[Target]] = import_module(f"chaos.fuzz.groups.{group}").targets
    return make()


def main(given: Sequence[str]) -> int:
    if given[:1] == ["openapi"]:
        from chaos.fuzz.openapi import cli

        return cli.main(given[1:])
    parser = argparse.ArgumentParser(
        prog="chaos fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("group", choices=(*GROUPS, "openapi"))
    parser.add_argument("--inputs", type=int, default=1_000_000, help="in all: each target of the group gets its share")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--only", default="", help="targets with this in their name")
    parser.add_argument("--first", type=int, default=0, help="the number of the first input")
    chosen = parser.parse_args(given)
    targets = [target for target in targets_of(chosen.group) if chosen.only in target.name]
    if not targets:
        sys.stderr.write(f"no target of {chosen.group} has {chosen.only!r} in its name\n")
        return 2
    each = max(1, chosen.inputs // len(targets))
    started_s = time.monotonic()
    reports = [_shown(run(target, each, chosen.seed, first=chosen.first)) for target in targets]
    findings = sum(len(report.findings) for report in reports)
    inputs, read = sum(report.inputs for report in reports), sum(report.read for report in reports)
    sys.stdout.write(
        f"{chosen.group}, seed {chosen.seed}: {inputs:,} inputs in {time.monotonic() - started_s:.0f} s, {read:,} were read, "
        f"{findings} findings\n"
    )
    return 1 if findings else 0


def _shown(report: Report) -> Report:
    sys.stdout.write(f"{report.target:34} {report.inputs:9,} inputs {report.read:9,} read {report.refused:9,} refused\n")
    for finding in report.findings:
        sys.stdout.write(f"  {finding.text()}\n")
    sys.stdout.flush()
    return report
