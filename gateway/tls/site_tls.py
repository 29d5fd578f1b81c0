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

from gateway.metrics.catalogue import Figures
from gateway.tls.contexts import files_of, not_after, peer_caller_context, peer_listener_context, public_context
from gateway.tls.figures import TlsFigures
from gateway.tls.handshake import TlsGate
from gateway.tls.identity import not_the_site
from gateway.tls.reloading import Following
from gateway.tls.settings import HttpTlsSettings, PeerHttpSettings

SOON = timedelta(days=14)


class Contexts(NamedTuple):
    """Made of the files of one section. `caller`: of the calls to the other site. `ends`: the certificate is over then."""

    listener: ssl.SSLContext
    caller: ssl.SSLContext | None
    ends: datetime


class SiteTls:
    """`insecure`: the configuration says so. Raises ConfigError when a file is wrong."""

    def __init__(
        self, pair: str, peer: str, http: HttpTlsSettings | None, peer_http: PeerHttpSettings | None, *, insecure: bool,
        now_s: Callable[[], float],
    ) -> None:
        self._pair, self._peer, self._insecure = pair, peer, insecure
        self.figures = TlsFigures(now_s)
        self.public: Following[Contexts] | None = None
        self.between: Following[Contexts] | None = None
        self.on_new_files: Callable[[str, set[str]], None] = lambda section, changed: None  # the trail notes them
        self.on_new_trust: Callable[[], None] = lambda: None  # the server of [peer_http] ends connections of revoked callers
        if http is not None:
            self.public = Following(
                "http.tls", files_of(http), lambda: Contexts(public_context(http), None, not_after(http.certificate)),
                lambda changed: self.on_new_files("http.tls", changed),
            )
        if peer_http is not None:
            self.between = Following(
                "peer_http", files_of(peer_http),
                lambda: Contexts(
                    peer_listener_context(peer_http), peer_caller_context(peer_http), not_after(peer_http.certificate)
                ),
                self._new_peer_files,
            )

    @property
    def public_gate(self) -> TlsGate | None:
        public = self.public
        if public is None:
            return None
        return TlsGate("http", lambda: public.current.listener, lambda certificate: "", self.figures)

    @property
    def peer_gate(self) -> TlsGate | None:
        between = self.between
        if between is None:
            return None
        return TlsGate("peer_http", lambda: between.current.listener, self.not_the_peer, self.figures)

    def not_the_peer(self, certificate: dict[str, Any] | None) -> str:
        """Returns why a certificate is not that of the other site; an empty text where it is."""
        return not_the_site(certificate, self._pair, self._peer)

    def caller(self) -> ssl.SSLContext | None:
        """The context for a new connection to the other site; None without [peer_http]."""
        return None if self.between is None else self.between.current.caller

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
            "tls_files_ok": {labels: float(not each.problem) for labels, each in listeners.items()},
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
            if each.current.ends - now < SOON:
                when = "expires" if each.current.ends > now else "has expired"
                found.append(f"the certificate of [{section}] {when}: its end is {each.current.ends:%Y-%m-%d %H:%M} UTC")
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
