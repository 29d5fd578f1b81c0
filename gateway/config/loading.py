"""Reading a configuration: TOML, environment over it, every fault at once.

What always holds: either a frozen object that passed every check, or one ConfigError whose `faults` name each wrong
key with its file (or environment variable), the problem and what is allowed; an unknown key is a fault, with the known
key nearest to it; a secret in plain text is a fault. Source: product.md section 5; the classes are in config.py.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import os
import re
import tomllib
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

from gateway.config.model import DfsSiteConfig, HttpUrl, Matches, OneOf, OperatorConfig, Reference, Secret, SiteConfig, Within
from switchover.monitor.findings import Thresholds
from twinlog.errors import ConfigError

PREFIX = "TWINLOG_"
POSTGRESQL = "postgresql+psycopg://USER@HOST:PORT/DATABASE"
SQL_KEY_BYTES_MAX = 2560
REMOVED = (  # nothing read the first two; what read the others had figures of its own
    "engine.flush_bytes", "replication.retry_max_s", "replication.retry_first_s", "replication.poll_interval_s",
)
_INTERNAL = "sources"
_KIND_NAMES = {int: "a whole number", float: "a number", Path: "a path", str: "a text", Mapping: "a table of texts"}
_T = TypeVar("_T")
_Fault = Callable[..., None]  # (key, problem, allowed, *other keys that the check needs)


def load_site_config(path: Path, environ: Mapping[str, str] | None = None) -> SiteConfig:
    """The site's configuration. Raises ConfigError with every fault. `environ`: the process's own by default."""
    return _load(SiteConfig, path, os.environ if environ is None else environ, _site_faults)


def load_operator_config(path: Path, environ: Mapping[str, str] | None = None) -> OperatorConfig:
    """The operator's configuration: how to reach both sites. Raises ConfigError with every fault."""
    return _load(OperatorConfig, path, os.environ if environ is None else environ, _operator_faults)


def monitor_thresholds(address: str) -> Thresholds:
    """Of the operator's configuration at `address`; what is no such file (a demo.json, twinlog://) has the usual ones."""
    return load_operator_config(Path(address)).monitor if address.endswith(".toml") else Thresholds()


def effective(config: SiteConfig | OperatorConfig) -> Iterator[tuple[str, Any, str]]:
    """(dotted key, value, where it comes from) of every key, in the file's order; secrets masked."""
    yield from _effective(config, "", config.sources)


def _effective(part: Any, prefix: str, sources: Mapping[str, str]) -> Iterator[tuple[str, Any, str]]:
    hints = typing.get_type_hints(type(part), include_extras=True)
    sections = []
    for spec in dataclasses.fields(part):
        value, key = getattr(part, spec.name), prefix + spec.name
        if dataclasses.is_dataclass(value):
            sections.append((value, key + "."))
        elif spec.name != _INTERNAL and value is not None:
            yield key, _masked(value) if _Rule(hints[spec.name]).is_secret else value, sources.get(key, "default")
    for value, inner in sections:
        yield from _effective(value, inner, sources)


def _masked(value: str) -> str:
    scheme, separator, rest = value.partition("://")
    if not separator:
        return "***" if value else ""
    _, at, tail = rest.rpartition("@")
    return f"{scheme}://***@{tail}" if at else value


