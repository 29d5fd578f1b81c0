"""A site is known by its certificate: by a URI among its subject alternative names, `twinlog://PAIR/SITE`.

What always holds: host names, addresses and common names make nobody a site; a certificate that names two sites is none's.

This module is pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

SCHEME = "twinlog://"
_SHOWN_MAX = 200


def site_uri(pair: str, site: str) -> str:
    """The name of a site in its certificate."""
    return f"{SCHEME}{pair}/{site}"


def uris_of(certificate: Mapping[str, Any] | None) -> list[str]:
    """The URIs of a certificate, as `getpeercert` of the module ssl returns one."""
    names = (certificate or {}).get("subjectAltName", ())
    return [value for kind, value in names if kind == "URI"]


def not_the_site(certificate: Mapping[str, Any] | None, pair: str, site: str) -> str:
    """Returns why a certificate that the CA signed is not that of `site`; an empty text where it is."""
    wanted = site_uri(pair, site)
    uris = uris_of(certificate)
    if uris == [wanted]:
        return ""
    if not uris:
        return f"its certificate names no site: it must have the URI {wanted}"
    return f"its certificate is of {', '.join(uris)[:_SHOWN_MAX]}, and {wanted} is wanted"
