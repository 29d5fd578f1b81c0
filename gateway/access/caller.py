"""The caller of a request: who asks, how that was proven, and what they may.

What always holds: a handler finds the caller in the scope of its request; without `[access]` it is `anonymous`, who has every
grant.
This module is pure.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.access.grants import EVERYTHING, REPLICATOR, Grants, knowing
from twinlog.errors import Forbidden

CALLER = "twinlog.caller"  # in the scope of a request


@dataclass(frozen=True, slots=True)
class Caller:
    """`kind`: anonymous, token, oidc, certificate, site, or that of an authenticator which somebody added."""

    name: str
    kind: str
    grants: Grants
    is_site: bool = False

    def knows(self, table: str) -> bool:
        """True where the caller may know of this table: any grant on it."""
        return knowing(self.grants)(table)

    def require(self, role: str, table: str) -> None:
        """Raises Forbidden that names the grant, and says nothing about whether there is such a table."""
        if not self.grants.on(role, table):
            raise forbidden(f"{role}:{table[:128]}")


ANONYMOUS = Caller("anonymous", "anonymous", EVERYTHING, is_site=True)
NOBODY = Caller("nobody", "anonymous", Grants())
SITE_IN_PLAIN = Caller("the other site", "site", Grants(), is_site=True)


def forbidden(grant: str) -> Forbidden:
    what = "the other site's alone" if grant == REPLICATOR else "missing"
    return Forbidden(
        f"the grant {grant!r} is {what}: nothing was done; ask an administrator of this pair for it", grant=grant
    )