class _Reader:
    """Walks a dataclass beside a TOML table and collects faults instead of stopping at the first."""

    def __init__(self, file: Path, environ: Mapping[str, str]) -> None:
        self.file = file
        self.environ = environ
        self.faults: list[dict[str, str]] = []
        self.sources: dict[str, str] = {}
        self.known_variables: set[str] = set()
        self._faulty: set[str] = set()

    def fault(self, key: str, problem: str, allowed: str, *others: str, file: str | None = None) -> None:
        """Note a fault; nothing when `key` or one of the `others` that the check needs is faulty already."""
        if self._faulty.isdisjoint((key, *others)):
            self._faulty.add(key)
            self.faults.append({"file": file or str(self.file), "key": key, "problem": problem, "allowed": allowed})

    def read(self, cls: type[_T], table: Mapping[str, Any], prefix: str = "") -> _T | None:
        """An instance of `cls`, with defaults in place of faulty values, so that the checks across keys can go on.

        None when a key without a default is missing or faulty.
        """
        values: dict[str, Any] = {}
        complete = True
        hints = typing.get_type_hints(cls, include_extras=True)
        specs = {spec.name: spec for spec in dataclasses.fields(cls) if spec.name != _INTERNAL}  # type: ignore[arg-type]
        self._unknown(table, list(specs), prefix)
        for name, spec in specs.items():
            key, section = prefix + name, _section_class(hints[name])
            if section is not None:
                value = self._section(section, spec, table.get(name), key)
            else:
                value = self._value(spec, hints[name], table, key)
            if value is not None:
                values[name] = value
            elif spec.default is dataclasses.MISSING:
                complete = False
        return cls(**values) if complete else None

    def _unknown(self, table: Mapping[str, Any], known: list[str], prefix: str) -> None:
        for name in table:
            if prefix + name in REMOVED:
                self.fault(prefix + name, "was removed: it had no effect of its own", "nothing: delete the line")
            elif name not in known:
                near = difflib.get_close_matches(name, known, 1, 0.6)
                hint = f"; did you mean {prefix}{near[0]}?" if near else ""
                self.fault(prefix + name, f"there is no such key{hint}", ", ".join(known))

    def _section(self, cls: type[Any], spec: dataclasses.Field[Any], table: Any, key: str) -> Any:
        if table is not None and not isinstance(table, dict):
            self.fault(key, f"is {table!r}, not a section", f"[{key}] with keys of its own")
            return None
        given = table is not None or any(variable.startswith(_variable(key) + "__") for variable in self.environ)
        if spec.default is None and not given:
            self.known_variables.update(_variable(f"{key}.{inner.name}") for inner in dataclasses.fields(cls))
            return None
        return self.read(cls, table or {}, key + ".")

    def _value(self, spec: dataclasses.Field[Any], kind: Any, table: Mapping[str, Any], key: str) -> Any:
        """The converted value; None: take the default."""
        rule = _Rule(kind)
        variable = _variable(key)
        self.known_variables.add(variable)
        if variable in self.environ:
            raw, self.sources[key] = self.environ[variable], f"environment {variable}"
        elif spec.name in table:
            raw, self.sources[key] = table[spec.name], str(self.file)
        else:
            if spec.default is dataclasses.MISSING:
                self.fault(key, "is missing", rule.allowed())
            return None
        try:
            if raw == "" and spec.default != "":
                raise ValueError("is empty")
            if rule.is_secret:
                return self._secret(raw, rule.is_reference)
            value = rule.convert(raw, is_text=variable in self.environ)
            return (self.file.parent / value).resolve() if isinstance(value, Path) else value
        except ValueError as error:
            self.fault(key, str(error), rule.allowed(), file=variable if variable in self.environ else None)
            return None

    def _secret(self, raw: Any, is_reference: bool) -> str:
        """`env:NAME` and `file:PATH` are looked up; anything else must hold no password, or is a fault (`is_reference`)."""
        if not isinstance(raw, str):
            raise ValueError("is not a text")
        scheme, _, name = raw.partition(":")
        if scheme == "env":
            if not self.environ.get(name):
                raise ValueError(f"refers to the environment variable {name}, which is not set")
            return self.environ[name]
        if scheme == "file":
            path = (self.file.parent / Path(name).expanduser()).resolve()
            try:
                return path.read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise ValueError(f"refers to the file {path}, which cannot be read: {error}") from error
        if is_reference and raw:
            raise ValueError("is a secret in plain text")
        if urlsplit(raw).password is not None:
            raise ValueError("holds a password in plain text")
        return raw

    def unknown_variables(self) -> None:
        for variable in sorted(self.environ):
            if variable.startswith(PREFIX) and "__" in variable and variable not in self.known_variables:
                near = difflib.get_close_matches(variable, self.known_variables, 1, 0.6)
                hint = f"; did you mean {near[0]}?" if near else ""
                self.fault(variable, f"names no setting{hint}", "TWINLOG_<SECTION>__<KEY>", file="environment")


class _Rule:
    """What one key's annotation allows."""

    def __init__(self, hint: Any) -> None:
        plain, *marks = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
        if isinstance(plain, types.UnionType):
            plain = next(part for part in typing.get_args(plain) if part is not types.NoneType)
        self.kind: type = typing.get_origin(plain) or plain
        self.within = next((mark for mark in marks if isinstance(mark, Within)), None)
        self.choices = next((mark.choices for mark in marks if isinstance(mark, OneOf)), ())
        self.pattern = next((mark.pattern for mark in marks if isinstance(mark, Matches)), ".*")
        self.is_url = any(isinstance(mark, HttpUrl) for mark in marks)
        self.is_secret = any(isinstance(mark, Secret) for mark in marks)
        self.is_reference = any(isinstance(mark, Reference) for mark in marks)

    def allowed(self) -> str:
        if self.is_reference:
            return "env:NAME or file:PATH"
        if self.is_secret:
            return "env:NAME, file:PATH, or an address without a password"
        if self.is_url:
            return "http://HOST:PORT or https://HOST:PORT"
        if self.within is not None:
            return f"{_KIND_NAMES[self.kind]} from {self.within.low} to {self.within.high}"
        if self.pattern != ".*":
            return f"letters, digits, _ and -: {self.pattern}"
        return " | ".join(self.choices) or _KIND_NAMES[self.kind]

    def convert(self, raw: Any, *, is_text: bool) -> Any:
        """`raw` as the key's type. Raises ValueError that says what it is instead."""
        if self.within is not None:
            return self._number(raw, self.within, is_text=is_text)
        if self.kind is Mapping:
            return _texts(raw)
        if not isinstance(raw, str):
            raise ValueError(f"is {raw!r}, not a text")
        if self.choices and raw not in self.choices:
            near = difflib.get_close_matches(raw, self.choices, 1, 0.6)
            raise ValueError(f"is {raw!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        if not re.fullmatch(self.pattern, raw, re.DOTALL):
            raise ValueError(f"is {raw!r}")
        if self.is_url and raw:
            _check_http_url(raw)
        return Path(raw).expanduser() if self.kind is Path else raw

    def _number(self, raw: Any, within: Within, *, is_text: bool) -> int | float:
        number = raw
        if is_text:
            with contextlib.suppress(ValueError):
                number = self.kind(raw)
        if isinstance(number, bool) or not isinstance(number, int if self.kind is int else int | float):
            raise ValueError(f"is {raw!r}, not {_KIND_NAMES[self.kind]}")
        if not within.low <= number <= within.high:
            raise ValueError(f"is {number}, out of range")
        return int(number) if self.kind is int else float(number)


def _texts(raw: Any) -> dict[str, str]:
    if not isinstance(raw, dict) or not all(isinstance(value, str | int | float) for value in raw.values()):
        raise ValueError(f"is {raw!r}, not a table of texts")
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in raw.items()}


