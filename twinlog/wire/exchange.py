"""One HTTP exchange with one site: what is asked, and what comes of it.

These are tuples, and need no other module, because a command that is typed in the middle of a failover waits for its imports.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class SiteRequest(NamedTuple):
    """One attempt, at one site, that must end within `timeout_s`."""

    url: str
    method: str
    headers: Mapping[str, str]
    content: bytes
    timeout_s: float


class Reply(NamedTuple):
    """A site's answer. Header names are lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class Broken(NamedTuple):
    """No answer. `sent` is False only when the request certainly did not reach the site."""

    sent: bool
    detail: str
