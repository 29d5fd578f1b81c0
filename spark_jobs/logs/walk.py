"""Along the frames of one segment, with every CRC checked and no payload decoded, and on behind damage.

What always holds: nothing that stands in a file makes this raise. What is no sound frame becomes a mark that names its offset:
`torn` where nothing proves that it ever was durable (so readers end there, and so does this), `damaged` where a later frame
does; then the walk continues at the next sound frame. The proof is storage/log/segment.py's. Frames of an encrypted segment are
opened, and shown with flags and CRC as the other log has them; `damaged` is one whose tag does not fit. A key that is missing
is the one thing that raises.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from spark_jobs.logs.files import Segment
from spark_jobs.logs.headers import HEADER, Headers, Offsets, headers_at, sound_offsets
from storage.log.chain import misplaced
from storage.log.encryption import NO_KEYS, Keyring, SegmentCipher, read_frame
from storage.log.frame import HEADER_BYTES as FRAME_HEADER_BYTES
from storage.log.frame import Flags, Frame, sound_header
from storage.log.record import RecordKind, decode_epoch_start
from storage.log.segment import (
    HEADER_BYTES,
    REMOTE_ALIGNMENT,
    SegmentHeader,
    aligned,
    attests,
    cipher_of,
    is_padding,
    parse_header,
    parse_remote_name,
    scan_segment,
    seq_of,
    sound_frames,
)
from twinlog.errors import BrokenFrame, BrokenHeader, DamagedLog, KeyUnavailable, LogError

TORN, DAMAGED, MISPLACED, UNREADABLE, GONE, EPOCH = "torn", "damaged", "misplaced", "unreadable", "gone", "epoch"
OUT_OF_ORDER, REPEATED, TIME_BACK = "out-of-order", "repeated", "time-went-back"


class Mark(NamedTuple):
    """Something to know about the bytes [offset, end). `seq` .. `last_seq`: what stood there, or would follow there; none
    when `last_seq` is below `seq`. Of an EPOCH, which is where one begins: `last_seq` is the end of the one before."""

    kind: str
    offset: int
    end: int
    epoch: int = 0
    seq: int = 0
    last_seq: int = -1
    detail: str = ""


@dataclass(slots=True)
class Walk:
    """`header` None: there is none that can be read. Frame i has header `frames[i]` and begins at `offsets[i]`. `alignment`: of
    the segment's frames, in bytes. `cipher`: of an encrypted one. `begin`: where the walked bytes begin in their file."""

    header: SegmentHeader | None = None
    alignment: int = 1
    frames: Headers = field(default_factory=lambda: np.empty(0, HEADER))
    offsets: Offsets = field(default_factory=lambda: np.empty(0, np.int64))
    marks: list[Mark] = field(default_factory=list)
    cipher: SegmentCipher | None = None
    begin: int = 0

    def frame_at(self, data: bytes, offset: int) -> Frame:
        """Raises as `read_frame`."""
        return read_frame(data, offset, self.cipher, self.begin + offset)

    @property
    def last_seqs(self) -> Offsets:
        last: Offsets = self.frames["seq"].astype(np.int64) + self.frames["count"] - 1
        return last

    @property
    def ends(self) -> Offsets:
        """Behind each frame and its padding, as offsets count: where the next one begins."""
        end: Offsets = self.offsets + FRAME_HEADER_BYTES + self.frames["payload_bytes"]
        return end + -end % self.alignment

    @property
    def last_seq(self) -> int:
        return int(self.last_seqs[-1]) if len(self.frames) else self.header.first_seq - 1 if self.header else 0

    @property
    def end(self) -> int:
        """Behind the last frame; where the first one of a file should begin when there is none."""
        if len(self.frames):
            return int(self.ends[-1])
        return self.header.begin if self.header is not None else aligned(HEADER_BYTES, self.alignment)


def walk(data: bytes, file: str, segment: Segment, keys: Keyring = NO_KEYS) -> Walk:
    """The frames and marks of one whole file. `file`: its path, for messages. Raises KeyUnavailable."""
    found = Walk()
    try:
        header, offset = _header(data, file, segment, found)
        if found.header is not None:
            found.cipher = cipher_of(found.header, keys, file)
        while header is not None:
            offset = add_frames(data, offset, found)
            if data[offset:] == bytes(max(0, len(data) - offset)):
                break
            sound = _judged(data, offset, file, header, found)
            if sound is None:
                break
            offset = sound
        if header is not None:
            _unseal(data, found)
            _check(data, header, segment, found)
    except KeyUnavailable:
        raise
    except LogError as error:  # so much noise that nothing can be proven, or a format of another release
        begin = found.end
        kind = DAMAGED if isinstance(error, DamagedLog) else UNREADABLE
        found.marks.append(Mark(kind, begin, len(data), segment.epoch, found.last_seq + 1, _ALL, error.message))
    return found


