"""Reports to both sites how far an audit is, while it runs.

What always holds: a site that is slow, gone, or of a release that knows no progress holds up neither the audit nor the other
site; a report is sent every REPORT_S at most, and one more when a signal ends the audit. What a site does not learn here costs
nothing: it has the end.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager

import msgspec

from spark_jobs.audit.progress import Steps
from spark_jobs.job import SiteSource
from twinlog.errors import PeerError, TwinlogError, Unavailable
from twinlog.sites import Sites, who
from twinlog.wire.audit_report import AuditProgress

REPORT_S = 3.0
END_S = 5.0  # how long the last reports may take
PHASE_MAX = 100
JOB_MAX = 40


@contextmanager
def reporting(sites: Mapping[str, SiteSource], audit: str, job: str, steps: Steps) -> Iterator[None]:
    """Reports from a thread for each site, until the end."""
    ended, stopped = threading.Event(), threading.Event()
    threads = []
    for site, source in sites.items():
        work = (site, source, audit, job, steps, ended, stopped)
        threads.append(threading.Thread(target=_report, args=work, name=f"report {site}", daemon=True))
        threads[-1].start()
    try:
        yield
    except KeyboardInterrupt:
        stopped.set()
        raise
    finally:
        ended.set()
        for thread in threads:
            thread.join(END_S)


def _report(
    site: str, source: SiteSource, audit: str, job: str, steps: Steps, ended: threading.Event, stopped: threading.Event
) -> None:
    with closing(Sites({site: source.url}, tls=source.tls)) as gateways:
        while not ended.wait(REPORT_S):
            if not _tell(gateways, site, audit, progress_of(job, steps)):
                return
        if stopped.is_set():
            _tell(gateways, site, audit, progress_of(job, steps, is_stopped=True))


def progress_of(job: str, steps: Steps, *, is_stopped: bool = False) -> AuditProgress:
    now = steps.now()
    return AuditProgress(
        job=job[:JOB_MAX], phase=now.what[:PHASE_MAX], elapsed_s=round(now.elapsed_s, 1), done=now.done, total=now.total,
        unit="rows" if now.is_rows else "tasks", by=who(), is_stopped=is_stopped,
    )


def _tell(gateways: Sites, site: str, audit: str, progress: AuditProgress) -> bool:
    """Returns whether another report is worth while: not at a site that refuses one, or whose release knows none."""
    try:
        gateways.ask(site, "PUT", f"/v1/audits/{audit}/progress", msgspec.to_builtins(progress))
    except (PeerError, Unavailable):
        return True
    except TwinlogError:
        return False
    return True
