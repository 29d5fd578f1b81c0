"""An audit's calls of both gateways: a barrier at which both sites hold a snapshot, and the report of the audit's end.

What always holds: every call has a deadline; a barrier that was asked for is released on both sites when the work ends,
however it ends, also when nobody knows whether the request arrived; `held` gives two snapshots of exactly the same sequence, or
raises. Source: docs/decisions/2026-11-21-audits-at-a-barrier.md.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from spark_jobs.audit.stopping import undisturbed
from spark_jobs.job import Barrier, SiteSource
from twinlog.errors import Conflict, NotActive, NotFound, Refused, TwinlogError, Unavailable
from twinlog.sites import Sites
from twinlog.wire.audit_report import SentReport

HELD_DEADLINE_S = 120.0
LOOK_S = 20.0  # a site under load may take its time for an audit
POLL_FIRST_S, POLL_MAX_S = 0.05, 1.0


@dataclass(frozen=True, slots=True)
class Held:
    """A barrier, and both sites with the places of their snapshots; `source` was the active that set it."""

    barrier: Barrier
    source: SiteSource
    peer: SiteSource


class Gateways:
    """HTTP with the two sites."""

    def __init__(self, sites: Mapping[str, SiteSource]) -> None:
        self.sites = sites
        tls = next(iter(sites.values())).tls  # of a pair both are the same
        self._gateways = Sites({name: site.url for name, site in sites.items()}, LOOK_S, tls=tls)

    def close(self) -> None:
        self._gateways.close()

    def clusters(self) -> dict[str, dict[str, Any]]:
        """Each site's cluster document. Raises Unavailable that names every site that does not answer."""
        found, down = {}, []
        for name in self.sites:
            try:
                found[name] = self._gateways.ask(name, "GET", "/v1/cluster")
            except TwinlogError as error:
                down.append(error.message if "site" in error.fields else f"site {name}: {error.message}")
        if down:
            raise Unavailable(f"{'; '.join(down)}. Both sites must answer: start what is down, `twinlog status` shows the pair")
        return found

    def active(self) -> str:
        """The name of the active. Raises Unavailable, Refused."""
        clusters = self.clusters()
        pairs = {str(document.get("pair", "")) for document in clusters.values()}
        if len(pairs) > 1:
            raise Refused(f"the two addresses are of different pairs: {', '.join(sorted(pairs))}; correct the configuration")
        for name, document in clusters.items():
            if document.get("site") != name:
                raise Refused(f"{self.sites[name].url} is site {document.get('site')}, not {name}: correct the configuration")
        active = [name for name, document in clusters.items() if str(document.get("role")).endswith("ACTIVE")]
        if len(active) != 1:
            roles = ", ".join(f"{name} is {document.get('role')}" for name, document in clusters.items())
            raise Unavailable(f"a barrier needs one active site, and {roles}; `twinlog status` shows what they wait for")
        return active[0]

    @contextmanager
    def held(
        self, name: str, deadline_s: float = HELD_DEADLINE_S, waiting: Callable[[str], None] = lambda text: None
    ) -> Iterator[Held]:
        """A barrier called `name` that both sites hold; released at the end.

        `waiting` gets whom we wait for. Raises Unavailable (a site is down, the peer did not get there within the deadline),
        Refused (the active moved meanwhile), and what the active answered.
        """
        until_s = time.monotonic() + deadline_s
        source = self.active()
        (peer,) = self.sites.keys() - {source}
        try:
            answer = self._set_barrier(source, name)
            barrier = Barrier(name, int(answer["epoch"]), int(answer["seq"]))
            held = {site: self._wait_held(site, source, barrier, until_s, waiting) for site in (source, peer)}
            barrier = replace(barrier, taken_at=str(held[source].get("taken_at", "")))
            yield Held(barrier, self._with_place(source, held[source]), self._with_place(peer, held[peer]))
        finally:
            with undisturbed():
                self.release(name)

    def release(self, name: str) -> dict[str, str]:
        """Releases the snapshots. Returns site -> error of each that did not answer: it releases its own later, by itself."""
        failed = {}
        for site in self.sites:
            try:
                self._gateways.ask(site, "DELETE", f"/v1/barriers/{name}")
            except NotFound:
                pass
            except TwinlogError as error:
                failed[site] = error.message
        return failed

    def tell(self, audit: Mapping[str, Any], report: SentReport) -> dict[str, str]:
        """Reports to both sites how an audit ended. Returns site -> error of each site that did not answer."""
        failed = {}
        for site in self.sites:
            try:
                self._gateways.ask(site, "POST", "/v1/audits", audit)
                self._send_report(site, str(audit["id"]), report)
            except TwinlogError as error:
                failed[site] = error.message
        return failed

    def _send_report(self, site: str, audit: str, report: SentReport) -> None:
        """A site of an older release has no place for it, and has the note."""
        with suppress(NotFound):
            self._gateways.ask(site, "PUT", f"/v1/audits/{audit}/report", msgspec.to_builtins(report))

    def _set_barrier(self, source: str, name: str) -> dict[str, Any]:
        try:
            return self._gateways.ask(source, "POST", "/v1/barriers", {"name": name})
        except NotActive as error:
            raise Refused(f"the active moved away from site {source} just now: run the audit again") from error

    def _wait_held(
        self, site: str, source: str, barrier: Barrier, until_s: float, waiting: Callable[[str], None]
    ) -> dict[str, Any]:
        """The site's own account of its snapshot, once it has it."""
        pause_s, trouble = POLL_FIRST_S, "it has not applied the barrier yet"
        while True:
            try:
                found = self._gateways.ask(site, "GET", f"/v1/barriers/{barrier.name}")
            except NotFound:
                trouble = "it has not applied the barrier yet"
                self._check_active(source, barrier)
            except TwinlogError as error:
                trouble = error.message
            else:
                if (found["epoch"], found["seq"]) != (barrier.epoch, barrier.seq):
                    raise Conflict(
                        f"site {site} holds a snapshot called {barrier.name} of epoch {found['epoch']}, sequence "
                        f"{found['seq']}, and the barrier is epoch {barrier.epoch}, sequence {barrier.seq}: run the audit again"
                    )
                return found
            if time.monotonic() + pause_s > until_s:
                raise Unavailable(
                    f"site {site} holds no snapshot at the barrier {barrier.name} (sequence {barrier.seq:,}) in time: "
                    f"{trouble}. See `twinlog status` for how far the standby lags; --barrier-deadline waits longer"
                )
            waiting(f"waiting for site {site} to reach sequence {barrier.seq:,}")
            time.sleep(pause_s)
            pause_s = min(POLL_MAX_S, 2 * pause_s)

    def _check_active(self, source: str, barrier: Barrier) -> None:
        """Raises Refused once a newer epoch than the barrier's is open: its frame may never reach the other site."""
        document = self._gateways.ask(source, "GET", "/v1/cluster")
        active = document.get("active") or {}
        if int(active.get("epoch") or 0) > barrier.epoch:
            raise Refused(
                f"the active moved during the barrier: site {source} set it in epoch {barrier.epoch}, and site "
                f"{active.get('site')} is active in epoch {active.get('epoch')}; run the audit again"
            )

    def _with_place(self, site: str, found: Mapping[str, Any]) -> SiteSource:
        return replace(self.sites[site], place=str(found["place"]), engine=str(found.get("engine") or self.sites[site].engine))
