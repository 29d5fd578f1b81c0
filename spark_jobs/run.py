"""The command of the Spark jobs: `python -m spark_jobs.run JOB --config FILE`; also for spark-submit, and for `twinlog audit`.

What always holds: exit code 0 says that the audit was done and all is sound, 1 that something is not, 2 that it could not be
done, 130 that a signal stopped it; standard output carries the outcome, with --json exactly one document; errors are one line.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path

if __name__ == "__main__" and not __package__:  # a file given to spark-submit: its folder is in the path, and not the one above
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from rich.markup import escape

from spark_jobs.audit.audit import JOBS, AuditPlan, Ended, check_settings, perform
from spark_jobs.audit.gateways import HELD_DEADLINE_S
from spark_jobs.audit.java import java_program
from spark_jobs.audit.progress import Steps
from spark_jobs.audit.schedule import run_every, seconds
from spark_jobs.audit.session import check_installed
from spark_jobs.audit.sites import load_pair
from spark_jobs.report.folder import AUDITS, AuditReport, audit_id
from spark_jobs.report.screens import show_audit
from twinlog.cli.console import SafeConsole
from twinlog.errors import ConfigError, InvalidInput, TwinlogError, named
from twinlog.terminal import OWNER_ONLY
from twinlog.wire.token import TOKEN_VARIABLE, token_source

GOOD, DIFFERENCES, NOT_DONE, STOPPED = 0, 1, 2, 130
CODES = {"good": GOOD, "bad": DIFFERENCES, "failed": NOT_DONE}
EXIT_CODES = "Exit codes: 0 done and nothing to repair, 1 differences or faults found, 2 it could not be done, 130 stopped."
FINDINGS_SHOWN = 10


def parser() -> argparse.ArgumentParser:
    jobs = "\n".join(f"  {name:10} {kind.what}" for name, kind in JOBS.items())
    made = argparse.ArgumentParser(
        "spark_jobs.run", description=f"Audit a pair with Spark. Jobs:\n{jobs}", epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("job", metavar="JOB", help=", ".join(JOBS))
    made.add_argument("--config", metavar="PAIR", default=os.environ.get("TWINLOG_CONFIG"),
                      help="a site's configuration, an operator's, a demo.json, http://A,http://B, or a twinlog:// address "
                           "(default: TWINLOG_CONFIG)")
    made.add_argument("--peer-config", metavar="FILE", type=Path, help="the other site's, where the job needs its files")
    made.add_argument("--tables", metavar="NAME,...", default="", help="only these tables")
    made.add_argument("--master", metavar="URL", help="Spark's master (default: every core of this machine)")
    made.add_argument("--audits", metavar="DIR", type=Path, default=Path(os.environ.get("TWINLOG_AUDITS") or AUDITS),
                      help="where all audits lie, one folder each (default: TWINLOG_AUDITS, else ./audits)")
    made.add_argument("--out", metavar="DIR", type=Path, help="this audit's own folder, which must not exist")
    made.add_argument("--barrier-deadline", metavar="TIME", default=f"{HELD_DEADLINE_S:.0f}s",
                      help="how long the standby may take to reach the barrier (default 2m)")
    made.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help="a setting of the job")
    made.add_argument("--conf", metavar="KEY=VALUE", action="append", default=[], help="a setting of Spark's own")
    made.add_argument("--every", metavar="TIME", help="again and again: 30m, 24h, 7d; until a signal")
    made.add_argument("--json", action="store_true", help="print one JSON document instead of text")
    return made


def main(arguments: list[str] | None = None) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = parser().parse_args(given)
    with os.fdopen(os.dup(2), "w", buffering=1) as screen:  # of its own: what goes to 2 lands in a file meanwhile
        return _run(options, given, SafeConsole(file=screen))


def _run(options: argparse.Namespace, given: list[str], notes: SafeConsole) -> int:
    try:
        plan = _plan(options)
        if options.every is not None:
            return run_every(seconds(options.every), _without_every(given), notes)
        ended = perform(plan, Steps(notes))
    except TwinlogError as error:
        _show_error(error, notes, as_json=options.json)
        return NOT_DONE
    except KeyboardInterrupt:
        notes.print("Stopped: nothing was written, and the sites' snapshots are released.")
        return STOPPED
    except Exception as error:  # a defect; Python's own exit code for it would say that differences were found
        _show_error(_defect(error), notes, as_json=options.json)
        return NOT_DONE
    _show(ended, notes, as_json=options.json)
    return CODES[str(ended.summary["outcome"])]


def _plan(options: argparse.Namespace) -> AuditPlan:
    """Everything that can be wrong before anything begins. Raises InvalidInput, ConfigError."""
    if options.job not in JOBS:
        raise InvalidInput(f"there is no job {options.job!r}: this release has {', '.join(JOBS)}")
    if options.config is None:
        raise InvalidInput("which pair? give --config FILE (of a site or a demo) or addresses, or set TWINLOG_CONFIG")
    if options.every is not None and options.out is not None:
        raise InvalidInput("--out names one audit's folder, and --every makes many: give --audits DIR")
    if options.every is not None:
        seconds(options.every)
    settings = _pairs(options.set, "--set")
    check_settings(options.job, settings)
    pair = load_pair(options.config, options.peer_config)
    if source := token_source(str(options.config)):
        os.environ[TOKEN_VARIABLE] = source  # of every client of this process; for a file it is the reference
    check_installed()
    if "PYSPARK_GATEWAY_PORT" not in os.environ:  # spark-submit has found its Java
        java_program()
    name = audit_id(options.job, datetime.now(UTC))
    return AuditPlan(
        options.job, name, pair, options.out or options.audits / name,
        tuple(filter(None, options.tables.split(","))), options.master, seconds(options.barrier_deadline),
        settings, _pairs(options.conf, "--conf"),
    )


def _pairs(given: list[str], option: str) -> dict[str, str]:
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise InvalidInput(f"{option} {text}: write {option} NAME=VALUE")
        found[name] = value
    return found


def _without_every(given: list[str]) -> list[str]:
    """The command of one of many audits."""
    kept, skip = [], False
    for word in given:
        if not skip and not word.startswith("--every="):
            kept.append(word)
        skip = not skip and word == "--every"
        if skip:
            kept.pop()
    return kept


def _show(ended: Ended, notes: SafeConsole, *, as_json: bool) -> None:
    for site, why in ended.untold.items():
        notes.print(f"[yellow]![/] site {site} did not receive the outcome of this audit: {escape(why)}")
    if as_json:
        sys.stdout.write(json.dumps({**ended.summary, "path": str(ended.path)}, indent=2, default=str) + "\n")
        sys.stdout.flush()
        return
    show_audit(SafeConsole(), AuditReport(ended.path, ended.summary), FINDINGS_SHOWN)


def _defect(error: Exception) -> TwinlogError:
    where = traceback.extract_tb(error.__traceback__)[-1]
    said = f"{named(error)}, in {Path(where.filename).name}, line {where.lineno}"
    return TwinlogError(f"{said}: this is a defect of twinlog")


def _show_error(error: TwinlogError, notes: SafeConsole, *, as_json: bool) -> None:
    if as_json:
        document = {"error": {**error.fields, "code": error.code, "message": error.message}}
        sys.stdout.write(json.dumps(document, default=str) + "\n")
        return
    kind = "config-error" if isinstance(error, ConfigError) else error.code
    notes.print(f"[bold red]{kind}[/]: {escape(error.message)}", soft_wrap=True)


if __name__ == "__main__":
    os.umask(OWNER_ONLY)
    sys.exit(main())
