"""`twinlog audit`: run a Spark job over both sites, show what one found, list them.

What always holds: a job is a process of its own, which this one becomes, so signals, exit code and output are the job's; no
Spark is imported here. An audit is read from its folder, without asking a site. Source: product.md sections 4 and 6.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from twinlog.cli import completion
from twinlog.errors import ConfigError
from twinlog.terminal import JsonOption, out, print_json, verb
from twinlog.wire.home_paths import expanded

app = typer.Typer(no_args_is_help=True, help="Prove that both sites are equal, with Spark; find what differs.")
SETTINGS = (
    "A setting of the job: of repair audit, truth, write; of reconcile tail, encryption_keys; "
    "of replay log, base, into, webhdfs, user, encryption_keys."
)
JOB_EXIT_CODES = "Exit codes: 0 done and nothing to repair, 1 differences or faults found, 2 it could not be done, 130 stopped."


class JobName(StrEnum):
    COMPARE = "compare"
    LOG_AUDIT = "log-audit"
    REPAIR = "repair"
    RECONCILE = "reconcile"
    REPLAY = "replay"


_AuditsOption = Annotated[
    Path, typer.Option("--audits", envvar="TWINLOG_AUDITS", metavar="DIR", help="Where all audits lie, one folder each.")
]


@app.command(epilog=JOB_EXIT_CODES)
@verb
def run(
    job: Annotated[JobName, typer.Argument(
        help="compare: are both sites' rows the same at one barrier; log-audit: gaps, duplicates and damage in the logs; "
             "repair: write what a compare found different; reconcile: what became of records that a rejoin put aside; "
             "replay: a log into a new storage.",
        show_default=False,
    )],
    config: Annotated[str, typer.Option(
        "--config", envvar="TWINLOG_CONFIG", metavar="PAIR", show_default=False,
        help="A site's configuration, an operator's, a demo.json, http://A,http://B, or a twinlog:// address.",
    )] = "",
    peer_config: Annotated[str, typer.Option(
        "--peer-config", metavar="FILE", show_default=False, help="The other site's, where the job needs its files.",
    )] = "",
    tables: Annotated[str, typer.Option(
        "--tables", metavar="NAME,...", show_default=False, help="Only these tables.",
        autocompletion=completion.listed(completion.tables),
    )] = "",
    master: Annotated[str, typer.Option(
        "--master", metavar="URL", show_default=False, help="Spark's master; by default every core of this machine.",
    )] = "",
    audits: _AuditsOption = Path("audits"),
    folder: Annotated[str, typer.Option(
        "--out", metavar="DIR", show_default=False, help="This audit's own folder, which must not exist.",
    )] = "",
    barrier_deadline: Annotated[str, typer.Option(
        "--barrier-deadline", metavar="TIME", help="How long the standby may take to reach the barrier.",
    )] = "2m",
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help=SETTINGS)] = None,
    conf: Annotated[list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark's own.")] = None,
    every: Annotated[str, typer.Option(
        "--every", metavar="TIME", show_default=False, help="Again and again: 30m, 24h, 7d; until a signal.",
    )] = "",
    as_json: JsonOption = False,
) -> None:
    """Run a job: twinlog audit run compare --config demo/demo.json"""
    if importlib.util.find_spec("spark_jobs") is None:
        raise ConfigError("the package spark_jobs is not installed: install twinlog-server with its extra `spark`")
    given = {
        "--config": config, "--peer-config": peer_config, "--tables": tables, "--master": master, "--audits": str(audits),
        "--out": folder, "--barrier-deadline": barrier_deadline, "--every": every,
    }
    words = [job.value, *(word for option, value in given.items() if value for word in (option, value))]
    for option, values in (("--set", settings), ("--conf", conf)):
        words += [word for value in values or () for word in (option, value)]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", "spark_jobs.run", *words, *(["--json"] if as_json else [])])


@app.command(epilog="Exit codes: 0 shown, 1 there is no such audit.")
@verb
def show(
    audit: Annotated[str, typer.Argument(help="Its name, the beginning of it, or its folder; by default the newest.")] = "",
    audits: _AuditsOption = Path("audits"),
    findings: Annotated[int, typer.Option("--findings", min=0, help="Show at most so many findings.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """Shows the findings of an audit."""
    from spark_jobs.report.folder import find_audit
    from spark_jobs.report.screens import show_audit

    found = find_audit(expanded(audits, "--audits"), audit)
    if as_json:
        print_json({**found.summary, "path": str(found.path)})
    else:
        show_audit(out(), found, findings)


@app.command("ls", epilog="Exit codes: 0 listed.")
@verb
def list_audits(audits: _AuditsOption = Path("audits"), as_json: JsonOption = False) -> None:
    """All audits of the folder, oldest first."""
    from spark_jobs.report.folder import history
    from spark_jobs.report.screens import show_history

    found, others = history(expanded(audits, "--audits"))
    if as_json:
        print_json({
            "audits": [{**one.summary, "path": str(one.path)} for one in found], "unfinished": [str(path) for path in others]
        })
    else:
        show_history(out(), audits, found, others)