_ALL = (1 << 63) - 1  # as last sequence: nobody knows how many


def add_frames(data: bytes, offset: int, found: Walk) -> int:
    """Adds the sound frames that follow one another from `offset` on; returns where they end, as `sound_offsets` does. Raises
    LogError. HOT."""
    offsets, end = sound_offsets(data, offset, found.alignment)
    found.offsets = np.concatenate((found.offsets, offsets))
    found.frames = np.concatenate((found.frames, headers_at(data, offsets)))
    with suppress(BrokenFrame):
        sound_header(memoryview(data), end, sealed=True)  # what ended them may be a format of another release
    return end


def _unseal(data: bytes, found: Walk) -> None:
    """Opens each frame, so that header and CRC are those of the other log; what cannot be opened is marked, and left out."""
    sealed = found.frames["flags"] & np.uint8(Flags.ENCRYPTED) != 0
    if found.cipher is None and not sealed.any():
        return
    kept = np.ones(len(found.frames), np.bool_)
    for place in range(len(found.frames)):
        if found.cipher is None and not sealed[place]:
            continue
        try:
            frame = found.frame_at(data, int(found.offsets[place]))
            found.frames["crc"][place], found.frames["flags"][place] = frame.crc, frame.flags
        except LogError as error:
            kept[place] = False
            found.marks.append(_frame_mark(DAMAGED, found, place, error.message))
    found.frames, found.offsets = found.frames[kept], found.offsets[kept]


def _header(data: bytes, file: str, segment: Segment, found: Walk) -> tuple[SegmentHeader | None, int]:
    """The header and where frames begin. One that is damaged is made up from what the file's name and first frame say."""
    try:
        found.header = parse_header(data)
        found.alignment = found.header.alignment
        return found.header, found.header.begin
    except BrokenHeader as error:
        for at, frame in sound_frames(data, 0, file):
            found.alignment = REMOTE_ALIGNMENT if _is_remote(file) and at % REMOTE_ALIGNMENT == 0 else 1
            lost_to = frame.previous if at > aligned(HEADER_BYTES, found.alignment) else -1
            detail = f"the segment header{' and what followed it are' if lost_to >= 0 else ' is'} damaged: {error.message}"
            found.marks.append(Mark(DAMAGED, 0, at, segment.epoch, 0, lost_to, detail))
            return SegmentHeader(frame.log, segment.epoch, frame.first_seq, segment.wal, found.alignment), at
        scan_segment(data, file)
        if data:
            found.marks.append(Mark(TORN, 0, len(data), segment.epoch, detail="torn before anything was in it"))
        return None, 0


def _is_remote(file: str) -> bool:
    return parse_remote_name(file.rpartition("/")[2]) is not None


def _judged(data: bytes, offset: int, file: str, header: SegmentHeader, found: Walk) -> int | None:
    """Judges bytes at `offset` that are no frame, or no zeros behind one: None when torn; when damaged, the place of the next
    sound frame."""
    last_seq, remote = max(found.last_seq, header.first_seq - 1), _is_remote(file)
    first: tuple[int, int] | None = None
    for at, frame in sound_frames(data, offset, file):
        first = first or (at, frame.previous)
        if frame.committed >= seq_of(offset, last_seq, header) and attests(frame, header, remote=remote):
            sound, lost_to = first
            lost = f"sequences {last_seq + 1} to {lost_to} stood there" if lost_to > last_seq else "nothing that stands is lost"
            what = "padding, and not all zero" if is_padding(offset, header) else "no sound frame"
            detail = f"{sound - offset} bytes are {what}: {lost}, as the sound frames behind them say"
            found.marks.append(Mark(DAMAGED, offset, sound, frame.epoch, last_seq + 1, lost_to, detail))
            return sound
    found.marks.append(Mark(TORN, offset, len(data), header.epoch, last_seq + 1, detail="a torn tail: never durable"))
    return None


