"""Decides by Host and Origin what may come in, so that no page of another site can use a browser against this one.

What always holds: a request names this site as itself: by an address, by `localhost`, or by a name of its configuration. A page
whose name was bound to this site's address behind the browser's back (DNS rebinding) sends that name, and is refused. A request
of a page of another origin is refused, whatever it asks for, unless `http.cors_origins` names the origin. Clients that are no
browsers send no Origin.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException

from gateway.service.http_settings import HttpSettings

Header = tuple[bytes, bytes]
VARY_ORIGIN = ("vary", "Origin")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{0,5})?")
_KNOWN_MAX = 1000
_PREFLIGHT_S = 600
_SENT_HEADERS = (
    "Accept, Authorization, Content-Type, Idempotency-Key, If-Match, If-None-Match, Twinlog-Actor, Twinlog-Deadline-S, "
    "Twinlog-Expires-Ms"
)
_SHOWN_HEADERS = "ETag, Location, Retry-After, Twinlog-Schema, Twinlog-Stale"


class Origins:
    """The names of one site, and the origins whose pages may call it."""

    def __init__(self, http: HttpSettings) -> None:
        own = (http.host, urlsplit(http.advertised_url).hostname or "", *http.allowed_hosts)
        self._names = {"localhost", *(name.lower().rstrip(".") for name in own if name)}
        self._origins = {origin.lower() for origin in http.cors_origins}
        self._known: set[bytes] = set()  # Host headers that were found good

    def knows(self, host: bytes | None) -> bool:
        """True for the Host of a request to this site."""
        if host in self._known:
            return True
        found = None if host is None else _HOST.fullmatch(host.decode("latin-1"))
        if host is None or found is None or not self._is_ours(found[1].lower().rstrip(".")):
            return False
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known.add(host)
        return True

    def _is_ours(self, name: str) -> bool:
        """An address is never the name that a page was bound under: a page at an address of this site is this site's own."""
        if name in self._names or name.endswith(".localhost"):
            return True
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return True

    def admit(self, headers: Iterable[Header], http_version: str) -> bytes | None:
        """Returns the other origin whose page asks, if it may; None where no page asks, or one of this site.

        Raises HTTPException: 400 for a Host that is missing, doubled or malformed, 403 for one of another site, and for an
        origin that is not configured.
        """
        hosts, origins = [], []
        for name, value in headers:
            if name == b"host":
                hosts.append(value)
            elif name == b"origin":
                origins.append(value)
        if not (hosts or http_version == "1.0"):
            raise HTTPException(400, "Host is missing: send the name or address of this site")
        if len(hosts) > 1:
            raise HTTPException(400, f"Host is there {len(hosts)} times: send it once")
        if hosts and not self.knows(hosts[0]):
            raise _no_host_of_ours(hosts[0].decode("latin-1"))
        if not origins:
            return None
        origin = origins[0].decode("latin-1")
        if len(origins) == 1 and hosts and _host_of(origin) == hosts[0].decode("latin-1").lower():
            return None
        if len(origins) > 1 or origin.lower() not in self._origins:
            raise HTTPException(
                403, f"a page of {origin[:80]!r} may not call this site: http.cors_origins has the origins that may"
            )
        return origins[0]


def _no_host_of_ours(host: str) -> HTTPException:
    if not _HOST.fullmatch(host):
        return HTTPException(400, f"Host is {host[:80]!r}: it must be a name or an address, with its port or without")
    return HTTPException(
        403, f"this site is not known as {host[:80]!r}: use an address that its configuration names, or add the name to "
        "http.allowed_hosts"
    )


def _host_of(origin: str) -> str:
    scheme, separator, host = origin.lower().partition("://")
    return host if separator and scheme in ("http", "https") else ""


def shared_with(origin: bytes) -> list[Header]:
    """Returns the headers by which a browser lets a page of `origin` read an answer."""
    return [(b"access-control-allow-origin", origin), (b"access-control-expose-headers", _SHOWN_HEADERS.encode())]


def preflight(methods: str) -> list[Header]:
    """Returns what a browser asks for before a page may send such a request."""
    return [
        (b"access-control-allow-methods", methods.encode()), (b"access-control-allow-headers", _SENT_HEADERS.encode()),
        (b"access-control-max-age", b"%d" % _PREFLIGHT_S),
    ]
