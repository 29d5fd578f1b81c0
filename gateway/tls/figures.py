"""What the listeners of a site count of TLS, for Prometheus and for the log.

What always holds: a refusal is counted each time, and logged LOGGED_MAX times a minute at most: a stranger fills no log.
"""

from __future__ import annotations

from collections.abc import Callable

import structlog

LOGGED_MAX = 10
_MINUTE_S = 60.0
log = structlog.get_logger("gateway.tls")


class TlsFigures:
    """Counts for all listeners of a site. `now_s`: seconds of any clock that does not go back."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._counts = {"tls_handshakes_failed": 0, "tls_plain_requests": 0, "peer_certificates_refused": 0}
        self._since_s, self._logged, self._left_out = now_s(), 0, 0

    def handshake_failed(self, address: str, listener: str, why: str) -> None:
        self._count("tls_handshakes_failed", "a TLS handshake failed", address, listener, why)

    def plain(self, address: str, listener: str) -> None:
        self._count("tls_plain_requests", "a client speaks plain HTTP to a TLS port", address, listener, "")

    def peer_refused(self, address: str, listener: str, why: str) -> None:
        self._count("peer_certificates_refused", "a caller is not the other site, and was refused", address, listener, why)

    def all(self) -> dict[str, float]:
        return {f"{name}_total": count for name, count in self._counts.items()}

    def _count(self, name: str, event: str, address: str, listener: str, why: str) -> None:
        self._counts[name] += 1
        now_s = self._now_s()
        if now_s - self._since_s >= _MINUTE_S:
            if self._left_out:
                log.warning("more refusals of TLS were not logged", count=self._left_out)
            self._since_s, self._logged, self._left_out = now_s, 0, 0
        if self._logged >= LOGGED_MAX:
            self._left_out += 1
            return
        self._logged += 1
        log.warning(event, address=address, listener=listener, **({"why": why} if why else {}))
