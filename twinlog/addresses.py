"""The addresses of a pair's sites, and how to speak TLS with them: from a logical address, an operator's configuration, or a
demo.json.

What always holds: only these, and where the token stands, are read; `twinlog config check` judges the rest of an operator's
configuration. The environment (TWINLOG_SITES__A__URL, TWINLOG_CA) goes over the file, as in the server.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from twinlog.errors import ConfigError, InvalidInput, reason, words
from twinlog.wire.home_paths import expanded
from twinlog.wire.json_objects import json_object, toml_table
from twinlog.wire.tls import Tls

_TOP = ("pair", "ca", "certificate", "key", "token")  # keys of an operator's configuration that stand in no section
_ADDRESS = "http://HOST:PORT or https://HOST:PORT"
_NO_ADDRESS = "it needs the address of each site"
BOTH = "http://HOST:PORT,http://HOST:PORT"
LOGICAL = "twinlog://PAIR?a=http://HOST:PORT&b=http://HOST:PORT"


def resolve_address(address: str | Mapping[str, str]) -> dict[str, str]:
    """Site -> url of a `twinlog://` address, of `http://A,http://B`, of an operator's configuration (TOML), of a demo.json, or
    of the mapping itself.

    Raises InvalidInput, ConfigError.
    """
    if not isinstance(address, str):
        return dict(address)
    if not address:
        what = "an operator's configuration, a demo.json, or addresses"
        raise InvalidInput(f"which pair? give --config PAIR ({what}), or set TWINLOG_CONFIG")
    if is_address(address):
        return parse_address(address) if address.startswith("twinlog:") else _of_addresses(address)
    path = expanded(address, "--config")
    return _of_demo(path) if path.suffix == ".json" else _of_operator(path)


def resolve_tls(address: str | Mapping[str, str]) -> Tls:
    """The CA and the certificate for the sites of `address`: its file's `ca`, `certificate` and `key`, and over them
    TWINLOG_CA, TWINLOG_CERTIFICATE and TWINLOG_KEY.

    Raises InvalidInput, ConfigError.
    """
    found: dict[str, str] = {}
    if isinstance(address, str) and address and not is_address(address):
        path = expanded(address, "--config")
        table = _demo(path) if path.suffix == ".json" else _operator(path)
        given = {name: table[name] for name in Tls._fields if name in table}
        wrong = {name: f"is {value!r}, not a path" for name, value in given.items() if not isinstance(value, str)}
        if wrong:
            raise _faulty(path, wrong, "the path of a PEM file", "it names no files for TLS")
        found = {name: str(path.resolve().parent / expanded(value, name)) for name, value in given.items()}
    for name in Tls._fields:
        if value := os.environ.get(f"TWINLOG_{name.upper()}"):
            found[name] = str(expanded(value, f"TWINLOG_{name.upper()}"))
    return Tls(**found)


def address_token(address: str | Mapping[str, str]) -> str:
    """The token of an operator's configuration or a demo.json: `file:PATH` with the whole path, or what the variable of
    `env:NAME` holds; empty where there is none. What is wrong with such a file otherwise, `resolve_address` says.

    Raises ConfigError for a token that stands there itself, and for a variable that is not set.
    """
    if not isinstance(address, str) or not address or is_address(address):
        return ""
    path = expanded(address, "--config")
    try:
        said = (_demo(path) if path.suffix == ".json" else _operator(path)).get("token")
    except (InvalidInput, ConfigError):
        return ""
    if said is None:
        return ""
    kind, _, name = str(said).partition(":")
    if kind == "file" and name:
        return f"file:{path.parent / expanded(name, 'token')}"
    if kind == "env" and os.environ.get(name):
        return os.environ[name]
    problem = f"refers to the variable {name}, which is not set" if kind == "env" else "is a secret in plain text"
    fault = {"file": str(path), "key": "token", "problem": problem, "allowed": "env:NAME or file:PATH"}
    raise ConfigError(f"{path} does not say where the token is", faults=[fault])


def is_address(text: str) -> bool:
    """True for what names the sites itself, and no file."""
    return text.startswith(("twinlog:", "http:", "https:"))


def parse_address(address: str) -> dict[str, str]:
    """Site -> url of `twinlog://PAIR?a=http://...&b=http://...`. Raises InvalidInput."""
    scheme, _, rest = address.partition(":")
    urls = dict(parse_qsl(rest.partition("#")[0].partition("?")[2]))
    if scheme != "twinlog" or not urls or not all(_is_http(url) for url in urls.values()):
        raise InvalidInput(f"{address!r} is no logical address: write {LOGICAL}")
    return urls


def _of_addresses(address: str) -> dict[str, str]:
    """The sites of `http://...,http://...`: a, then b. Raises InvalidInput."""
    urls = [url.strip().rstrip("/") for url in address.split(",")]
    if len(urls) != 2 or not all(_is_http(url) for url in urls):
        raise InvalidInput(f"{address!r} does not name both sites: write {BOTH} (site a, then b) or {LOGICAL}")
    return dict(zip("ab", urls, strict=True))


def _of_demo(path: Path) -> dict[str, str]:
    try:
        return {site: str(entry["url"]) for site, entry in _demo(path)["sites"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise _no_demo(path, error) from error


def _demo(path: Path) -> dict[str, Any]:
    try:
        return json_object(path.read_bytes())
    except (OSError, ValueError) as error:
        raise _no_demo(path, error) from error


def _no_demo(path: Path, error: Exception) -> InvalidInput:
    return InvalidInput(f"{path} is not a readable demo.json: {words(error)}; start `twinlog demo` first")


def _operator(path: Path) -> dict[str, Any]:
    """Raises ConfigError."""
    try:
        return toml_table(path.read_bytes())
    except OSError as error:
        raise _faulty(path, {"": f"cannot be read: {reason(error)}"}) from error
    except ValueError as error:
        raise _faulty(path, {"": f"is not TOML: {words(error)}"}) from error


def _of_operator(path: Path) -> dict[str, str]:
    """Raises ConfigError with every fault."""
    table = _operator(path)
    if isinstance(table.get("site"), str) and "sites" not in table:
        raise ConfigError(
            f"{path} is the configuration of site {table['site']}, which `twinlog serve` reads; here the pair is wanted: an "
            "operator's configuration, with `[sites.a]` and `[sites.b]` and the `url` of each, a demo.json, or "
            f"{BOTH} (site a, then b), or {LOGICAL}"
        )
    urls, faults = {}, {}
    for site in ("a", "b"):
        key = f"sites.{site}.url"
        url = os.environ.get(f"TWINLOG_SITES__{site.upper()}__URL") or _at(table, "sites", site, "url")
        if isinstance(url, str) and _is_http(url):
            urls[site] = url.rstrip("/")
        elif url is not None:
            faults[key] = f"is {url!r}, not an http address"
        elif _at(table, site, "url") is None:  # else it is misplaced, and that is said once
            faults[key] = "is missing"
    listed = [*_misplaced(path, table), *_listed(path, faults, _ADDRESS)]
    if listed:
        said = "keys of it stand at a wrong place" if len(listed) > len(faults) else _NO_ADDRESS
        raise ConfigError(f"{path} is no operator's configuration of a pair: {said}", faults=listed)
    return urls


def _misplaced(path: Path, table: Mapping[str, Any]) -> list[dict[str, str]]:
    """The faults of known keys one level, or two, from where they are read: nothing would be made of them, in silence."""
    found = []
    sites = table.get("sites")
    sites = sites if isinstance(sites, dict) else {}
    sections = {"sites": sites, "monitor": table.get("monitor")} | {f"sites.{name}": sites.get(name) for name in ("a", "b")}
    sections |= {name: table.get(name) for name in ("a", "b")}
    for section, held in sections.items():
        if isinstance(held, dict):
            found += [misplaced(path, f"{section}.{key}", key) for key in _TOP if key in held]
    found += [misplaced(path, f"{name}.url", f"sites.{name}.url") for name in ("a", "b") if _at(table, name, "url") is not None]
    found += [misplaced(path, key, "sites.a.url") for key in ("url", "sites.url") if _at(table, *key.split(".")) is not None]
    return found


def misplaced(path: Path | str, key: str, home: str, *, is_section: bool = False) -> dict[str, str]:
    """The fault of `key` of a TOML file, which is read at `home` alone: where it stands, where it belongs, what to type. Its
    value, which may be a secret, is not shown."""
    section, _, name = home.rpartition(".")
    there = f"in the section [{section}]" if section else "above the first section"
    first = f"[{section}], and below it:" if section else "above the first line that begins with `[`:"
    problem = f"this section is [{home}]" if is_section else f"{name} belongs {there}, as {home}"
    return {
        "file": str(path), "key": key, "problem": f"stands at a wrong place: {problem}",
        "allowed": f"[{home}]" if is_section else f"{first} {name} = ...",
    }


def _at(table: Any, *keys: str) -> Any:
    for key in keys:
        table = table.get(key) if isinstance(table, dict) else None
    return table


def _faulty(path: Path, faults: Mapping[str, str], allowed: str = _ADDRESS, said: str = _NO_ADDRESS) -> ConfigError:
    return ConfigError(f"{path} is no operator's configuration of a pair: {said}", faults=_listed(path, faults, allowed))


def _listed(path: Path, faults: Mapping[str, str], allowed: str) -> list[dict[str, str]]:
    return [{"file": str(path), "key": key, "problem": problem, "allowed": allowed} for key, problem in faults.items()]


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:  # a bracket that is not closed, or holds no address
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)
