"""Lines of a trail that are known elsewhere: in the structured log of its site, or in the trail of the other site.

What always holds: only a line that names this site's trail counts; what cannot be read is passed over, for a log holds many
other lines, and what is found is only ever held against the trail, never believed instead of it.
This module is pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from gateway.trail.entry import TrailHead, read_line
from gateway.trail.events import OF_PEER
from twinlog.decoding import OBJECT, or_none

_SHA256 = re.compile("[0-9a-f]{64}")


def anchors_in(lines: Iterable[bytes], site: str) -> Iterator[TrailHead]:
    """Yields what `lines`, of a structured log or of the other site's trail, know of the trail of `site`."""
    for raw in lines:
        line = read_line(raw)
        if line is not None:
            entry = line.entry
            said = entry.what if entry.event in OF_PEER and entry.who.name == f"site {site}" else None
        else:
            logged = or_none(OBJECT, raw)
            said = logged if logged is not None and logged.get("event") == "trail" and logged.get("site") == site else None
        head = None if said is None else _head(said)
        if head is not None:
            yield head


def _head(said: dict[str, Any]) -> TrailHead | None:
    number, digest = said.get("number"), said.get("sha256")
    if isinstance(number, int) and isinstance(digest, str) and _SHA256.fullmatch(digest):
        return TrailHead(number, digest)
    return None
