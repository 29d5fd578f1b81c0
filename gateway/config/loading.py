"""Loading a configuration: read by its classes, then what no single key can say is checked.

What always holds: either a frozen object that passed every check, or one ConfigError whose `faults` name each wrong
key with its file (or environment variable), the problem and what is allowed. Source: product.md section 5.
"""

from __future__ import annotations

import os
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from gateway.config.access import access_faults
from gateway.config.model import OperatorConfig, SiteConfig
from gateway.config.reading import Fault, Reader
from gateway.config.security import client_faults, security_faults
from gateway.traces.settings import missing_package
from remote_log.dfs.opening import DfsSettings
from switchover.monitor.findings import Thresholds
from twinlog.addresses import is_address
from twinlog.errors import ConfigError, reason, words
from twinlog.wire.home_paths import expanded
from twinlog.wire.json_objects import toml_table
from twinlog.wire.token import TOKEN_VARIABLE

POSTGRESQL = "postgresql+psycopg://USER@HOST:PORT/DATABASE"
SQL_KEY_BYTES_MAX = 2560
_T = TypeVar("_T")

def load_site_config(path: Path, environ: Mapping[str, str] | None = None) -> SiteConfig:
    """The site's configuration. Raises ConfigError with every fault. `environ`: the process's own by default."""
    return _load(SiteConfig, path, os.environ if environ is None else environ, _site_faults)


def check_site_config(config: SiteConfig, path: Path) -> None:
    """Checks what no single key can say, of a configuration that was put together. Raises ConfigError with every fault."""
    reader = Reader(path, {})
    _site_faults(config, reader.fault)
    if reader.faults:
        raise ConfigError(
            f"{path} does not fit what runs here in settings that need a restart: restart the gateway, or change it back",
            faults=reader.faults,
        )


def load_operator_config(path: Path, environ: Mapping[str, str] | None = None) -> OperatorConfig:
    """The operator's configuration: how to reach both sites. Raises ConfigError with every fault."""
    given = os.environ if environ is None else environ
    settings = {name: value for name, value in given.items() if name != TOKEN_VARIABLE}  # the clients' own, a token or its file
    return _load(OperatorConfig, path, settings, _operator_faults)


def monitor_thresholds(address: str) -> Thresholds:
    """Returns those of the operator's file at `address`; without such a file (a demo.json, twinlog://) the usual ones."""
    return load_operator_config(Path(address)).monitor if address.endswith(".toml") else Thresholds()


def check_pair_at(address: str) -> Callable[[str], None]:
    """Returns a check of the pair that a site names against the operator's file at `address`; it passes all without a file."""
    return load_operator_config(Path(address)).check_pair if address.endswith(".toml") else lambda pair: None


def _load(cls: type[_T], path: Path, environ: Mapping[str, str], check: Callable[[Any, Fault], None]) -> _T:
    if is_address(str(path)):
        raise ConfigError(f"{path} is an address; here a file is wanted: the configuration of a site, or an operator's")
    path = expanded(path, "--config").resolve()
    reader = Reader(path, environ)
    config: _T | None = None
    try:
        table = toml_table(path.read_bytes())
    except OSError as error:
        reader.fault("", f"cannot be read: {reason(error)}", "a TOML file")
    except ValueError as error:
        reader.fault("", f"is not TOML: {words(error)}", "a TOML file")
    else:
        if cls is SiteConfig and "sites" in table and "site" not in table:
            raise ConfigError(f"{path} is an operator's configuration, which names both sites; here that of one site is wanted")
        config = reader.read(cls, table)
        reader.unknown_variables()
    if config is not None:
        check(config, reader.fault)
    if reader.faults or config is None:
        count = len(reader.faults)
        raise ConfigError(
            f"{path} has {count} fault{'s' if count != 1 else ''}; correct {'them' if count != 1 else 'it'} and run "
            "`twinlog config check` again", faults=reader.faults,
        )
    object.__setattr__(config, "sources", types.MappingProxyType(reader.sources))  # before anyone else has seen it
    return config


