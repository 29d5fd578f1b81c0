"""The checks of [access] that no single key can say."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from gateway.access.certificates import KINDS
from gateway.access.grants import parse_grants
from gateway.access.settings import AccessSettings, OidcSettings
from gateway.config.reading import Fault
from twinlog.errors import InvalidInput

GRANTS = "grants joined by blanks, such as 'reader:* writer:orders_*' or 'operator'"


def access_faults(access: AccessSettings, fault: Fault) -> None:
    if access.tokens is None and access.oidc is None and access.plugin is None and not access.certificates:
        fault("access", "knows nobody: every request would be refused", "tokens, [access.oidc], [access.certificates]")
    for name in access.certificates:
        if not name.startswith(KINDS):
            problem = f"has {name!r}, which does not say what kind of name it is"
            fault("access.certificates", problem, "uri:..., dns:... or cn:...")
    _grants("access.certificates", access.certificates, fault)
    if access.oidc is not None:
        _oidc(access.oidc, fault)


def _oidc(oidc: OidcSettings, fault: Fault) -> None:
    if bool(oidc.jwks_url) == (oidc.jwks_file is not None):
        fault("access.oidc.jwks_url", "and jwks_file: one of the two says where the issuer's keys are", "one of them")
    parts = urlsplit(oidc.jwks_url)
    if parts.scheme == "http" and not _is_loopback(parts.hostname or ""):
        fault("access.oidc.jwks_url", "is not encrypted: whoever is in between could give keys of his own", "https://...")
    _grants("access.oidc.grants", oidc.grants, fault)


def _grants(key: str, given: Mapping[str, str], fault: Fault) -> None:
    for name, texts in given.items():
        try:
            parse_grants(texts.split())
        except InvalidInput as error:
            fault(key, f"gives {name!r} what is no grant: {error.message}", GRANTS)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
