"""Judges what a configuration says of who gets in: its faults, and what `twinlog config check` warns of.

What always holds: a listener that other machines reach needs TLS, identities and a listener of its own for the other site, or
the file says `insecure = true`; every file of TLS is read at the start, and a wrong one is a fault.
"""

from __future__ import annotations

import ipaddress
import stat
from pathlib import Path

from gateway.config.model import OperatorConfig, SiteConfig
from gateway.config.reading import Fault
from twinlog.errors import ConfigError
from twinlog.wire.tls import Tls, client_context

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_LOCAL_NAMES = ("localhost", "ip6-localhost")


def security_faults(config: SiteConfig, fault: Fault) -> None:
    """Files of TLS that cannot be used, and a listener that lets everybody in."""
    if config.http.tls is not None or config.peer_http is not None:
        _file_faults(config, fault)
    if config.peer_http is not None and config.peer_http.port == config.http.port:
        fault("peer_http.port", f"is {config.http.port}, which is http.port", "a port of its own", "http.port")
    if config.access is not None and config.peer_http is None and config.access.peer_calls != "plain":
        fault("access.peer_calls", "is left out, and there is no [peer_http]: the sites would not hear each other",
              "[peer_http]; or 'plain', by which whoever reaches this port may speak as the other site", "peer_http")
    missing = missing_protection(config)
    if missing and not config.insecure and not is_loopback(config.http.host):
        fault(
            "http.host", f"is {config.http.host!r}, which other machines reach, and {' and '.join(missing)} "
            f"{'is' if len(missing) == 1 else 'are'} missing",
            "127.0.0.1; or these sections (docs/security.md); or `insecure = true` at the top of the file, on a closed network",
        )


def client_faults(config: OperatorConfig, fault: Fault) -> None:
    """Files of TLS that a client cannot use."""
    if (config.certificate is None) != (config.key is None):
        missing = "key" if config.key is None else "certificate"
        fault(missing, "is missing", "a certificate together with its key")
        return
    for key, tls, allowed in (
        ("ca", Tls(ca=_text(config.ca)), "the certificates of CAs (PEM)"),
        ("certificate", Tls(certificate=_text(config.certificate), key=_text(config.key)), "a certificate and its key (PEM)"),
    ):
        try:
            if any(tls):
                client_context(tls)
        except ConfigError as error:
            fault(key, f"cannot be used: {error.message}", allowed)


def _text(path: Path | None) -> str:
    return "" if path is None else str(path)


def missing_protection(config: SiteConfig) -> list[str]:
    """The sections without which a listener lets everybody in."""
    has = {
        "[http.tls]": config.http.tls is not None, "[access]": has_identities(config),
        "[peer_http]": config.peer_http is not None,
    }
    return [section for section, is_there in has.items() if not is_there]


def has_identities(config: SiteConfig) -> bool:
    """Returns whether callers must say who they are: the section [access]."""
    return config.access is not None


def is_loopback(host: str) -> bool:
    """Returns whether a listener at `host` is reached from this machine alone. A name that only a resolver knows is not."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() in _LOCAL_NAMES


def config_warnings(config: SiteConfig | OperatorConfig) -> list[dict[str, str]]:
    """Returns what a sound configuration leaves open, each with `key` and `problem`."""
    found = []
    if isinstance(config, SiteConfig):
        if config.insecure:
            found.append(("insecure", "is true: whoever reaches the listener reads, writes and changes roles"))
        if config.access is not None and config.access.peer_calls == "plain":
            found.append(("access.peer_calls", "is 'plain': whoever reaches the listener may speak as the other site"))
        if config.peer_http is not None and config.peer.url.startswith("http:"):
            found.append(("peer.url", "is plain HTTP: the other site is believed without a certificate"))
        if config.peer_http is not None and not config.peer.advertised_url:
            found.append(("peer.advertised_url", "is missing: clients are sent to peer.url, which takes the other site alone"))
    for key, path in _keys_of(config).items():
        try:
            mode = path.stat().st_mode
        except OSError:
            continue
        if mode & _OTHERS:
            found.append((key, f"is {path}, which others on this machine may read (mode {stat.S_IMODE(mode):04o}): chmod 600"))
    return [{"key": key, "problem": problem} for key, problem in found]


def _keys_of(config: SiteConfig | OperatorConfig) -> dict[str, Path]:
    """The files of private keys and of tokens."""
    if isinstance(config, OperatorConfig):
        return {} if config.key is None else {"key": config.key}
    sections = {"http.tls": config.http.tls, "peer_http": config.peer_http}
    found = {f"{name}.key": section.key for name, section in sections.items() if section is not None}
    if config.access is not None and config.access.tokens is not None:
        found["access.tokens"] = config.access.tokens
    return found


def _file_faults(config: SiteConfig, fault: Fault) -> None:
    """Reads the certificates. What does is imported here: commands in the middle of a failover do not wait for it."""
    from gateway.tls.contexts import faults_of, peer_listener_context, public_context

    http, peer_http = config.http.tls, config.peer_http
    for section, check in (
        ("http.tls", None if http is None else lambda: public_context(http)),
        ("peer_http", None if peer_http is None else lambda: peer_listener_context(peer_http)),
    ):
        try:
            if check is not None:
                check()
        except ConfigError as error:
            for each in faults_of(error):
                fault(f"{section}.{each.key}", each.problem, each.allowed)
