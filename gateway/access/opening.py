"""Opens the gate that a configuration describes."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from functools import partial

from gateway.access.authenticator import Authenticator, from_entry_point
from gateway.access.certificates import Certificates
from gateway.access.gate import Gate
from gateway.access.log_in.log_in import LogIn
from gateway.access.oidc import Oidc
from gateway.access.settings import AccessSettings
from gateway.access.token_file import TokenFile
from twinlog.errors import ConfigError


def open_gate(
    access: AccessSettings, *, wall_s: Callable[[], float] = time.time, now_s: Callable[[], float] = time.monotonic
) -> Gate:
    """Raises ConfigError where a file of it cannot be read, or nobody could ever be let in."""
    authenticators: list[Authenticator] = []
    if access.tokens is not None:
        authenticators.append(TokenFile(access.tokens, wall_s))
    if access.oidc is not None:
        oidc = Oidc(access.oidc, now_s)
        authenticators.append(oidc)
        if access.oidc.login is not None:
            authenticators.append(LogIn(
                access.oidc, access.oidc.login, oidc, wall_s=wall_s, now_s=now_s, secret=partial(secrets.token_urlsafe, 32)
            ))
    if not (authenticators or access.certificates or access.plugin):
        raise ConfigError("[access] knows nobody: give it `tokens`, [access.oidc], [access.certificates] or [access.plugin]")
    authenticators.append(Certificates(access.certificates))  # without one, too: a reload may bring the first
    if access.plugin is not None:
        authenticators.append(from_entry_point(access.plugin.name, access.plugin.options))
    return Gate(authenticators, access.limits, wall_s=wall_s, now_s=now_s, plain_peer=access.peer_calls == "plain")


def apply(gate: Gate, access: AccessSettings) -> None:
    """Puts grants and limits that changed into effect. Raises InvalidInput."""
    for authenticator in gate.authenticators:
        if isinstance(authenticator, Certificates):
            authenticator.apply(access.certificates)
        elif isinstance(authenticator, Oidc) and access.oidc is not None:
            authenticator.apply(access.oidc)
        elif isinstance(authenticator, LogIn) and access.oidc is not None and access.oidc.login is not None:
            authenticator.apply(access.oidc.login)
    gate.apply(access.limits)
