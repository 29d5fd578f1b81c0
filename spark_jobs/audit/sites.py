"""The two sites of a job: read from a site's configuration, a demo.json or an operator's configuration, or given by addresses.

What always holds: only the keys that a job needs are read, with the gateway's own rules for them (paths beside the file,
secrets by reference, TWINLOG_<SECTION>__<KEY> over the file given first); whether a file is sound as a whole is the business of
`twinlog config check`. What a file does not say stays empty, and the job that needs it says which file would.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

import msgspec
from sqlalchemy import make_url

from spark_jobs.job import SiteSource
from twinlog.addresses import is_address, resolve_tls
from twinlog.decoding import decoded
from twinlog.errors import ConfigError, InvalidInput, PeerError, reason, words
from twinlog.sites import Sites
from twinlog.wire.home_paths import expanded
from twinlog.wire.json_objects import toml_table
from twinlog.wire.tls import Tls

PREFIX = "TWINLOG_"
WAL_FOLDER = "wal"
HADOOP_FILES = ("core-site.xml", "hdfs-site.xml")
LOG = 0  # of a pair there is one so far


@dataclass(frozen=True, slots=True)
class AuditedPair:
    """`own`: the site of the file given first; in a demo.json and an operator's configuration, and by addresses, a."""

    name: str
    own: str
    sites: Mapping[str, SiteSource]


def load_pair(config: Path | str, peer_config: Path | None = None) -> AuditedPair:
    """Both sites, as far as the files say; sites given by addresses are asked for the pair's name.

    Raises ConfigError, InvalidInput, PeerError.
    """
    document: Mapping[str, Any] = {}
    if isinstance(config, str) and is_address(config):
        pair = _of_addresses(config)
    else:
        path = Path(config)
        document = _read(path)
        pair = _of_file(path, document)
    if peer_config is None:
        return pair
    keys = _Keys(peer_config, _read(peer_config), {})
    name = keys.text("site")
    if name not in pair.sites or (name == pair.own and "site" in document):
        raise _unfit(peer_config, f"is site {name!r}: give the configuration of the other site")
    if keys.text("pair") != pair.name:
        raise _unfit(peer_config, f"is of the pair {keys.text('pair')!r}, and {config} of {pair.name!r}")
    return replace(pair, sites={**pair.sites, name: _own_source(keys)})


def _of_file(path: Path, document: Mapping[str, Any]) -> AuditedPair:
    if path.suffix == ".json":
        return _of_demo(path, document)
    if "site" in document:
        return _of_site(path, _Keys(path, document, os.environ))
    if "sites" in document:
        return _of_operator(path, document)
    raise _unfit(path, "names no site: give a site's configuration, an operator's, a demo.json, or addresses")


def _of_addresses(address: str) -> AuditedPair:
    """The gateways name their pair: an address does not, or it is only a word in it."""
    with closing(Sites(address)) as sites:
        urls = dict(sites.urls)
        if sorted(urls) != ["a", "b"]:
            raise InvalidInput(f"{address} does not name the sites a and b: an audit needs both")
        answers = sites.ask_all("/v1/cluster")
    names = {str(answer["pair"]) for answer in answers.values() if isinstance(answer, dict)}
    if not names:
        raise PeerError("no site answers, so the pair's name is not known: " + "; ".join(map(str, answers.values())))
    if len(names) > 1:
        raise ConfigError(f"{address} leads to two pairs: {', '.join(sorted(names))}")
    return AuditedPair(names.pop(), "a", {name: SiteSource(name, urls[name], tls=resolve_tls(address)) for name in ("a", "b")})


def _read(path: Path) -> dict[str, Any]:
    try:
        content = path.read_bytes()
        found = decoded(msgspec.json.decode, content, ValueError) if path.suffix == ".json" else toml_table(content)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {reason(error)}; give --config FILE of a site or of a demo") from error
    except ValueError as error:
        raise _unfit(path, f"is not {'JSON' if path.suffix == '.json' else 'TOML'}: {words(error)}") from error
    if not isinstance(found, dict):
        raise _unfit(path, "is no table of settings")
    return found


def _unfit(path: Path, problem: str) -> ConfigError:
    return ConfigError(f"{path} {problem}")


