"""The views of both sites that the availability monitor judges, and SiteProbe, the port through which it looks and acts.

What always holds: what could not be seen is None, with the reason beside it; a view is what one site says of itself, of the
other one and of what it reaches, so that two views are two witnesses. Source: protocol.md section 8 (availability monitor).
This module is pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from remote_log.replication.messages import StatusReply
from switchover.facts import SiteFacts
from switchover.register.port import PairState

MONITOR = "monitor"  # what a monitor calls itself in everything that it asks for


class Answers(msgspec.Struct, frozen=True):
    """Totals of the answers since the process of the gateway began. `failed`: by a fault of the site (5xx)."""

    acknowledged: int
    failed: int
    ack_s: float | None  # all acknowledgements together took so long; None: not measured


class RoleChange(msgspec.Struct, frozen=True):
    """A role change that was asked for at this site; not one that the site began by itself, and no dry run."""

    id: str
    kind: str
    actor: str
    age_s: float

    @property
    def by_monitor(self) -> bool:
        """Behind an identity stands what it calls itself: `token watch, as monitor (10.0.0.7)`."""
        return self.actor.startswith(MONITOR) or f", as {MONITOR}" in self.actor


class SiteView(msgspec.Struct, frozen=True, kw_only=True):
    """One site's view at one moment. `changes`: the last ones, newest first."""

    own: SiteFacts
    peer: StatusReply | None
    peer_error: str = ""
    register: PairState | None = None
    running: str | None = None  # the operation that runs there
    changes: list[RoleChange] = []
    answers: Answers | None = None


@dataclass(frozen=True, slots=True)
class TakeoverReadiness:
    """The verdict of a site's own checks on a takeover now. `failed`: what speaks against it."""

    site: str
    ok: bool
    failed: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Observation:
    """One look from outside. `at_s`: when it had ended, by the monitor's monotonic clock; `errors`: why a view is None."""

    at_s: float
    views: Mapping[str, SiteView | None]
    errors: Mapping[str, str] = field(default_factory=dict)
    readiness: TakeoverReadiness | None = None  # of the site that might have to take over; None: not asked, or no answer


class SiteProbe(Protocol):
    """Looks at a site and asks it for a role change. Raises only TwinlogError; PeerError: it did not answer, with `sent`."""

    async def alive(self, site: str) -> None:
        """Ends once the site's process has answered anything at all. Raises PeerError within a second or so otherwise."""

    async def view(self, site: str) -> SiteView: ...

    async def checks(self, site: str) -> Mapping[str, Any]:
        """The document of the checks of a failover to `site`."""

    async def order(self, site: str, kind: str, to: str | None, options: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        """Begin a role change at `site`, once under its idempotency `key`; its operation document."""