def _check(data: bytes, header: SegmentHeader, segment: Segment, found: Walk) -> None:
    """Marks a file that is not the one that its name says, and frames that do not belong into it."""
    if (header.wal, header.epoch) != (segment.wal, segment.epoch):
        said = f"its header says that it is of WAL segment {header.wal}, epoch {header.epoch}: it was renamed or put elsewhere"
        found.marks.append(Mark(MISPLACED, 0, HEADER_BYTES, header.epoch, detail=said))
    if segment.pair and header.pair != segment.pair:
        said = f"its header names pair {header.pair or 'none'}, and this log is of pair {segment.pair}: it is another pair's"
        found.marks.append(Mark(MISPLACED, 0, HEADER_BYTES, header.epoch, detail=said))
    frames = found.frames
    strange = (frames["log"] != header.log) | (frames["epoch"] > header.epoch) | (frames["seq"] < header.first_seq)
    for place in np.flatnonzero(strange).tolist():
        log, epoch, seq = (int(frames[place][name]) for name in ("log", "epoch", "seq"))
        said = f"a frame of log {log}, epoch {epoch}, sequence {seq} does not belong into this segment"
        begin, end = int(found.offsets[place]), int(found.ends[place])
        found.marks.append(Mark(MISPLACED, begin, end, epoch, seq, int(found.last_seqs[place]), said))
    _order(found, strange)
    own = np.flatnonzero(frames["epoch"] == header.epoch)
    if len(own):
        _epoch_start(data, int(found.offsets[own[0]]), found)


def _order(found: Walk, strange: NDArray[np.bool_]) -> None:
    """Marks frames that stand behind one that was made after them, or a second time, and times that go back from a frame to the
    one that continues it. Not those that are `strange`, nor two frames in one place, which the chain finds."""
    frames, lasts = found.frames, found.last_seqs
    epochs, seqs = frames["epoch"], frames["seq"]
    continues = frames["previous"][1:].astype(np.int64) == lasts[:-1]
    late = continues & (frames["timestamp"][1:] < frames["timestamp"][:-1] + frames["count"][:-1])
    for place in (np.flatnonzero(late) + 1).tolist():
        said = (
            f"its time is not above that of the frame at offset {found.offsets[place - 1]}, which it continues:"
            " one of the two was changed"
        )
        found.marks.append(_frame_mark(TIME_BACK, found, place, said))
    if not np.any((epochs[1:] < epochs[:-1]) | ((epochs[1:] == epochs[:-1]) & (seqs[1:] <= seqs[:-1]))):
        return
    positions = list(zip(epochs.tolist(), seqs.tolist(), strict=True))
    firsts: dict[tuple[int, int], int] = {}
    for place, position in enumerate(positions):
        firsts.setdefault(position, place)
    for place in misplaced(positions):
        first = firsts[positions[place]]
        if strange[place] or frames["crc"][first] != frames["crc"][place]:
            continue
        if first < place:
            said = f"the same frame stands at offset {found.offsets[first]} of this file too"
            found.marks.append(_frame_mark(REPEATED, found, place, said))
        else:
            said = "it stands behind a frame that was made after it"
            found.marks.append(_frame_mark(OUT_OF_ORDER, found, place, said))


def _frame_mark(kind: str, found: Walk, place: int, said: str) -> Mark:
    frame = found.frames[place]
    begin, end = int(found.offsets[place]), int(found.ends[place])
    return Mark(kind, begin, end, int(frame["epoch"]), int(frame["seq"]), int(found.last_seqs[place]), said)


def _epoch_start(data: bytes, offset: int, found: Walk) -> None:
    """A mark when the frame at `offset`, the first of its epoch in this file, is the epoch's start."""
    frame, end = found.frame_at(data, offset), int(found.ends[np.searchsorted(found.offsets, offset)])
    try:
        record = frame.records[0]
        if record.kind != RecordKind.EPOCH_START:
            return
        start = decode_epoch_start(record.value)
    except LogError as error:
        said = f"the CRC fits, and yet the payload cannot be decoded: {error}"
        found.marks.append(Mark(DAMAGED, offset, end, frame.epoch, frame.first_seq, frame.last_seq, said))
        return
    found.marks.append(Mark(EPOCH, offset, end, start.epoch, frame.first_seq, frame.previous, f"{start.kind} by {start.site}"))