def _of_demo(path: Path, document: Mapping[str, Any]) -> AuditedPair:
    try:
        configs = {name: Path(entry["config"]) for name, entry in document["sites"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise _unfit(path, "is no demo.json; start `twinlog demo` first") from error
    keys = {name: _Keys(config, _read(config), {}) for name, config in configs.items()}
    if sorted(keys) != ["a", "b"]:
        raise _unfit(path, "does not name the sites a and b")
    tls = resolve_tls(str(path))
    return AuditedPair(
        keys["a"].text("pair"), "a", {name: replace(_own_source(each), tls=tls) for name, each in keys.items()}
    )


def _of_operator(path: Path, document: Mapping[str, Any]) -> AuditedPair:
    keys, tls = _Keys(path, document, {}), resolve_tls(str(path))
    sites = {name: SiteSource(name, keys.text(f"sites.{name}.url").rstrip("/"), tls=tls) for name in ("a", "b")}
    return AuditedPair(keys.text("pair"), "a", sites)


def _of_site(path: Path, keys: _Keys) -> AuditedPair:
    """The peer as far as this site knows it: its address, and its DFS."""
    own = _own_source(keys)
    name = keys.text("peer.site")
    if {own.name, name} != {"a", "b"}:
        raise _unfit(path, f"is site {own.name!r} with the peer {name!r}: a pair is a and b")
    remote_log, hdfs = _remote_log(keys, "dfs.peer")
    url = keys.text("peer.advertised_url", "") or keys.text("peer.url")
    peer = SiteSource(
        name, url.rstrip("/"), remote_log=remote_log, hdfs=hdfs, tls=own.tls, remote_log_keys=own.remote_log_keys,
    )
    return AuditedPair(keys.text("pair"), own.name, {own.name: own, name: peer})


def _own_source(keys: _Keys) -> SiteSource:
    data = keys.path("data_dir")
    scheme = "http" if keys.table("http.tls") is None else "https"
    listens = f"{scheme}://{keys.text('http.host', '127.0.0.1')}:{keys.text('http.port', '8401')}"
    url = keys.text("http.advertised_url", "") or listens
    engine = keys.text("engine.kind", "rocksdb")
    remote_log, hdfs = _remote_log(keys, "dfs.own")
    return SiteSource(
        keys.text("site"), url.rstrip("/"), str(keys.file), wal=str(data / WAL_FOLDER), remote_log=remote_log, hdfs=hdfs,
        wal_keys=keys.references("wal.encryption_keys"), remote_log_keys=keys.references("remote_log.encryption_keys"),
        engine=engine, engine_url=_engine_url(keys, engine, data), tls=_tls(keys),
    )


def _tls(keys: _Keys) -> Tls:
    """A site's file names one CA, that of the sites; TWINLOG_CA names another one for the gateways."""
    found = resolve_tls({})
    known = found.ca or not keys.text("peer_http.ca", "")
    return found if known else found._replace(ca=str(keys.path("peer_http.ca")))


def _engine_url(keys: _Keys, engine: str, data: Path) -> str:
    if engine == "rocksdb":
        return ""
    url = keys.secret("engine.url")
    if not url:
        return f"sqlite:///{data / keys.text('engine.path', 'engine') / 'rows.db'}"
    password = keys.secret("engine.password")
    if not password:
        return url
    return make_url(url).set(password=password).render_as_string(hide_password=False)


def _remote_log(keys: _Keys, section: str) -> tuple[str, dict[str, str]]:
    """(folder or address of the pair's log there, Hadoop's keys; `user` among them)."""
    below = f"{keys.text('pair')}/{LOG}"
    if keys.text(f"{section}.kind", "directory") == "directory":
        return str(keys.path(f"{section}.path") / below), {}
    url = keys.text(f"{section}.url").rstrip("/")
    options = {} if not keys.text(f"{section}.conf_dir", "") else _of_hadoop(keys.path(f"{section}.conf_dir"))
    options |= {str(name): str(value) for name, value in (keys.table(f"{section}.options") or {}).items()}
    user = keys.text(f"{section}.user", "")
    return f"{url}/{below}", {**_of_service(options, url), **({"user": user} if user else {})}


def _of_hadoop(folder: Path) -> dict[str, str]:
    """Hadoop's own files there, the later one over the earlier, as Hadoop has it. Raises ConfigError."""
    found: dict[str, str] = {}
    for path in (folder / name for name in HADOOP_FILES):
        try:
            properties = ElementTree.parse(path).getroot().iter("property")
        except FileNotFoundError:
            continue
        except (OSError, ElementTree.ParseError) as error:
            raise _unfit(path, f"cannot be read: {words(error)}") from error
        found |= {each.findtext("name", "").strip(): each.findtext("value", "").strip() for each in properties}
    return found


def _of_service(options: Mapping[str, str], url: str) -> dict[str, str]:
    """Leaves out the NameNodes of other name services: files of Hadoop may know those of many clusters."""
    others = set(options.get("dfs.nameservices", "").split(",")) - {urlsplit(url).netloc}
    return {name: value for name, value in options.items() if others.isdisjoint(name.split("."))}


class _Keys:
    """One file's settings by dotted key, the environment over them."""

    def __init__(self, file: Path, table: Mapping[str, Any], environ: Mapping[str, str]) -> None:
        self.file = expanded(file, "the configuration").resolve()
        self._table = table
        self._environ = environ

    def text(self, key: str, default: str | None = None) -> str:
        value = self._environ.get(PREFIX + key.replace(".", "__").upper(), self._found(key))
        if value is None and default is None:
            raise _unfit(self.file, f"has no {key}; `twinlog config check --config {self.file}` reports what is missing")
        return str(default if value is None else value)

    def path(self, key: str) -> Path:
        """Beside the file when it is relative."""
        return (self.file.parent / expanded(self.text(key), key)).resolve()

    def table(self, key: str) -> Mapping[str, Any] | None:
        found = self._found(key)
        return found if isinstance(found, Mapping) else None

    def secret(self, key: str) -> str:
        """The text, or what `env:NAME` and `file:PATH` refer to; empty when it is not set."""
        raw = self.text(key, "")
        scheme, _, name = raw.partition(":")
        if scheme == "env":
            if not os.environ.get(name):
                raise _unfit(self.file, f"takes {key} from the environment variable {name}, which is not set here")
            return os.environ[name]
        if scheme == "file":
            path = (self.file.parent / expanded(name, key)).resolve()
            try:
                return path.read_text(encoding="utf-8").strip()
            except OSError as error:
                raise _unfit(self.file, f"takes {key} from {path}, which cannot be read: {reason(error)}") from error
        return raw

    def references(self, key: str) -> str:
        """Returns the references to keys of a log, those to files beside the file: no key is read here."""
        given = self._environ.get(PREFIX + key.replace(".", "__").upper(), self._found(key)) or ()
        found = given.split(",") if isinstance(given, str) else [str(each) for each in given]
        return ",".join(self._absolute(each.strip()) for each in found)

    def _absolute(self, reference: str) -> str:
        key_id, _, path = reference.partition("=file:")
        return f"{key_id}=file:{(self.file.parent / expanded(path, key_id)).resolve()}" if path else reference

    def _found(self, key: str) -> Any:
        value: Any = self._table
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value
