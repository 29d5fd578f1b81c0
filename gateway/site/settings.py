"""The part of the configuration that one site reads: who it is, who the other one is, and the settings of what it runs.

What always holds: each section is the class of the room that reads it; `gateway.config.model.SiteConfig` adds what only the
composition root reads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from gateway.audits.notes import AuditSettings
from gateway.backup.holding import BackupSettings
from gateway.epoch.active_epoch import ActiveSettings
from gateway.service.http_settings import HttpSettings
from gateway.service.tables import TableSettings
from storage.engines.applying import BarrierLimits
from storage.engines.settings import EngineSettings
from storage.settings import RESTART, Matches, OneOf, Url
from switchover.plans.takeover import SwitchoverSettings

SITES = ("a", "b")
PAIR_PATTERN = "[A-Za-z0-9][A-Za-z0-9_-]{0,62}"  # it names a folder on each DFS
Pair = Annotated[str, Matches(PAIR_PATTERN)]
SiteName = Annotated[str, OneOf(SITES)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSettings:
    """The other site's gateway. `url`: where this site calls it, its [peer_http] if it has one; `advertised_url`: where clients
    reach it; empty: at `url`."""

    site: Annotated[SiteName, RESTART]
    url: Annotated[Url, RESTART]
    advertised_url: Annotated[Url, RESTART] = ""

    @property
    def public_url(self) -> str:
        return self.advertised_url or self.url


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteSettings(ActiveSettings):
    """The settings of an open epoch among them: they are handed down as they are."""

    pair: Annotated[Pair, RESTART]
    site: Annotated[SiteName, RESTART]
    peer: PeerSettings
    initial_active: Annotated[SiteName, RESTART] = "a"  # who opens when neither site has ever been active
    http: HttpSettings = field(default_factory=HttpSettings)
    engine: EngineSettings = field(default_factory=EngineSettings)
    barriers: BarrierLimits = field(default_factory=BarrierLimits)
    tables: TableSettings = field(default_factory=TableSettings)
    audits: AuditSettings = field(default_factory=AuditSettings)
    backups: BackupSettings = field(default_factory=BackupSettings)
    switchover: SwitchoverSettings = field(default_factory=SwitchoverSettings)
