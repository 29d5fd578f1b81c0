"""Looks inside a site for what it says nowhere: state that is wrong at any moment, or left over once a pair is at rest.

What always holds: a look changes nothing and draws nothing; each sentence names the site and what is wrong there.
"""

from __future__ import annotations

from collections.abc import Collection

from gateway.site.site import Site
from remote_log.replication.sink import FOLLOWED_EPOCH
from remote_log.writing.writer import RemoteWriter

SERVES = ("ACTIVE", "DOWNGRADE_ACTIVE")


class KeptSegments:
    """The kinds of segments that a writer of a remote log had at the look before, and keeps while it lives (trimmer.py)."""

    def __init__(self) -> None:
        self._writer: RemoteWriter | None = None
        self._had = (False, False)

    def lost(self, site: str, writer: RemoteWriter | None) -> list[str]:
        """Returns what this writer had and has no more."""
        begun = [segment for segment in writer.segments if segment.begun] if writer is not None else []
        has = (bool(begun), any(segment.last_seq >= segment.first_seq for segment in begun))
        had = self._had if writer is self._writer else (False, False)
        self._writer, self._had = writer, has
        names = ("header", "frame")
        return [
            f"The remote log of site {site} has no segment with a {name} any more, while its writer lives."
            for name, before, now in zip(names, had, has, strict=True) if before and not now
        ]


def wrong_inside(site: Site, running: str | None, journaled: Collection[str]) -> list[str]:
    """Returns what must not be so at any moment. `running`: the operation that runs there, `journaled` those in its journal."""
    found: list[str] = []
    durable = int(site.parts.engine.meta(FOLLOWED_EPOCH) or b"0")
    if site.sink.followed_epoch > durable:
        found.append(f"Site {site.site} follows epoch {site.sink.followed_epoch}, and its storage notes {durable}.")
    if running is not None and running not in journaled:
        found.append(f"Operation {running} runs at site {site.site}, and its journal has nothing of it.")
    if site.role in SERVES and site.sink.as_of_s is not None:
        found.append(f"Site {site.site} is {site.role}, and its storage still has the age of a standby's.")
    return found


def left_inside(site: Site) -> list[str]:
    """Returns what is still there although the pair is healthy, holds everything, and nothing is under way."""
    epoch = site.active_epoch
    if epoch is None:
        return []
    said = {
        "an append of the remote log aside, which nobody has confirmed": epoch.lease.aside_s is not None,
        "a writer of the remote log in the making": epoch.modes.making_remote,
        "a degrade that waits": epoch.modes.degrades_waiting > 0,
        "a change of mode that is not settled": epoch.modes.unsettled,
    }
    return [f"Site {site.site} is at rest, and has {what}." for what, is_there in said.items() if is_there]
