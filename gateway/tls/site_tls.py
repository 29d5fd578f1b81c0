"""The TLS of one site: its two listeners, its calls to the other site, what it counts, and what an operator is to know.

What always holds: without [http.tls] the public listener is plain; [peer_http] is always mutual TLS.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import structlog

from gateway.metrics.catalogue import Figures
from gateway.tls.contexts import (
    crl_ends,
    faults_of,
    files_of,
    not_after,
    peer_caller_context,
    peer_listener_context,
    public_context,
    without_crl,
)
from gateway.tls.figures import TlsFigures
from gateway.tls.handshake import TlsGate
from gateway.tls.identity import not_the_site
from gateway.tls.rates import HandshakeRates
from gateway.tls.reloading import Following
from gateway.tls.settings import HANDSHAKES_PER_S, HttpTlsSettings, PeerHttpSettings
from twinlog.errors import ConfigError

SOON = timedelta(days=14)
log = structlog.get_logger("gateway.tls")


class Contexts(NamedTuple):
    """Made of the files of one section. `caller`: of the calls to the other site. `ends`: the certificate is over then, and
    `crl_ends` the list of revoked ones; None: it has no end, or there is no list. `problem`: why nobody comes in by
    certificate."""

    listener: ssl.SSLContext
    caller: ssl.SSLContext | None
    ends: datetime
    crl_ends: datetime | None = None
    problem: str = ""


class SiteTls:
    """`insecure`: the configuration says so. Raises ConfigError when a file is wrong."""

    def __init__(
        self, pair: str, peer: str, http: HttpTlsSettings | None, peer_http: PeerHttpSettings | None, *, insecure: bool,
        now_s: Callable[[], float], handshakes_per_s: float = HANDSHAKES_PER_S,
    ) -> None:
        """`handshakes_per_s`: of one address, on each listener."""
        self._handshakes_per_s = handshakes_per_s
        self._pair, self._peer, self._insecure = pair, peer, insecure
        self.figures = TlsFigures(now_s)
        self.public: Following[Contexts] | None = None
        self.between: Following[Contexts] | None = None
        self.on_new_files: Callable[[str, set[str]], None] = lambda section, changed: None  # the trail notes them
        self.on_new_trust: Callable[[], None] = lambda: None  # the server of [peer_http] ends connections of revoked callers,
        self.on_new_client_trust: Callable[[], None] = lambda: None  # and that of [http] those that came in by certificate
        if http is not None:
            self.public = Following(
                "http.tls", files_of(http), lambda: _public_contexts(http), self._new_public_files,
            )
        if peer_http is not None:
            self.between = Following(
                "peer_http", files_of(peer_http),
                lambda: Contexts(
                    peer_listener_context(peer_http), peer_caller_context(peer_http), not_after(peer_http.certificate),
                    crl_ends(peer_http.crl),
                ),
                self._new_peer_files,
            )

    @property
    def public_gate(self) -> TlsGate | None:
        public = self.public
        if public is None:
            return None
        return TlsGate("http", lambda: public.current.listener, lambda certificate: "", self.figures, self._rates())

    @property
    def peer_gate(self) -> TlsGate | None:
        between = self.between
        if between is None:
            return None
        return TlsGate("peer_http", lambda: between.current.listener, self.not_the_peer, self.figures, self._rates())

    def _rates(self) -> HandshakeRates:
        return HandshakeRates(self._handshakes_per_s)

    def not_the_peer(self, certificate: dict[str, Any] | None) -> str:
        """Returns why a certificate is not that of the other site; an empty text where it is."""
        return not_the_site(certificate, self._pair, self._peer)

    def caller(self) -> ssl.SSLContext | None:
        """The context for a new connection to the other site; None without [peer_http]."""
        return None if self.between is None else self.between.current.caller

    def _new_public_files(self, changed: set[str]) -> None:
        self.on_new_files("http.tls", changed)
        if changed & {"client_ca", "client_crl"}:
            self.on_new_client_trust()

    def _new_peer_files(self, changed: set[str]) -> None:
        self.on_new_files("peer_http", changed)
        if changed & {"ca", "crl"}:
            self.on_new_trust()

    def metrics(self) -> Figures:
        """Figures for Prometheus; of TLS only where a listener speaks it."""
        insecure = {"insecure": float(self._insecure)}
        listeners = {(name,): each for name, each in (("http", self.public), ("peer_http", self.between)) if each is not None}
        if not listeners:
            return insecure
        return {
            **insecure, **self.figures.all(),
            "certificate_not_after_timestamp_seconds": {
                labels: each.current.ends.timestamp() for labels, each in listeners.items()
            },
            "tls_files_ok": {
                labels: float(not (each.problem or each.current.problem)) for labels, each in listeners.items()
            },
        }

    def notices(self, now: datetime | None = None) -> list[str]:
        """Returns what an operator is to know, though nothing fails yet."""
        found, now = [], now or datetime.now(UTC)
        if self._insecure:
            found.append("insecure = true: whoever reaches this site's listener reads, writes and changes roles")
        for section, each in (("http.tls", self.public), ("peer_http", self.between)):
            if each is None:
                continue
            if each.problem:
                found.append(f"new TLS files are not in use, the old ones are: {each.problem}")
            if each.current.problem:
                found.append(f"nobody comes in by certificate: [{section}] {each.current.problem}")
            for what, ends, then in (
                ("certificate", each.current.ends, ""),
                ("list of revoked certificates", each.current.crl_ends, ", and from then on nobody comes in by certificate"),
            ):
                if ends is not None and ends - now < SOON:
                    when = "expires" if ends > now else "has expired"
                    found.append(f"the {what} of [{section}] {when}: its end is {ends:%Y-%m-%d %H:%M} UTC{then}")
        return found

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Files are read again when they change, inside the block."""
        tasks = [asyncio.create_task(each.run(), name="tls-files") for each in (self.public, self.between) if each is not None]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _public_contexts(http: HttpTlsSettings) -> Contexts:
    """A list of revoked certificates that cannot be used, or is over, shuts the door by certificate, and no other one. Raises
    ConfigError, OSError, ValueError."""
    try:
        return Contexts(public_context(http), None, not_after(http.certificate), crl_ends(http.client_crl))
    except ConfigError as error:
        faults = faults_of(error)
        if http.client_ca is None or {fault.key for fault in faults} != {"client_crl"}:
            raise
        log.error("nobody comes in by certificate: the list of revoked ones cannot be used", why=error.message)
        return Contexts(without_crl(http), None, not_after(http.certificate), problem=error.message)
