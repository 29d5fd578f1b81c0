"""The configuration of a site and of an operator: frozen objects, made once at start, handed down as they are.

What always holds: each section is the class of the room that reads it, so that no key is without a reader; a value of these
classes has passed every check of loading.py; paths are absolute; secrets are already resolved and are not in the repr;
`sources` says for each dotted key where its value came from. One TOML file a site, environment variables over it:
TWINLOG_<SECTION>__<KEY>, for a key of the top level TWINLOG_<KEY>. Source: product.md section 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from gateway.access.settings import AccessSettings
from gateway.logs import LogSettings
from gateway.site.settings import Pair, SiteSettings
from gateway.tls.settings import PeerHttpSettings
from gateway.traces.settings import TraceSettings
from remote_log.dfs.opening import PairDfsSettings
from storage.log.wal import WalSettings
from storage.settings import RESTART, NotInFile, Reference, Url
from switchover.monitor.findings import Thresholds
from switchover.operations.sql_journal import JournalSettings
from switchover.register.sql import CoordinatorSettings
from twinlog.errors import ConfigError, InvalidInput
from twinlog.wire.token import Token


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteConfig(SiteSettings):
    """One site. Without [coordinator] only the operator's command can degrade. Without [peer_http] the other site calls at
    [http]. Without [access] it serves whoever asks. `insecure`: a listener that others reach may do without TLS and
    identities. Without [traces] there are none."""

    data_dir: Annotated[Path, RESTART]
    insecure: Annotated[bool, RESTART] = False
    peer_http: PeerHttpSettings | None = None
    dfs: PairDfsSettings
    coordinator: CoordinatorSettings | None = None
    journal: JournalSettings = field(default_factory=JournalSettings)
    access: AccessSettings | None = None
    wal: WalSettings = field(default_factory=WalSettings)
    log: LogSettings = field(default_factory=LogSettings)
    traces: TraceSettings | None = None
    sources: Annotated[Mapping[str, str], NotInFile()] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteAddress:
    url: Url


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteAddresses:
    a: SiteAddress
    b: SiteAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorConfig:
    """The operator's file: how commands and clients reach both sites. `ca`: who signed the sites' certificates; `certificate`
    and `key`: what is shown to them; `token`: the file of the token that is shown. Clients read these by twinlog/addresses.py.
    [monitor] is for `twinlog monitor`."""

    pair: Pair
    sites: SiteAddresses
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    token: Annotated[str, Reference()] = field(default="", repr=False)
    monitor: Thresholds = field(default_factory=Thresholds)
    sources: Annotated[Mapping[str, str], NotInFile()] = field(default_factory=dict, repr=False, compare=False)

    @property
    def urls(self) -> dict[str, str]:
        """Site -> address without a final slash."""
        return {"a": self.sites.a.url.rstrip("/"), "b": self.sites.b.url.rstrip("/")}

    def token_problem(self) -> str | None:
        """Returns the fault of the token; None: it can be sent, or there is none."""
        try:
            Token(self.token or "none", ())
        except InvalidInput as error:
            return error.message
        return None

    def check_pair(self, pair: str) -> None:
        """Raises ConfigError when a site at one of the addresses is of another `pair`: nobody acts on the wrong one."""
        if pair != self.pair:
            raise ConfigError(f"the operator's file is of pair {self.pair}, and its addresses lead to pair {pair}", pair=pair)
