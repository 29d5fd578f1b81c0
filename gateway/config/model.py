"""What a site and an operator's machine are told: frozen objects, made once at start, handed down in parts.

What always holds: a value of these classes has passed every check of config_load.py; paths are absolute; secrets are
already resolved and are not in the repr; `sources` says for each dotted key where its value came from. One TOML file a
site, environment variables over it: TWINLOG_<SECTION>__<KEY>, for a key of the top level TWINLOG_<KEY>. Source:
product.md section 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from switchover.monitor.findings import Thresholds

SITES = ("a", "b")
PAIR_PATTERN = "[A-Za-z0-9][A-Za-z0-9_-]{0,62}"  # it names a folder on each DFS
POLICIES = ("protect", "available", "performance")
KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class Within:
    """A number's limits, both included."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class OneOf:
    """The texts that are allowed."""

    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Matches:
    """The regular expression that the whole text matches."""

    pattern: str


class HttpUrl:
    """An http or https address."""


class Secret:
    """May be given by reference, `env:NAME` or `file:PATH`; a password in plain text is a fault; not in the repr."""


class Reference(Secret):
    """Given by reference only: a text of its own would be the secret."""


Site = Annotated[str, OneOf(SITES)]
Url = Annotated[str, HttpUrl()]


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpConfig:
    host: str = "127.0.0.1"
    port: Annotated[int, Within(1, 65535)] = 8401
    advertised_url: Url = ""  # what clients and the peer are told; empty: made of host and port
    body_bytes_max: Annotated[int, Within(KIB, 1024 * MIB)] = 32 * MIB
    batch_rows_max: Annotated[int, Within(1, 1_000_000)] = 10_000
    row_bytes_max: Annotated[int, Within(64, 16 * MIB)] = MIB
    key_bytes_max: Annotated[int, Within(16, 64 * KIB)] = KIB
    page_rows_max: Annotated[int, Within(1, 100_000)] = 10_000
    request_deadline_s: Annotated[float, Within(0.05, 3600)] = 10.0
    request_deadline_max_s: Annotated[float, Within(0.05, 3600)] = 60.0

    @property
    def url(self) -> str:
        """The address that others are told."""
        return self.advertised_url or f"http://{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerConfig:
    """The other site's gateway."""

    site: Site
    url: Url


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    kind: Annotated[str, OneOf(("rocksdb", "postgresql", "sqlite"))] = "rocksdb"
    path: str = "engine"  # below data_dir; of rocksdb and sqlite
    url: Annotated[str, Secret()] = field(default="", repr=False)  # of postgresql: the site's own database
    password: Annotated[str, Reference()] = field(default="", repr=False)  # put into the url
    flush_interval_s: Annotated[float, Within(0.01, 3600)] = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DfsSiteConfig:
    """One site's DFS: a directory by its `path`, or an HDFS by its `url` and what follows that."""

    kind: Annotated[str, OneOf(("directory", "hdfs"))] = "directory"
    deadline_s: Annotated[float, Within(0.1, 600)] = 5.0  # of every call
    path: Path | None = None
    url: str = ""  # hdfs://NAMENODE:PORT/ROOT or hdfs://NAMESERVICE/ROOT; the root must exist
    conf_dir: Path | None = None  # with Hadoop's core-site.xml and hdfs-site.xml
    options: Mapping[str, str] | None = None  # Hadoop's own keys, over those files
    user: str = ""  # empty: the user of the process, or of its Kerberos ticket
    kerberos_principal: str = ""
    kerberos_keytab: Path | None = None
    sync: Annotated[str, OneOf(("hsync", "hflush"))] = "hsync"  # on the disks of all DataNodes, or in their memory


