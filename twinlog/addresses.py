"""The addresses of a pair's sites: from a logical address, an operator's configuration, or a demo.json.

What always holds: only the addresses are read; `twinlog config check` judges the rest of an operator's configuration. The
environment (TWINLOG_SITES__A__URL) goes over the file, as in the server.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from twinlog.errors import ConfigError, InvalidInput
from twinlog.wire.json_objects import json_object

LOGICAL = "twinlog://PAIR?a=http://HOST:PORT&b=http://HOST:PORT"


def resolve_address(address: str | Mapping[str, str]) -> dict[str, str]:
    """Site -> url of a `twinlog://` address, an operator's configuration (TOML), a demo.json, or of the mapping itself.

    Raises InvalidInput, ConfigError.
    """
    if not isinstance(address, str):
        return dict(address)
    if not address:
        raise InvalidInput("which pair? give --config FILE (an operator's configuration or a demo.json), or set TWINLOG_CONFIG")
    if address.startswith("twinlog:"):
        return parse_address(address)
    path = Path(address).expanduser()
    return _of_demo(path) if path.suffix == ".json" else _of_operator(path)


def parse_address(address: str) -> dict[str, str]:
    """Site -> url of `twinlog://PAIR?a=http://...&b=http://...`. Raises InvalidInput."""
    parts = urlsplit(address)
    urls = dict(parse_qsl(parts.query))
    if parts.scheme != "twinlog" or not urls or not all(_is_http(url) for url in urls.values()):
        raise InvalidInput(f"{address!r} is no logical address: write {LOGICAL}")
    return urls


def _of_demo(path: Path) -> dict[str, str]:
    try:
        return {site: str(entry["url"]) for site, entry in json_object(path.read_bytes())["sites"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidInput(f"{path} is not a readable demo.json: {error}; start `twinlog demo` first") from error


def _of_operator(path: Path) -> dict[str, str]:
    """Raises ConfigError with every fault."""
    import tomllib

    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _faulty(path, {"": f"cannot be read: {error.strerror}"}) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _faulty(path, {"": f"is not TOML: {error}"}) from error
    urls, faults = {}, {}
    for site in ("a", "b"):
        key = f"sites.{site}.url"
        url = os.environ.get(f"TWINLOG_SITES__{site.upper()}__URL") or _at(table, "sites", site, "url")
        if isinstance(url, str) and _is_http(url):
            urls[site] = url.rstrip("/")
        else:
            faults[key] = "is missing" if url is None else f"is {url!r}, not an http address"
    if faults:
        raise _faulty(path, faults)
    return urls


def _at(table: Any, *keys: str) -> Any:
    for key in keys:
        table = table.get(key) if isinstance(table, dict) else None
    return table


def _faulty(path: Path, faults: Mapping[str, str]) -> ConfigError:
    allowed = "http://HOST:PORT or https://HOST:PORT"
    listed = [{"file": str(path), "key": key, "problem": problem, "allowed": allowed} for key, problem in faults.items()]
    return ConfigError(f"{path} is no operator's configuration of a pair: it needs the address of each site", faults=listed)


def _is_http(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in ("http", "https") and bool(parts.hostname)
