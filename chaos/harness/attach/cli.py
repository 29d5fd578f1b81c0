"""`python -m chaos attach --config PAIR`: a run against a running pair of your own.

What always holds: nothing is asked of the pair before the plan is sound, and nothing is changed before the pair is whole; role
changes and faults of links are shown and confirmed first. Exit codes are those of `run`; also 3 when the run was ended early,
when a site did not answer at the end, or when something of the run is left behind.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from chaos.fault_lines import Fault, fault_text
from chaos.harness.attach.proxies import server_at
from chaos.harness.attach.run import LINKS_BROKEN, TYPED, Attachment
from chaos.harness.courses import read_plan
from chaos.harness.plan import HarnessPlan, sound
from chaos.harness.report.kept import keep, new_folder
from chaos.harness.report.summary import line_of, summary
from chaos.harness.screen import console_of, ended, show
from chaos.harness.traffic.workloads import WORKLOADS
from gateway.stopping import stopping
from twinlog.errors import InvalidInput
from twinlog.wire.token import TOKEN_VARIABLE, token_source

MINUTES = 1.0


def arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m chaos attach", description="Traffic and checks against a running pair of your own. It kills nothing,"
        " touches no file of a site, and accepts no loss.",
    )
    parser.add_argument("--config", required=True, metavar="PAIR", help="an operator's TOML, demo.json, http://A,http://B")
    parser.add_argument("--workload", choices=sorted(WORKLOADS), help="default: the plan's, else registers")
    parser.add_argument("--minutes", type=float, help=f"how long clients work (default {MINUTES:g}; with --plan: the plan's)")
    parser.add_argument("--rate", type=float, help="operations a second, by all clients together (default 100)")
    parser.add_argument("--clients", type=int, help="that follow the active (default 6)")
    parser.add_argument("--seed", type=int, help="of what clients ask (default 0)")
    parser.add_argument("--switchovers", type=int, default=0, metavar="N", help="planned changes of the active, evenly spread")
    parser.add_argument("--plan", metavar="FILE", help="commands and faults of links, with their times")
    parser.add_argument("--toxiproxy", metavar="HOST:PORT", help="the API of yours, with proxies named c>a, c>b, a>b, b>a")
    parser.add_argument("--keep-tables", action="store_true", help="do not drop the tables of the run at its end")
    parser.add_argument("--yes", action="store_true", help="role changes and faults of links without a question")
    parser.add_argument("--out", type=Path, help="a new folder for the report (default: out/chaos/TIME)")
    chosen = parser.parse_args(given)
    if chosen.plan and (chosen.switchovers or chosen.minutes is not None):
        parser.error("--plan says how long it takes, and which commands come when: leave out --minutes and --switchovers")
    if (chosen.minutes is not None and chosen.minutes <= 0) or chosen.switchovers < 0:
        parser.error("--minutes must be more than 0, and --switchovers not below 0")
    return chosen


def plan_of(chosen: argparse.Namespace) -> HarnessPlan:
    """Raises InvalidInput."""
    if chosen.plan:
        plan = read_plan(chosen.plan)[1]
    else:
        seconds = 60 * (MINUTES if chosen.minutes is None else chosen.minutes)
        apart_s = seconds / (chosen.switchovers + 1)
        faults = [Fault(round(apart_s * (at + 1), 1), "switchover", "standby") for at in range(chosen.switchovers)]
        plan = HarnessPlan("a pair that was there already", seconds=seconds, faults=tuple(faults))
    given = {name: getattr(chosen, name) for name in ("workload", "rate", "clients", "seed")}
    return sound(replace(plan, **{name: value for name, value in given.items() if value is not None}))


def main(given: list[str]) -> int:
    return ended(partial(_run, arguments(given)), "the run could not begin")


def _run(chosen: argparse.Namespace) -> int:
    console, plan = console_of(), plan_of(chosen)
    server = server_at(chosen.toxiproxy) if chosen.toxiproxy else None
    if source := token_source(chosen.config):
        os.environ[TOKEN_VARIABLE] = source  # of every client of this process; for a file it is the reference
    attachment = Attachment(plan, chosen.config, server, keep_tables=chosen.keep_tables, say=console.print)
    try:
        with stopping():
            console.print(attachment.look())
            if not (chosen.yes or _agreed(attachment)):
                sys.stderr.write("nothing was begun\n")
                return 2
            folder = new_folder(chosen.out)
        run = asyncio.run(attachment.execute())
    finally:
        attachment.close()
    again = f"python -m chaos attach --config {chosen.config} --plan {folder / 'plan.txt'}"
    show(console, run, keep(run, "attached", folder, again + (f" --toxiproxy {chosen.toxiproxy}" if server else "")))
    line = line_of("attached", run)
    console.print(summary([line]))
    return 1 if line.violations else 3 if attachment.unfinished else 0


def _agreed(attachment: Attachment) -> bool:
    """Shows what will be changed, and asks. Raises InvalidInput where nobody can answer."""
    faults = attachment.plan.faults
    if not faults:
        return True
    say = sys.stdout.write
    for title, kinds in (("Role changes, by `twinlog`:", TYPED), ("On your links:", LINKS_BROKEN)):
        chosen = [fault_text(fault) for fault in faults if fault.kind in kinds]
        if chosen:
            say("\n  ".join((title, *chosen)) + "\n")
    if any(fault.kind in TYPED for fault in faults):
        say("Afterwards also what `twinlog advise`, a site's status or the handbook names, until the pair is whole; nothing"
            " that accepts a loss.\n")
    if not sys.stdin.isatty():
        raise InvalidInput("nobody can be asked whether this is wanted: say --yes")
    return input("Type yes to begin: ").strip() == "yes"

