"""The formats that two sites have in common, the versions of each that this release reads, and whether two releases fit.

What always holds: a format that somebody does not name has version 0 for them, which says that they do not know it; two
releases fit where there is a version of each format that both read, and where each reads what was written since both could.
A new version of a format: raise its highest version in FORMATS, and write it only where `Understanding.writes` says so
(understanding.py). Source: docs/decisions/2026-11-28-rolling-upgrade.md.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from remote_log.replication.messages import PROTOCOL, Bounds, Says
from storage.log import frame, segment

CALLS = "protocol"
FORMATS: Mapping[str, Bounds] = {  # the lowest and the highest version that this release reads
    CALLS: (1, PROTOCOL),  # calls between the sites (messages.py)
    "frames": (frame.VERSION, frame.VERSION),  # with the records in them
    "segments": (segment.VERSION, segment.ENCRYPTED_VERSION),  # of both logs; encrypted ones have a version of their own
    "register": (1, 1),  # the pair's one value
    "files": (1, 1),  # what a site keeps for itself: rows, notes, journal, trail
}
# of a site that says nothing: its release is from before the versions were said
SILENT = Says("", {CALLS: (1, 1), "frames": (1, 1), "segments": (2, 3), "register": (1, 1), "files": (1, 1)})
NONE: Bounds = (0, 0)
BOTH = "install releases that work together at both sites (docs/upgrade.md)"


def shown(bounds: Bounds) -> str:
    """Returns the versions in words."""
    lowest, highest = bounds
    if not highest:
        return "no version"
    return f"version {lowest}" if lowest == highest else f"versions {lowest} to {highest}"


def named(says: Says) -> str:
    """Returns the release in words."""
    return f"release {says.release}" if says.release else "a release that does not say its versions"


def conflict(own: Says, other: Says, written: Mapping[str, int], newest: str) -> str | None:
    """Returns why the site that says `own` cannot replicate with the other one, and what to do; None: it can. `written`: the
    versions that were noted since both sites could read them, by the release `newest`."""
    for what in sorted({*own.formats, *other.formats}):
        here, there = own.formats.get(what, NONE), other.formats.get(what, NONE)
        reads = f"{named(other)}, which reads {shown(there)} of the format {what!r}"
        if here[0] > there[1] or there[0] > here[1]:
            return f"the other site runs {reads}, and {named(own)} here reads {shown(here)}: {BOTH}"
        if written.get(what, 0) > there[1]:
            return (
                f"the other site runs {reads}, and version {written[what]} has been in use since both sites could read it: "
                f"install release {newest} or a later one there"
            )
    return None