def _load(cls: type[_T], path: Path, environ: Mapping[str, str], check: Callable[[Any, _Fault], None]) -> _T:
    path = path.expanduser().resolve()
    reader = _Reader(path, environ)
    config: _T | None = None
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        reader.fault("", f"cannot be read: {error.strerror}", "a TOML file")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        reader.fault("", f"is not TOML: {error}", "a TOML file")
    else:
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
    object.__setattr__(config, _INTERNAL, types.MappingProxyType(reader.sources))  # before anyone else has seen it
    return config


def _section_class(hint: Any) -> type[Any] | None:
    """The dataclass that a field holds (also `X | None`), or None for a plain value."""
    for candidate in typing.get_args(hint) or (hint,):
        if isinstance(candidate, type) and dataclasses.is_dataclass(candidate):
            return candidate
    return None


def _variable(key: str) -> str:
    return PREFIX + key.replace(".", "__").upper()


def _check_http_url(raw: str) -> None:
    parts = urlsplit(raw)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"is {raw!r}, not an http address")
    if parts.username is not None or parts.query or parts.fragment or parts.port == 0:
        raise ValueError(f"is {raw!r}: only scheme, host, port and path belong here")


def _site_faults(config: SiteConfig, fault: _Fault) -> None:
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
            "policy", "is 'available', which needs a witness that records the degrade while the other site is away",
            "a [coordinator] with its url; or 'protect', where an operator degrades by command", "coordinator.url",
        )
    _engine_faults(config, fault)
    if config.coordinator is not None:
        _database_faults("coordinator.url", config.coordinator.url, fault)
    if config.journal.url:
        _database_faults("journal.url", config.journal.url, fault)
    http, commit, lease = config.http, config.commit, config.lease
    limits: list[tuple[str, float, str, float]] = [
        ("http.request_deadline_s", http.request_deadline_s, "http.request_deadline_max_s", http.request_deadline_max_s),
        ("http.row_bytes_max", http.row_bytes_max, "http.body_bytes_max", http.body_bytes_max),
        ("commit.frame_bytes_max", commit.frame_bytes_max, "commit.queue_bytes_max", commit.queue_bytes_max),
        ("lease.noop_interval_s", lease.noop_interval_s, "half of lease.lease_s", lease.lease_s / 2),
        ("remote_log.retry_first_s", config.remote_log.retry_first_s, "remote_log.retry_max_s", config.remote_log.retry_max_s),
    ]
    for key, value, limit_key, limit in limits:
        if value > limit:
            fault(key, f"is {value:_}, above {limit:_}", f"at most {limit_key}", limit_key.rpartition(" ")[2])


def _database_faults(key: str, url: str, fault: _Fault) -> None:
    """What an address says before anyone connects to it."""
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


def _engine_faults(config: SiteConfig, fault: _Fault) -> None:
    """Which of the section's keys belong to which kind."""
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


def _dfs_faults(section: str, dfs: DfsSiteConfig, fault: _Fault) -> None:
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


def _operator_faults(config: OperatorConfig, fault: _Fault) -> None:
    if config.urls["a"] == config.urls["b"]:
        fault("sites.b.url", "is the address of site a too", "site b's own address")
    monitor = config.monitor
    if 2 * monitor.interval_s > monitor.gap_max_s:
        fault("monitor.gap_max_s", f"is {monitor.gap_max_s:g}: no condition would ever hold from one look to the next",
              "at least twice monitor.interval_s", "monitor.interval_s")
