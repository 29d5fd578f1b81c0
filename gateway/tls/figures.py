"""The listeners of a site count what happens to TLS, for Prometheus and for the log.

What always holds: a refusal is counted each time, and logged with a bound: a stranger fills no log.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.logs import BoundedWarnings


class TlsFigures:
    """Counts for all listeners of a site. `now_s`: seconds of any clock that does not go back."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._warnings = BoundedWarnings("gateway.tls", now_s)
        self._counts = {
            "tls_handshakes_failed": 0, "tls_handshakes_held": 0, "tls_handshakes_refused": 0, "tls_plain_requests": 0,
            "peer_certificates_refused": 0,
        }

    def handshake_failed(self, address: str, listener: str, why: str) -> None:
        self._counts["tls_handshakes_failed"] += 1
        self._warnings.warn("a TLS handshake failed", address=address, listener=listener, why=why)

    def handshake_held(self) -> None:
        self._counts["tls_handshakes_held"] += 1

    def handshake_refused(self, address: str, listener: str) -> None:
        self._counts["tls_handshakes_refused"] += 1
        self._warnings.warn("an address makes more TLS handshakes than it may, and was refused", address=address,
                            listener=listener)

    def plain(self, address: str, listener: str) -> None:
        self._counts["tls_plain_requests"] += 1
        self._warnings.warn("a client speaks plain HTTP to a TLS port", address=address, listener=listener)

    def peer_refused(self, address: str, listener: str, why: str) -> None:
        self._counts["peer_certificates_refused"] += 1
        self._warnings.warn("a caller is not the other site, and was refused", address=address, listener=listener, why=why)

    def all(self) -> dict[str, float]:
        return {f"{name}_total": count for name, count in self._counts.items()}
