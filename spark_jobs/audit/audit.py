"""One audit from its beginning to its end: barrier, session, job, folder, and telling both sites.

What always holds: once its folder is begun an audit ends in one of three ways: whole (`good` or `bad`), `failed` with the
reason and without findings, or gone without a trace, after a signal or when the folder cannot be written; in all three the
barrier is released.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from spark_jobs.audit.gateways import HELD_DEADLINE_S, Gateways
from spark_jobs.audit.progress import Steps
from spark_jobs.audit.reporting import reporting
from spark_jobs.audit.session import in_words, own_session
from spark_jobs.audit.sites import AuditedPair
from spark_jobs.audit.stopping import stopping, undisturbed
from spark_jobs.audit.telling import note_of, report_of
from spark_jobs.job import Barrier, Chart, Job, JobRequest, Outcome, TableTally
from spark_jobs.report.advice import advice_for
from spark_jobs.report.folder import FINDINGS, REPORT, SPARK_LOG, AuditFolder, first_findings
from spark_jobs.report.page import ROWS_MAX, render
from twinlog.errors import InvalidInput, TwinlogError, Unavailable, named, reason, words
from twinlog.sites import who
from twinlog.wire.audit_report import DIFFERENCES_MAX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


OpenSession = Callable[[str | None, str, Mapping[str, str]], AbstractContextManager["SparkSession"]]


@dataclass(frozen=True, slots=True)
class JobKind:
    """A job that can be run. `at_barrier`: it reads both sites' storage, so both must be up and hold a snapshot. `settings`: of
    `--set`, by name: what is said to who leaves it out, or nothing for one that may be left out."""

    module: str
    at_barrier: bool
    what: str
    settings: Mapping[str, str] = field(default_factory=dict)


JOBS = {
    "compare": JobKind("spark_jobs.compare.job", True, "are both sites' rows the same, byte by byte, at one barrier"),
    "log-audit": JobKind("spark_jobs.log_audit.job", False, "gaps, duplicates and damage in both sites' logs"),
    "repair": JobKind("spark_jobs.repair.job", False, "write what a compare found, through the active; a dry run at first", {
        "audit": "repair which differences? give --set audit=NAME of a compare; `twinlog audit ls` lists them",
        "truth": "", "write": "",
    }),
    "reconcile": JobKind("spark_jobs.reconcile.job", True, "what became of records that a rejoin put aside; which are lost", {
        "tail": "reconcile what? give --set tail=PATH: a quarantine's .frames file or its folder, or its manifest",
        "encryption_keys": "",
    }),
    "replay": JobKind("spark_jobs.replay.job", False, "a log, in parallel, into a new storage; byte by byte the engine's own", {
        "log": "replay what? give --set log=FOLDER, or log=hdfs://...", "base": "",
        "into": "replay into what? give --set into=FOLDER, which must not exist", "webhdfs": "", "user": "",
        "encryption_keys": "",
    }),
}


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """The audit that was asked for."""

    job: str
    id: str
    pair: AuditedPair
    out: Path
    tables: tuple[str, ...] = ()
    master: str | None = None
    barrier_deadline_s: float = HELD_DEADLINE_S
    options: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)  # Spark's own


@dataclass(frozen=True, slots=True)
class Ended:
    """A finished audit. `untold`: site -> why it does not know of it."""

    path: Path
    summary: Mapping[str, Any]
    untold: Mapping[str, str]


def check_settings(job: str, given: Mapping[str, str]) -> None:
    """Raises InvalidInput for a setting that the job does not know, or one that is missing."""
    known = JOBS[job].settings
    for name in given:
        if name not in known:
            raise InvalidInput(f"{job} has no setting {name!r}: it " + (f"knows {', '.join(known)}" if known else "takes none"))
    for name, missing in known.items():
        if missing and not given.get(name):
            raise InvalidInput(missing)


def perform(plan: AuditPlan, steps: Steps, session: OpenSession = own_session) -> Ended:
    """Run it; `session` opens Spark.

    Raises ConfigError before anything is written, KeyboardInterrupt after a signal, Unavailable when the folder cannot be
    written: then there is no folder, and the sites know that the audit failed.
    """
    folder = AuditFolder(plan.out)
    started = datetime.now(UTC)
    began_s = time.monotonic()
    try:
        with stopping(), closing(Gateways(plan.pair.sites)) as gateways:
            work = _Work(plan, folder, gateways, steps, session)
            try:
                with reporting(plan.pair.sites, plan.id, plan.job, steps), steps.shown():
                    work.run()
            except TwinlogError as error:
                work.fail(error)
            except Exception as error:  # Spark's and Py4J's, or a defect: never an audit taken for good
                work.fail(_told(error), is_own=False)
            with undisturbed():
                path = work.end(started, time.monotonic() - began_s)
                return Ended(path, work.summary, work.tell())
    except BaseException:
        folder.discard()
        raise


class _Work:
    """The state of one audit. `summary` grows; what is in it already may be written at any time."""

    def __init__(
        self, plan: AuditPlan, folder: AuditFolder, gateways: Gateways, steps: Steps, session: OpenSession
    ) -> None:
        self.plan, self.folder, self.gateways, self.steps, self.session = plan, folder, gateways, steps, session
        self.charts: tuple[Chart, ...] = ()
        self.tallies: tuple[TableTally, ...] = ()
        self.sample: list[dict[str, Any]] = []  # the first findings, for the sites
        self.is_own_error = True  # of an error: its message is twinlog's own
        self.summary: dict[str, Any] = {
            "id": plan.id, "job": plan.job, "pair": plan.pair.name, "outcome": "failed", "error": None, "findings": 0,
            "kinds": {}, "advice": {}, "counters": {}, "tables": list(plan.tables), "remarks": [], "barrier": None,
            "sites": {name: {"url": site.url, "engine": site.engine} for name, site in plan.pair.sites.items()},
            "files": [], "options": dict(plan.options), "by": who(),
            "spark": {"version": None, "master": plan.master}, "twinlog": _version(),
        }

    def run(self) -> None:
        kind = JOBS[self.plan.job]
        if kind.at_barrier:
            self.steps.step("asking both sites who is active")
            self.gateways.active()
        with ExitStack() as stack:
            stack.enter_context(_stderr_into(self.folder.part / SPARK_LOG))
            self.steps.step("starting Spark")
            name = f"twinlog {self.plan.job} {self.plan.id}"
            spark = stack.enter_context(self.session(self.plan.master, name, self.plan.settings))
            stack.enter_context(stopping())  # again: Spark has set a handler of its own
            self.summary["spark"] = {"version": spark.version, "master": spark.sparkContext.master}
            stack.enter_context(self.steps.watching(spark))
            request = self._request(stack, at_barrier=kind.at_barrier)
            job = cast(Job, importlib.import_module(kind.module).run)
            self._write(job(spark, request, self.steps))

    def _request(self, stack: ExitStack, *, at_barrier: bool) -> JobRequest:
        pair = self.plan.pair
        barrier: Barrier | None = None
        source, peer = pair.sites[pair.own], next(site for name, site in pair.sites.items() if name != pair.own)
        if at_barrier:
            self.steps.step("setting a barrier on both sites")
            held = stack.enter_context(
                self.gateways.held(f"audit-{self.plan.id}", self.plan.barrier_deadline_s, self.steps.step)
            )
            barrier, source, peer = held.barrier, held.source, held.peer
            for site, role in ((source, "active"), (peer, "standby")):
                self.summary["sites"][site.name].update(role=role, engine=site.engine, place=site.place)
                if site.engine == "postgresql" and not site.engine_url:
                    raise InvalidInput(
                        f"site {site.name} keeps its rows in PostgreSQL, and its address is not known: give its configuration "
                        "too, with --peer-config FILE"
                    )
            self.summary["barrier"] = {
                "name": barrier.name, "epoch": barrier.epoch, "seq": barrier.seq, "taken_at": barrier.taken_at
            }
        return JobRequest(
            self.plan.job, pair.name, source, peer, self.folder.part, self.plan.tables, barrier, self.plan.options
        )

    def _write(self, outcome: Outcome) -> None:
        self.steps.step("writing what was found")
        files = []
        for name, frame in {FINDINGS.removesuffix(".parquet"): outcome.findings, **outcome.frames}.items():
            rows, size = self.folder.write_frame(frame, name)
            files.append({"name": f"{name}.parquet", "rows": rows, "bytes": size})
        kinds = self.folder.count_kinds()
        self.summary.update(
            outcome="good" if outcome.good else "bad", findings=files[0]["rows"], counters=dict(outcome.counters),
            files=files,
            tables=list(outcome.tables), remarks=list(outcome.remarks), kinds=kinds,
            advice=advice_for(self.plan.job, kinds),
        )
        self.charts, self.tallies = outcome.charts, outcome.tallies
        self.sample = first_findings(self.folder.part, DIFFERENCES_MAX)

    def fail(self, error: TwinlogError, *, is_own: bool = True) -> None:
        self.tallies, self.sample, self.is_own_error = (), [], is_own
        self.summary.update(
            outcome="failed", error={"code": error.code, "message": error.message}, findings=0, kinds={}, counters={}, files=[]
        )

    def end(self, started: datetime, took_s: float) -> Path:
        """The last files of the folder, and its name. Raises Unavailable."""
        self.steps.end_stage()
        self.summary.update(
            started_at=_rfc3339(started), finished_at=_rfc3339(datetime.now(UTC)), took_s=round(took_s, 3)
        )
        try:
            if self.summary["outcome"] == "failed":
                self.folder.clear_results()
            else:
                self.folder.write_text(REPORT, render(self.summary, first_findings(self.folder.part, ROWS_MAX), self.charts))
            self.folder.write_summary(self.summary)
            return self.folder.finish()
        except OSError as error:
            unwritten = Unavailable(
                f"the audit cannot be written to {self.folder.part} ({reason(error)}), and nothing of it is kept: "
                "make room, or give another --out or --audits"
            )
            self.fail(unwritten)
            self.tell()
            raise unwritten from error

    def tell(self) -> dict[str, str]:
        """Reports the end to both sites. Returns site -> error of each that did not answer."""
        report = report_of(
            self.summary, self.sample, self.tallies, self.steps.stages, self.steps.pace, is_own_error=self.is_own_error
        )
        return self.gateways.tell(note_of(self.summary), report)


@contextmanager
def _stderr_into(path: Path) -> Iterator[None]:
    """Standard error of this process and of those it starts goes into the file: Java's and the Python workers' above all."""
    sys.stderr.flush()
    kept = os.dup(2)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(file, 2)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(file)
        os.close(kept)


_RAISED_IN_WORKER = re.compile(re.escape(TwinlogError.__module__) + r"\.\w+: (.+)")


def _told(error: Exception) -> TwinlogError:
    """Returns the original error of a worker that Spark wrapped; else one line of Spark's message."""
    raised = _RAISED_IN_WORKER.search(words(error))
    if raised is not None:
        return Unavailable(raised[1].strip())
    return TwinlogError(f"{named(error, in_words(error))}; more is in {SPARK_LOG} of the audit's folder")


def _rfc3339(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def _version() -> str:
    try:
        return importlib.metadata.version("twinlog")
    except importlib.metadata.PackageNotFoundError:
        return "source tree"