def _site_faults(config: SiteConfig, fault: Fault) -> None:
    """Checks that need more than one key."""
    if config.peer.site == config.site:
        fault("peer.site", f"is {config.peer.site!r}, which is this site", "the other site")
    if config.http.host in ("0.0.0.0", "::") and not config.http.advertised_url:
        fault("http.advertised_url", "is missing: clients cannot be sent to a wildcard", "the site's address", "http.host")
    for name, dfs in (("own", config.dfs.own), ("peer", config.dfs.peer)):
        _dfs_faults(f"dfs.{name}", dfs, fault)
    own, peer = config.dfs.own, config.dfs.peer
    if (own.path, own.url.rstrip("/")) == (peer.path, peer.url.rstrip("/")):
        key = "url" if peer.url else "path"
        fault(f"dfs.peer.{key}", f"is the same as dfs.own.{key}: the remote log would not outlive the site",
              "the other site's DFS", f"dfs.own.{key}")
    if config.policy == "available" and config.coordinator is None:
        fault(
            "policy", "is 'available', which needs a coordinator that records the degrade while the other site is away",
            "a [coordinator] with its url; or 'protect', where an operator degrades by command", "coordinator.url",
        )
    _engine_faults(config, fault)
    if config.access is not None:
        access_faults(config.access, config.http, fault)
    security_faults(config, fault)
    if config.traces is not None and (missing := missing_package()) is not None:
        fault("traces", f"needs the package {missing}, which is not installed",
              "twinlog-server installed with its extra `traces`; or no [traces]")
    if config.coordinator is not None:
        _database_faults("coordinator.url", config.coordinator.url, fault)
    if config.journal.url:
        _database_faults("journal.url", config.journal.url, fault)
    http, commit, lease = config.http, config.commit, config.lease
    limits: list[tuple[str, float, str, float]] = [
        ("http.request_deadline_s", http.request_deadline_s, "http.request_deadline_max_s", http.request_deadline_max_s),
        ("http.row_bytes_max", http.row_bytes_max, "http.body_bytes_max", http.body_bytes_max),
        ("http.body_bytes_max", http.body_bytes_max, "two thirds of http.bodies_bytes_max", http.bodies_bytes_max * 2 // 3),
        ("commit.frame_bytes_max", commit.frame_bytes_max, "commit.queue_bytes_max", commit.queue_bytes_max),
        ("lease.noop_interval_s", lease.noop_interval_s, "half of lease.lease_s", lease.lease_s / 2),
        ("remote_log.retry_first_s", config.remote_log.retry_first_s, "remote_log.retry_max_s", config.remote_log.retry_max_s),
    ]
    for key, value, limit_key, limit in limits:
        if value > limit:
            fault(key, f"is {value:_}, above {limit:_}", f"at most {limit_key}", limit_key.rpartition(" ")[2])


def _database_faults(key: str, url: str, fault: Fault) -> None:
    """Checks an address as a text, before anyone connects to it."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        fault(key, "is no SQLAlchemy address", f"sqlite:////absolute/path.db, {POSTGRESQL}")
    elif scheme.startswith("postgres") and scheme != "postgresql+psycopg":
        fault(key, f"begins with {scheme}://, which names no driver that twinlog has", POSTGRESQL)
    elif scheme.startswith("sqlite") and not rest.removeprefix("/").startswith("/"):
        fault(
            key, "is relative: a start in another folder would be another database",
            "sqlite:////absolute/path.db (four slashes)",
        )


def _engine_faults(config: SiteConfig, fault: Fault) -> None:
    """Checks that each key belongs to the kind of engine."""
    engine = config.engine
    if engine.kind != "postgresql":
        for key in ("url", "password"):
            if getattr(engine, key):
                fault(f"engine.{key}", f"is of engine.kind = 'postgresql', not {engine.kind!r}", "nothing")
        return
    if not engine.url:
        fault("engine.url", "is missing: engine.kind is 'postgresql'", POSTGRESQL)
    elif not engine.url.startswith("postgresql+psycopg://"):
        _database_faults("engine.url", engine.url, fault)
        fault("engine.url", "is not an address of PostgreSQL", POSTGRESQL)
    if config.http.key_bytes_max > SQL_KEY_BYTES_MAX:
        fault(
            "http.key_bytes_max", f"is {config.http.key_bytes_max}: an index of PostgreSQL takes no such key",
            f"at most {SQL_KEY_BYTES_MAX} with engine.kind = 'postgresql'; the same at the other site", "engine.kind",
        )


def _dfs_faults(section: str, dfs: DfsSettings, fault: Fault) -> None:
    if dfs.kind == "directory":
        if dfs.path is None:
            fault(f"{section}.path", "is missing", "a path")
        for key in ("url", "conf_dir", "options", "user", "kerberos_principal", "kerberos_keytab"):
            if getattr(dfs, key):
                fault(f"{section}.{key}", "is given, but the kind is 'directory'", f'{section}.kind = "hdfs"')
        return
    if dfs.path is not None:
        fault(f"{section}.path", "is given, but the kind is 'hdfs'", f"the folder as a part of {section}.url")
    url, allowed = urlsplit(dfs.url), "hdfs://NAMENODE:PORT/FOLDER or hdfs://NAMESERVICE/FOLDER"
    if not dfs.url:
        fault(f"{section}.url", "is missing", allowed)
    elif (url.scheme, url.query, url.fragment) != ("hdfs", "", "") or not url.netloc or not url.path.strip("/"):
        fault(f"{section}.url", f"is {dfs.url!r}", allowed)
    if dfs.conf_dir is not None and not dfs.conf_dir.is_dir():
        fault(f"{section}.conf_dir", f"is {dfs.conf_dir}, which is no folder", "the folder of core-site.xml and hdfs-site.xml")
    if bool(dfs.kerberos_principal) != (dfs.kerberos_keytab is not None):
        missing = "kerberos_keytab" if dfs.kerberos_principal else "kerberos_principal"
        fault(f"{section}.{missing}", "is missing", "a principal together with its keytab")


def _operator_faults(config: OperatorConfig, fault: Fault) -> None:
    if config.urls["a"] == config.urls["b"]:
        fault("sites.b.url", "is the address of site a too", "site b's own address")
    if (problem := config.token_problem()) is not None:
        fault("token", problem, "the file of a token, as `twinlog token create` printed it")
    client_faults(config, fault)
    monitor = config.monitor
    if 2 * monitor.interval_s > monitor.gap_max_s:
        fault("monitor.gap_max_s", f"is {monitor.gap_max_s:g}: no condition would ever hold from one look to the next",
              "at least twice monitor.interval_s", "monitor.interval_s")
