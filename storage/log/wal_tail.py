"""The newest frames of the local log in memory, so that shipping rarely reads files.

What always holds: the frames link to one another without a gap, for what failed is taken out (`forget_after`) before the
next one comes, and one that does not link empties it. Bounded by the memory that it takes; the oldest go first, but never
the newest one.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import islice

from storage import invariants
from storage.invariants import InvariantBroken
from storage.log.frame import Frame
from twinlog.errors import LogGap

_COMPACT_AT = 1024
_OBJECT_BYTES = 300  # a frame and its places in the lists, besides the frame's own bytes: measured


class MemoryTail:
    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._frames: list[Frame | None] = []  # evicted ones are None until the lists are compacted
        self._seqs: list[int] = []  # last sequence of each
        self._start = 0
        self._bytes = 0

    @property
    def size_bytes(self) -> int:
        """The memory that it takes."""
        return self._bytes

    def append(self, frame: Frame) -> None:
        seqs = self._seqs
        if len(seqs) > self._start and seqs[-1] != frame.previous:
            self.clear()  # a new epoch after a hole; the files hold the rest
        self._frames.append(frame)
        seqs.append(frame.last_seq)
        self._bytes += len(frame.data) + _OBJECT_BYTES
        if self._bytes > self._bytes_max:
            self._evict()

    def forget_after(self, seq: int) -> None:
        """Frames that end above `seq` leave."""
        keep = max(self._start, bisect_right(self._seqs, seq))
        self._bytes -= sum(len(frame.data) + _OBJECT_BYTES for frame in self._frames[keep:] if frame is not None)
        del self._frames[keep:], self._seqs[keep:]
        if invariants.costly:
            self._check(seq)

    def _check(self, seq: int) -> None:
        held = self._frames[self._start :]
        if any(frame is None or frame.last_seq > seq for frame in held):
            raise InvariantBroken(f"wal tail: frames above {seq} were taken back; it holds {held}")
        if self._bytes != (size := sum(len(frame.data) + _OBJECT_BYTES for frame in held if frame is not None)):
            raise InvariantBroken(f"wal tail: it counts {self._bytes} bytes of memory, and holds {size}")

    def clear(self) -> None:
        self._frames.clear()
        self._seqs.clear()
        self._start = self._bytes = 0

    def reaches(self, after_seq: int) -> bool:
        """Returns True when everything after `after_seq` is here."""
        if self._start == len(self._frames):
            return False
        first = self._frames[self._start]
        return first is not None and first.previous <= after_seq

    def frame_at(self, seq: int) -> Frame | None:
        """The frame here that ends at `seq`."""
        at = bisect_right(self._seqs, seq, self._start) - 1
        return self._frames[at] if at >= self._start and self._seqs[at] == seq else None

    def read(self, after_seq: int, upto_seq: int, bytes_max: int) -> list[Frame]:
        """Frames in (after_seq, upto_seq], at least one if there is one, else about `bytes_max` bytes."""
        read: list[Frame] = []
        size = 0
        at = bisect_right(self._seqs, after_seq, self._start)
        for frame in islice(self._frames, at, None):
            assert frame is not None
            if not read and frame.previous != after_seq:
                raise LogGap(
                    f"no frame ends at sequence {after_seq}: {frame!r} comes next",
                    held_seq=after_seq, offered_previous=frame.previous,
                )
            size += len(frame.data)
            if frame.last_seq > upto_seq or (read and size > bytes_max):
                break
            read.append(frame)
        return read

    def _evict(self) -> None:
        frames, last = self._frames, len(self._frames) - 1
        while self._bytes > self._bytes_max and self._start < last:
            oldest = frames[self._start]
            assert oldest is not None
            self._bytes -= len(oldest.data) + _OBJECT_BYTES
            frames[self._start] = None
            self._start += 1
        if self._start >= _COMPACT_AT and self._start * 2 >= len(frames):
            del frames[: self._start], self._seqs[: self._start]
            self._start = 0
