"""The section [access] of a site: who is known to it, and what each identity may take."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from gateway.access.limits import LimitSettings
from storage.settings import RESTART, RUN_TIME, Matches, OneOf, Reference, Url, Within

CALLBACK = "/ui/login/callback"  # of the page, to which the issuer sends a browser back


@dataclass(frozen=True, slots=True, kw_only=True)
class LogInSettings:
    """The log-in at the page by the issuer, for its client `client_id`; without `client_secret` a public one. `redirect_url`:
    the address of this site's page for browsers, with the path /ui/login/callback, as the issuer knows it. Without
    `authorization_url` and `token_url` the issuer's discovery document has them. `session_s`: how long a session may last; 0:
    as long as the ID token."""

    client_id: Annotated[str, RESTART]
    client_secret: Annotated[str, Reference(), RUN_TIME] = field(default="", repr=False)
    redirect_url: Annotated[Url, RESTART]
    authorization_url: Annotated[Url, RESTART] = ""
    token_url: Annotated[Url, RESTART] = ""
    scopes: Annotated[tuple[str, ...], Matches(r"[!#-\[\]-~]+"), RUN_TIME] = ("openid",)
    session_s: Annotated[float, Within(0, 604_800), RUN_TIME] = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSettings:
    """`jwks_url` or `jwks_file` has the issuer's keys. `claim` is a text or a list of texts of the token; `grants` has for
    each of them what it grants, as texts joined by blanks: `dba = "admin:* operator"`. `name`: the claim that names people, for
    their limits, the log and the trail. `ca`: who signed the certificate of the issuer's addresses; without it the usual CAs
    count."""

    issuer: Annotated[str, RESTART]
    audience: Annotated[str, RESTART]
    jwks_url: Annotated[Url, RESTART] = ""
    jwks_file: Annotated[Path | None, RESTART] = None
    claim: Annotated[str, RUN_TIME] = "groups"
    name: Annotated[str, RUN_TIME] = "sub"
    grants: Annotated[Mapping[str, str], RUN_TIME] = field(default_factory=dict)
    fetch_deadline_s: Annotated[float, Within(0.1, 60), RESTART] = 5.0
    refresh_s: Annotated[float, Within(1, 86_400), RESTART] = 300.0
    ca: Annotated[Path | None, RESTART] = None
    login: LogInSettings | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSettings:
    """An authenticator of another distribution, by the name of its entry point, and what it is given."""

    name: Annotated[str, RESTART]
    options: Annotated[Mapping[str, str], RESTART] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessSettings:
    """A site with this section answers only those it knows. `certificates` has for the name in a client certificate
    (`uri:...`, `dns:...` or `cn:...`) what it grants. `peer_calls = "plain"`: the other site's calls come in without a
    certificate, and whoever reaches the port may speak as that site: for a pair on one machine, and on the way to
    `[peer_http]`."""

    tokens: Annotated[Path | None, RESTART] = None
    certificates: Annotated[Mapping[str, str], RUN_TIME] = field(default_factory=dict)
    oidc: OidcSettings | None = None
    plugin: PluginSettings | None = None
    limits: LimitSettings = field(default_factory=LimitSettings)
    peer_calls: Annotated[str, OneOf(("certificate", "plain")), RESTART] = "certificate"


def is_protected(url: str) -> bool:
    """Returns whether nobody in between reads or changes what is sent to this address: https, or this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host)))
    except ValueError:
        return False


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
