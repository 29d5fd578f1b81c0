"""How the operator's commands reach both sites: a port, filled by gateway/client/operator.py (the law of imports).

What always holds: every method raises only errors of twinlog/errors.py; PeerError means that the site did not answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from switchover.monitor.findings import Thresholds


class PairAccess(Protocol):
    @property
    def urls(self) -> Mapping[str, str]:
        """Site -> address."""

    @property
    def thresholds(self) -> Thresholds:
        """Of the availability monitor, as configured."""

    def ask(
        self, site: str, method: str, path: str, body: Mapping[str, Any] | None = None, key: str | None = None, who: str = ""
    ) -> dict[str, Any]:
        """One JSON exchange; `key`: the idempotency key of what must not be done twice; `who` asks, if not this user alone."""

    def ask_all(self, path: str) -> dict[str, dict[str, Any] | Exception]:
        """GET `path` from every site at the same time: its document, or the error."""

    def events(self, site: str, path: str) -> Iterator[dict[str, Any]]:
        """Documents pushed by a site. Ends when the site ends the stream. Raises PeerError when it breaks."""

    def close(self) -> None: ...
