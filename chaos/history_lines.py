"""What every line of a recorded history is, and the lines that tell of barriers.

What always holds: as for all of history.py, which puts them together.
"""

from __future__ import annotations

import msgspec


class Line(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="is", gc=False):
    """One line of a recorded history; `is` says which."""


class Taken(Line, tag="barrier", frozen=True, omit_defaults=True):
    """The active told that it took this barrier: its frame ends at `seq`."""

    name: str
    epoch: int
    seq: int
    at_s: float


class Kept(Line, tag="kept", frozen=True, omit_defaults=True):
    """A site was seen to keep a snapshot. `digest`: of all rows with their versions, all schemas and epochs in it."""

    site: str
    name: str
    epoch: int
    seq: int
    digest: str
    at_s: float
