"""The manifests of a backup: each names every part of one base and of the log behind it, with length and SHA-256.

    manifests/000007.json               sealed; the highest number of a base is its newest
    base-<id>/rows-000001               messages of rows (stream.py)
    base-<id>/log-<seq>-<run>-000001    whole frames, behind the base, that end above `seq`
    unnamed/<id>                        a base that no manifest names yet, or none any more: the number of its manifest
    unnamed/<id>.given-up               empty: an operator gave it up; the call that makes it, if one still runs, ends

What always holds: a manifest is written last, whole or not at all, under a number that nobody has; what no manifest names
belongs to no backup. So one that was interrupted leaves what was there before as it was. The parts of the log lead on from
the base and from each other without a gap. A moment is chosen exactly: `chosen` gives the base and the parts that lead
there, or refuses.
This module is pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from storage.backup.stream import ReachedPoint
from storage.disk.sealed_json import seal, unseal
from storage.engine import EpochEntry
from twinlog.errors import DamagedLog, Refused

FORMAT, ENCRYPTED_FORMAT = 1, 2
PART_BYTES = 8 << 20  # of a file, about; one message or frame may be larger
FOLDER = "manifests"
UNNAMED = "unnamed"
GIVEN_UP = ".given-up"
_NAME = re.compile(r"(\d{6})\.json")
_REMEDY = "take it from a copy of the backup, or delete it: the manifest before it names an earlier state"


class BackupFile(msgspec.Struct, frozen=True):
    """A file of the backup."""

    name: str
    length_bytes: int
    sha256: str


class LogPart(msgspec.Struct, frozen=True):
    """Frames from behind `after_seq` up to `end`."""

    part: BackupFile
    after_seq: int
    end: ReachedPoint


class Base(msgspec.Struct, frozen=True):
    """All rows at `point`. `schemas`: by table id; `rows`: how many there are."""

    id: str
    site: str
    point: ReachedPoint
    schemas: dict[int, bytes]
    epochs: list[EpochEntry]
    rows: int
    parts: list[BackupFile]


class Manifest(msgspec.Struct, frozen=True):
    """`target`: names this backup for life, to the pair as well, which keeps its log for it. `in_the_clear`: the site encrypts
    its logs, and an operator had this backup written without encryption. `key_id`: the key of every part of this base and of
    its log; "": they are plain. `proof`: of an encrypted one (sealing.py)."""

    format: int
    number: int
    target: str
    pair: str
    identity: str
    made_ms: int
    in_the_clear: bool
    base: Base
    log: list[LogPart] = []
    key_id: str = ""
    proof: bytes = b""

    @property
    def end(self) -> ReachedPoint:
        """The last point that can be restored."""
        return self.log[-1].end if self.log else self.base.point

    @property
    def parts(self) -> list[BackupFile]:
        return [*self.base.parts, *(each.part for each in self.log)]


class WantedMoment(msgspec.Struct, frozen=True):
    """A moment that is asked for: a sequence, or a time in milliseconds since 1970."""

    seq: int | None = None
    wall_ms: int | None = None

    def is_behind(self, point: ReachedPoint) -> bool:
        """True when `point` is part of what had happened at this moment."""
        if self.seq is not None:
            return point.seq <= self.seq
        return self.wall_ms is None or point.wall_ms <= self.wall_ms

    def needs_more_than(self, point: ReachedPoint) -> bool:
        """True when `point` does not reach this moment. A sequence within a frame is reached by the end of the frame."""
        if self.seq is not None:
            return point.seq < self.seq
        return self.wall_ms is None or point.wall_ms <= self.wall_ms


NEWEST = WantedMoment()


def manifest_name(number: int) -> str:
    return f"{FOLDER}/{number:06d}.json"


def manifest_number(name: str) -> int | None:
    """The number in the name of a manifest in FOLDER; None: it is another file."""
    found = _NAME.fullmatch(name)
    return None if found is None else int(found[1])


def encode_manifest(manifest: Manifest) -> bytes:
    return seal(manifest)


def decode_manifest(data: bytes, name: str) -> Manifest:
    """The inverse. Raises DamagedLog, also for one whose parts do not lead on from each other; Refused for another format."""
    manifest = unseal(data, Manifest, name, _REMEDY)
    if manifest.format not in (FORMAT, ENCRYPTED_FORMAT):
        raise Refused(
            f"{name} is of format {manifest.format}, and this release reads up to {ENCRYPTED_FORMAT}: use the release that"
            " wrote it"
        )
    at = manifest.base.point
    for each in manifest.log:
        if each.after_seq != at.seq or each.end.seq <= at.seq or each.end.epoch < at.epoch:
            raise DamagedLog(f"{name}: {each.part.name} does not continue sequence {at.seq}; {_REMEDY}", file=name, offset=0)
        at = each.end
    return manifest


def encode_mark(number: int) -> bytes:
    """The content of a mark in UNNAMED. `number`: of the manifest that names the base, now or later."""
    return seal(number)


def decode_mark(data: bytes, name: str) -> int:
    """The inverse. Raises DamagedLog."""
    return unseal(data, int, name, "nothing of its base goes before you delete it by hand")


def newest_of_each_base(manifests: Sequence[Manifest]) -> list[Manifest]:
    """The newest manifest of each base, in the order in which they were written."""
    newest = {manifest.base.id: manifest for manifest in sorted(manifests, key=lambda one: one.number)}
    return sorted(newest.values(), key=lambda one: one.number)


def chosen(manifests: Sequence[Manifest], moment: WantedMoment) -> tuple[Manifest, list[LogPart]]:
    """The base that lies nearest before `moment`, and the parts of its log that lead there. Raises Refused."""
    chains = newest_of_each_base(manifests)
    if moment == NEWEST:
        return chains[-1], chains[-1].log
    before = [one for one in chains if moment.is_behind(one.base.point)]
    if not before:
        raise Refused(
            f"the backup begins later: the first moment that it can restore is {_said(chains[0].base.point)}; give that one,"
            " or a later one"
        )
    manifest, parts = before[-1], list[LogPart]()
    at = manifest.base.point
    for each in manifest.log:
        if not moment.needs_more_than(at):
            break
        parts.append(each)
        at = each.end
    is_reached = at.seq >= moment.seq if moment.seq is not None else at.wall_ms >= (moment.wall_ms or 0)
    if not is_reached:
        later = [one for one in chains if one.number > manifest.number]
        behind = f"; the next one begins at {_said(later[0].base.point)}" if later else ""
        raise Refused(
            f"the backup knows nothing of that moment: it leads to {_said(manifest.end)}{behind}; give a moment that it has"
            " (`twinlog backup ls`), or none for the newest"
        )
    return manifest, parts


def _said(point: ReachedPoint) -> str:
    return f"sequence {point.seq}, at {point.at}"
