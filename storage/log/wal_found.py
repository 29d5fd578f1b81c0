"""Judges the files of a local log: `recover` acts on this judgement, and `log verify` shows it.

What always holds: the last file may have been torn before anything was in it, any file may have a torn tail, and frames that
were never durable in order may be missing at the end. All files are of one pair, and the frames of one file ascend by (epoch,
sequence). Anything else that is wrong is a DamagedLog that names file and offset. A hole before an epoch in which this site was
active again is nothing wrong (storage/log/links.py).
This module is pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from storage.log.segment import SegmentHeader, SegmentScan, check_order, check_pair, parse_wal_name
from storage.log.wal_segments import TornAt, WalSegment, find_tear
from twinlog.errors import DamagedLog


class FoundWal:
    """`names`: the segments' names in order, to be added in this order. `torn`: where torn tails begin. `pair`: whose log this
    is; "": its first segment says."""

    def __init__(self, listed: Iterable[str], pair: str = "") -> None:
        parsed = {name: found for name in listed if (found := parse_wal_name(name)) is not None}
        self.names = sorted(parsed, key=lambda name: parsed[name])
        self.segments: list[WalSegment] = []
        self.torn: dict[WalSegment, int] = {}
        self.last_seq = 0
        self.pair = pair

    def add(self, path: str, scan: SegmentScan, size_bytes: int) -> bool:
        """Returns False for a file that was torn before anything was in it. Raises DamagedLog."""
        name = path.rpartition("/")[2]
        if scan.header is None and name == self.names[-1]:
            return False
        header = _checked(scan.header, path)
        check_pair(header, self.pair, path)
        self.pair = self.pair or header.pair
        segment = WalSegment(path, header.epoch, header.first_seq, size_bytes, begin=header.begin, cipher=scan.cipher)
        check_order(scan, path)
        for frame in scan.frames:
            segment.note(frame)
            self.last_seq = frame.last_seq
        if scan.torn:
            self.torn[segment] = scan.end
        self.segments.append(segment)
        return True

    def tear(self) -> TornAt | None:
        """The place from which on nothing was durable in order. Raises DamagedLog."""
        return find_tear(self.segments)


def _checked(header: SegmentHeader | None, path: str) -> SegmentHeader:
    name = path.rpartition("/")[2]
    if header is None:
        raise DamagedLog(
            f"{path}: the segment header is damaged, and later segments follow; restore the file from a copy, or rejoin this"
            " site from the other one",
            file=path, offset=0,
        )
    if header.wal != name or not name.startswith(f"{header.epoch:012d}-"):
        raise DamagedLog(f"{path} has the header of {header.wal}: give it that name again", file=path, offset=0)
    return header
