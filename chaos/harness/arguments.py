"""The options of the commands on real processes."""

from __future__ import annotations

import argparse
from pathlib import Path

from chaos.harness.bugs.bugs import BUGS
from chaos.harness.matrix.rows import BY_NAME


def arguments(given: list[str]) -> argparse.Namespace:
    """Ends the process with exit code 2, and a sentence, where they are wrong."""
    parser = argparse.ArgumentParser(prog="python -m chaos", description="A pair of real processes, broken on purpose.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the scenarios, workloads, kinds of faults, and planted bugs")
    run = commands.add_parser("run", help="scenarios one after the other, and their reports")
    run.add_argument("scenario", nargs="+", help="a name that `list` shows, or the file of a plan")
    run.add_argument("--minutes", type=float, help="go through the faults again until so long (default: once)")
    run.add_argument("--seed", type=int, help="of what clients ask (default: the plan's)")
    run.add_argument("--out", type=Path, help="a new folder for the reports (default: out/chaos/TIME)")
    run.add_argument("--bug", default="", metavar="NAME", help=f"plant a bug in both gateways: {', '.join(BUGS)}")
    rows = commands.add_parser("matrix", help="the scenarios of each row of the fault matrix, until each has run often enough")
    rows.add_argument("row", nargs="*", help=f"all, or some of {', '.join(BY_NAME)}")
    rows.add_argument("--runs", type=int, help="of each row, those in the record included (default: each scenario once)")
    rows.add_argument("--minutes", type=float, help="no run begins after so long")
    rows.add_argument("--out", type=Path, help="a new folder for the reports")
    soak = commands.add_parser("soak", help="random faults from a seed, leg after leg, each with a pair of its own")
    soak.add_argument("--hours", type=float, required=True, help="no leg begins after so long, legs in the record included")
    soak.add_argument("--seed", type=int, default=0, help="of all that is drawn (default 0)")
    soak.add_argument("--out", type=Path, help="a new folder for the reports")
    for command in (run, rows, soak):
        _parts(command)
        command.add_argument("--record", type=Path, metavar="FILE", help="a line for each run, or leg, is added to it")
    planted = commands.add_parser("planted", help="each planted bug in its short plan: whether it is found, and by what")
    planted.add_argument("bug", nargs="*", help=f"all, or some of {', '.join(BUGS)}")
    planted.add_argument("--out", type=Path, help="a new folder for the reports")
    again = commands.add_parser("replay", help="the run of a report.json again")
    again.add_argument("report", type=Path)
    again.add_argument("--out", type=Path, help="a new folder for the report")
    chosen = parser.parse_args(given)
    _check(parser, chosen)
    return chosen


def _parts(command: argparse.ArgumentParser) -> None:
    command.add_argument("--dfs", choices=("directory", "hdfs"), default="directory", help="of both sites (default directory)")
    command.add_argument("--engine", choices=("rocksdb", "postgresql"), default="rocksdb", help="of both (default rocksdb)")
    command.add_argument(
        "--coordinator", choices=("yes", "server", "no"), default="yes",
        help="in a file of SQLite, in a PostgreSQL of its own, or none: the register is on the two DFSs (default yes)",
    )
    command.add_argument("--secured", action="store_true", help="TLS on every listener, and tokens for all who ask")


def _check(parser: argparse.ArgumentParser, chosen: argparse.Namespace) -> None:
    if chosen.command == "run" and chosen.bug and chosen.bug not in BUGS:
        parser.error(f"--bug {chosen.bug}: there are {', '.join(BUGS)}")
    if chosen.command == "planted" and any(bug not in BUGS for bug in chosen.bug):
        parser.error(f"a planted bug is one of {', '.join(BUGS)}")
    runs = 1 if chosen.command != "matrix" or chosen.runs is None else chosen.runs
    if chosen.command == "matrix" and (runs < 1 or any(row not in BY_NAME for row in chosen.row)):
        parser.error(f"--runs is at least 1, and a row is one of {', '.join(BY_NAME)}")
    if getattr(chosen, "minutes", None) is not None and chosen.minutes <= 0:
        parser.error("--minutes must be more than 0")
    if chosen.command == "soak" and chosen.hours <= 0:
        parser.error("--hours must be more than 0")