@dataclass(frozen=True, slots=True, kw_only=True)
class DfsConfig:
    """`own` takes the peer's remote log while the peer is active; `peer` takes ours while we are."""

    own: DfsSiteConfig
    peer: DfsSiteConfig
    jvm_heap_bytes: Annotated[int, Within(64 * MIB, 65536 * MIB)] = 256 * MIB  # of Hadoop's client, for both


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorConfig:
    url: Annotated[str, Secret()] = field(repr=False)  # an SQLAlchemy address


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalConfig:
    """Where the site's role changes are written down; empty: journal.db in data_dir."""

    url: Annotated[str, Secret()] = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class WalConfig:
    segment_bytes: Annotated[int, Within(64 * KIB, 4096 * MIB)] = 16 * MIB
    tail_bytes_max: Annotated[int, Within(64 * KIB, 4096 * MIB)] = 32 * MIB  # newest frames kept in memory for the replicator


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteLogConfig:
    segment_bytes: Annotated[int, Within(64 * KIB, 4096 * MIB)] = 16 * MIB
    in_flight_max: Annotated[int, Within(1, 1024)] = 8
    retry_first_s: Annotated[float, Within(0.001, 60)] = 0.05
    retry_max_s: Annotated[float, Within(0.001, 600)] = 2.0
    lease_recovery_deadline_s: Annotated[float, Within(0.1, 3600)] = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseConfig:
    """The read lease: reads and acknowledgements only within `lease_s` of the start of the last remote append."""

    lease_s: Annotated[float, Within(0.05, 600)] = 1.0
    drift_margin: Annotated[float, Within(0.0, 1.0)] = 0.2  # share of lease_s that a fencer waits on top
    noop_interval_s: Annotated[float, Within(0.01, 300)] = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitConfig:
    queue_bytes_max: Annotated[int, Within(64 * KIB, 4096 * MIB)] = 64 * MIB
    requests_max: Annotated[int, Within(1, 1_000_000)] = 20_000
    frames_in_flight_max: Annotated[int, Within(1, 4096)] = 4
    frame_bytes_max: Annotated[int, Within(4 * KIB, 64 * MIB)] = 4 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationConfig:
    batch_bytes_max: Annotated[int, Within(4 * KIB, 64 * MIB)] = 4 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class AvailableConfig:
    """When the policy `available` leaves the synchronous mode, and how long all must be well before it goes back."""

    degrade_after_s: Annotated[float, Within(0.1, 3600)] = 5.0
    resync_after_s: Annotated[float, Within(0.0, 3600)] = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BarriersConfig:
    """Snapshots that are kept behind barriers, for audits; each takes room until it is released."""

    kept_max: Annotated[int, Within(1, 64)] = 4
    kept_s: Annotated[float, Within(1, 604_800)] = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditsConfig:
    recent_s: Annotated[float, Within(0, 31_536_000)] = 604_800.0  # an older one is a warning before a role change; 0: none is


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    level: Annotated[str, OneOf(("debug", "info", "warning", "error"))] = "info"
    format: Annotated[str, OneOf(("json", "console"))] = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteConfig:
    """One site. Without [coordinator] there is no witness: a degrade is then the operator's command alone."""

    pair: Annotated[str, Matches(PAIR_PATTERN)]
    site: Site
    data_dir: Path
    initial_active: Site = "a"  # who opens when neither site has ever been active
    policy: Annotated[str, OneOf(POLICIES)] = "protect"
    peer: PeerConfig
    dfs: DfsConfig
    http: HttpConfig = HttpConfig()
    engine: EngineConfig = EngineConfig()
    coordinator: CoordinatorConfig | None = None
    journal: JournalConfig = JournalConfig()
    wal: WalConfig = WalConfig()
    remote_log: RemoteLogConfig = RemoteLogConfig()
    lease: LeaseConfig = LeaseConfig()
    commit: CommitConfig = CommitConfig()
    replication: ReplicationConfig = ReplicationConfig()
    available: AvailableConfig = AvailableConfig()
    barriers: BarriersConfig = BarriersConfig()
    audits: AuditsConfig = AuditsConfig()
    log: LogConfig = LogConfig()
    sources: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def engine_path(self) -> Path:
        return self.data_dir / self.engine.path

    @property
    def engine_url(self) -> str:
        """Of an SQL engine."""
        return self.engine.url or f"sqlite:///{self.engine_path / 'rows.db'}"

    @property
    def journal_url(self) -> str:
        return self.journal.url or f"sqlite:///{self.data_dir / 'journal.db'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteAddress:
    url: Url


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteAddresses:
    a: SiteAddress
    b: SiteAddress


_USUAL = Thresholds()


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorConfig(Thresholds):
    """When the availability monitor speaks, and how often it may act: every threshold with its limits."""

    interval_s: Annotated[float, Within(0.1, 600)] = _USUAL.interval_s
    look_after_s: Annotated[float, Within(0, 86400)] = _USUAL.look_after_s
    resync_after_s: Annotated[float, Within(0, 86400)] = _USUAL.resync_after_s
    degrade_after_s: Annotated[float, Within(0.5, 86400)] = _USUAL.degrade_after_s
    failover_after_s: Annotated[float, Within(0.5, 86400)] = _USUAL.failover_after_s
    gap_max_s: Annotated[float, Within(1, 3600)] = _USUAL.gap_max_s
    quiet_after_action_s: Annotated[float, Within(1, 86400)] = _USUAL.quiet_after_action_s
    actions_max: Annotated[int, Within(1, 100)] = _USUAL.actions_max
    actions_window_s: Annotated[float, Within(1, 864_000)] = _USUAL.actions_window_s
    failed_share_max: Annotated[float, Within(0, 1)] = _USUAL.failed_share_max
    ack_slow_s: Annotated[float, Within(0.001, 600)] = _USUAL.ack_slow_s
    silence_max_s: Annotated[float, Within(0.1, 3600)] = _USUAL.silence_max_s


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorConfig:
    """What the operator's commands and the client need: how to reach both sites. [monitor] is for `twinlog monitor`."""

    pair: Annotated[str, Matches(PAIR_PATTERN)]
    sites: SiteAddresses
    monitor: MonitorConfig = MonitorConfig()
    sources: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def urls(self) -> dict[str, str]:
        """Site -> address without a final slash."""
        return {"a": self.sites.a.url.rstrip("/"), "b": self.sites.b.url.rstrip("/")}
