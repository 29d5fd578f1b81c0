"""The checks of [access] that no single key can say."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from gateway.access.certificates import KINDS
from gateway.access.grants import parse_grants
from gateway.access.settings import CALLBACK, AccessSettings, LogInSettings, OidcSettings, is_protected
from gateway.config.reading import Fault
from gateway.service.http_settings import HttpSettings
from twinlog.errors import ConfigError, InvalidInput
from twinlog.wire.tls import Tls, client_context

GRANTS = "grants joined by blanks, such as 'reader:* writer:orders_*' or 'operator'"


def access_faults(access: AccessSettings, http: HttpSettings, fault: Fault) -> None:
    if access.tokens is None and access.oidc is None and access.plugin is None and not access.certificates:
        fault("access", "knows nobody: every request would be refused", "tokens, [access.oidc], [access.certificates]")
    for name in access.certificates:
        if not name.startswith(KINDS):
            problem = f"has {name!r}, which does not say what kind of name it is"
            fault("access.certificates", problem, "uri:..., dns:... or cn:...")
    _grants("access.certificates", access.certificates, fault)
    if access.oidc is not None:
        _oidc(access.oidc, http, fault)


def _oidc(oidc: OidcSettings, http: HttpSettings, fault: Fault) -> None:
    if bool(oidc.jwks_url) == (oidc.jwks_file is not None):
        fault("access.oidc.jwks_url", "and jwks_file: one of the two says where the issuer's keys are", "one of them")
    if oidc.jwks_url and not is_protected(oidc.jwks_url):
        fault("access.oidc.jwks_url", "is not encrypted: whoever is in between could give keys of his own", "https://...")
    _grants("access.oidc.grants", oidc.grants, fault)
    if oidc.ca is not None:
        try:
            client_context(Tls(ca=str(oidc.ca)))
        except ConfigError as error:
            fault("access.oidc.ca", f"cannot be used: {error.message}", "the certificates of CAs (PEM)")
    if oidc.login is not None:
        _login(oidc, oidc.login, fault)
        _redirect(oidc.login.redirect_url, http, fault)


def _login(oidc: OidcSettings, login: LogInSettings, fault: Fault) -> None:
    """[access.oidc.login] has encrypted addresses, and the one path at which this gateway takes an answer."""
    section = "access.oidc.login"
    if not login.client_id:
        fault(f"{section}.client_id", "is empty", "the name of this gateway's client at the issuer")
    if bool(login.authorization_url) != bool(login.token_url):
        missing = "token_url" if login.authorization_url else "authorization_url"
        fault(f"{section}.{missing}", "is missing", "both addresses; or neither, and the issuer's discovery document says them")
    for name in ("redirect_url", "authorization_url", "token_url"):
        if (url := getattr(login, name)) and not is_protected(url):
            fault(f"{section}.{name}", "is not encrypted: whoever is in between could log in as somebody else", "https://...")
    if not login.authorization_url and not is_protected(oidc.issuer):
        fault("access.oidc.issuer", f"is {oidc.issuer!r}: a discovery document is read from an encrypted address alone",
              "https://...; or authorization_url and token_url in [access.oidc.login]")
    if "openid" not in login.scopes:
        fault(f"{section}.scopes", "has no 'openid', without which no issuer gives an ID token", '["openid", ...]')


def _redirect(url: str, http: HttpSettings, fault: Fault) -> None:
    """The address to which the issuer sends people back is one that this site answers."""
    from gateway.http.origins import Origins  # its server is not for commands in the middle of a failover

    key, parts, allowed = "access.oidc.login.redirect_url", urlsplit(url), f"https://HOST:PORT{CALLBACK}"
    if parts.path != CALLBACK:
        fault(key, f"is {url!r}: this gateway takes the issuer's answer at {CALLBACK} alone", allowed)
    elif not Origins(http).knows(parts.netloc.encode()):
        problem = f"is at {parts.hostname}, and this site is not known by that name: it would refuse whoever comes back"
        fault(key, problem, "the host of http.advertised_url, or one of http.allowed_hosts", "http.advertised_url")


def _grants(key: str, given: Mapping[str, str], fault: Fault) -> None:
    for name, texts in given.items():
        try:
            parse_grants(texts.split())
        except InvalidInput as error:
            fault(key, f"gives {name!r} what is no grant: {error.message}", GRANTS)
