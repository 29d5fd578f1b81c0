"""Judges the segments of a site's logs by their files alone: what is wrong with them, and what only looks so.

What always holds: the WAL is judged as a start of the gateway judges it (storage/log/wal_found.py), so what a start cuts or
passes over is a remark, and what a start refuses is a fault. A gap in a remote log is a fault only within what one epoch wrote
into one file: a remote log is trimmed, and lacks what was acknowledged while the pair was asynchronous, and only the storage of
the site that it is for shows whether it holds that. Frames out of order, a frame that is twice in one file, a time that
goes back, and two frames that claim one place are faults.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from storage.log.chain import gaps, misplaced
from storage.log.frame import Frame
from storage.log.segment import SegmentScan, check_pair, commonest
from storage.log.wal_found import FoundWal
from twinlog.errors import DamagedLog, LogError, LogGap


@dataclass(frozen=True, slots=True)
class ScannedFile:
    """One segment. `path`: for people."""

    path: str
    scan: SegmentScan
    size_bytes: int

    def placed(self) -> list[tuple[int, Frame]]:
        """Each frame with the offset at which it begins."""
        header, found = self.scan.header, list[tuple[int, Frame]]()
        if header is None:
            return found
        offset = header.begin
        for frame in self.scan.frames:
            found.append((offset, frame))
            offset = header.after(frame, offset)
        return found


@dataclass(frozen=True, slots=True)
class LogRemark:
    """Something that a start of the gateway passes over or cuts: nothing is wrong."""

    path: str
    offset: int
    what: str


@dataclass(slots=True)
class LogVerdict:
    faults: list[LogError] = field(default_factory=list)
    remarks: list[LogRemark] = field(default_factory=list)


def verdict_on(wal: Sequence[ScannedFile], remotes: Sequence[Sequence[ScannedFile]], *, wal_is_whole: bool) -> LogVerdict:
    """`wal` and each of `remotes` in the order of their names. Not `wal_is_whole`: a file of it could not be read along."""
    files = [*wal, *(file for remote in remotes for file in remote)]
    faults: list[LogError] = [fault for file in files for fault in _disorder(file)]
    for log in (wal, *remotes):
        faults += _times_back(log)
    found = LogVerdict([*faults, *_contradictions(files)])
    pair = commonest(file.scan.header.pair for file in files if file.scan.header is not None)
    _judge_wal(wal, found, pair, whole=wal_is_whole and not found.faults)
    for remote in remotes:
        _judge_remote(remote, pair, [frame for file in wal for frame in file.scan.frames], found)
    return found


def _judge_wal(wal: Sequence[ScannedFile], found: LogVerdict, pair: str, *, whole: bool) -> None:
    log = FoundWal((file.path.rpartition("/")[2] for file in wal), pair)
    for file in wal:
        try:
            kept = log.add(file.path, file.scan, file.size_bytes)
        except DamagedLog as error:
            if not any(known.fields == error.fields for known in found.faults):  # `_disorder` names every frame, with its first
                found.faults.append(error)
            whole = False
            continue
        if not kept:
            found.remarks.append(LogRemark(file.path, 0, "torn before anything was in it; the next start deletes it"))
        elif file.scan.torn:
            found.remarks.append(_torn(file))
    try:
        tear = log.tear() if whole else None
    except DamagedLog as error:
        found.faults.append(error)
        return
    if tear is not None:
        said = "frames before this one are missing, and none from here on was ever acknowledged; the next start cuts them"
        found.remarks.append(LogRemark(log.segments[tear.place].path, tear.offset, said))


def _torn(file: ScannedFile) -> LogRemark:
    return LogRemark(file.path, file.scan.end, "torn tail; the next start cuts it")


def _judge_remote(remote: Sequence[ScannedFile], pair: str, wal: Sequence[Frame], found: LogVerdict) -> None:
    """Gaps that the WAL does not close."""
    frames = [frame for file in remote for frame in file.scan.frames]
    behind: dict[tuple[int, int], Frame] = {}
    try:
        still = {frame.position for _, frame in gaps([*frames, *wal])}
        behind = {frame.position: before for before, frame in gaps(frames) if frame.position in still}
    except DamagedLog:
        pass  # `_contradictions` names the files
    for file in remote:
        if file.scan.torn:
            found.remarks.append(_torn(file))
        header = file.scan.header
        if header is not None:
            try:
                check_pair(header, pair, file.path)
            except DamagedLog as error:
                found.faults.append(error)
        own = [each for each in file.placed() if header is not None and each[1].epoch == header.epoch]
        for (_, last), (offset, frame) in pairwise(own):
            if frame.position in behind and frame.previous > last.last_seq:
                del behind[frame.position]
                found.faults.append(LogGap(
                    f"{file.path}: frames are missing at offset {offset}: {frame!r} continues sequence {frame.previous}, and"
                    f" {last!r} stands before it", file=file.path, offset=offset, held_seq=last.last_seq,
                    offered_previous=frame.previous,
                ))
    for file in remote:
        for offset, frame in file.placed():
            before = behind.pop(frame.position, None)
            if before is not None:
                said = (
                    f"sequences {before.last_seq + 1} to {frame.previous} are not in this log: trimmed, or acknowledged while"
                    " the pair was asynchronous; a takeover checks them against the storage, and `twinlog audit run log-audit`"
                    " against both sites"
                )
                found.remarks.append(LogRemark(file.path, offset, said))


def _disorder(file: ScannedFile) -> list[LogError]:
    placed = file.placed()
    firsts: dict[tuple[int, int], int] = {}
    for offset, frame in placed:
        firsts.setdefault(frame.position, offset)
    found: list[LogError] = []
    for place in misplaced(frame.position for _, frame in placed):
        offset, frame = placed[place]
        first = firsts[frame.position]
        what = f"a second time, first at offset {first}" if first < offset else "behind a frame that was made after it"
        found.append(DamagedLog(f"{file.path}: {frame!r} stands at offset {offset} {what}", file=file.path, offset=offset))
    return found


def _times_back(log: Sequence[ScannedFile]) -> Iterator[LogError]:
    """Returns the frames whose time is not above that of the frame of their epoch that they continue, also in another file."""
    placed = [(frame, file.path, offset) for file in log for offset, frame in file.placed()]
    placed.sort(key=lambda each: each[0].position)
    for (before, before_path, before_at), (frame, path, offset) in pairwise(placed):
        continues = frame.epoch == before.epoch and frame.previous == before.last_seq
        if continues and frame.timestamp < before.timestamp + before.count:
            yield DamagedLog(
                f"{path}: the time of {frame!r} at offset {offset} is not above that of {before!r}, which it continues, in"
                f" {before_path} at offset {before_at}; one of them was changed, or is not this pair's",
                file=path, offset=offset, other_file=before_path, other_offset=before_at,
            )


def _contradictions(files: Iterable[ScannedFile]) -> list[LogError]:
    """Two frames that claim one (epoch, sequence)."""
    first: dict[tuple[int, int], tuple[str, int, bytes]] = {}
    found: list[LogError] = []
    for file in files:
        for offset, frame in file.placed():
            path, at, data = first.setdefault(frame.position, (file.path, offset, frame.data))
            if data != frame.data:
                found.append(DamagedLog(
                    f"{file.path}: {frame!r} at offset {offset} is not the frame of this epoch and sequence that stands in"
                    f" {path} at offset {at}; one of them was changed, or is not this pair's",
                    file=file.path, offset=offset, other_file=path, other_offset=at,
                ))
    return found
