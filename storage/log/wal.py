"""The local write-ahead log: segments of frames in one folder, over the Files port.

What always holds: frames land in the order of the `append` calls; an append resolves only when its frame, and every
frame before it, is durable; after a failure all that is outstanding fails, and nothing more succeeds until `roll`; no
append waits for a new segment (the next one is made ahead; while it is not ready the old one just grows). One epoch per
segment; copies of older frames may stand at its beginning, and must be durable before a frame of its own epoch says
`committed` above them. Of its standing frames, those since the last hole are held (`held`, wal_segments.py).
Source: protocol.md sections 3 to 5 and 7.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Annotated

from storage.cancellation import unless_asked
from storage.disk.port import Files
from storage.invariants import InvariantBroken
from storage.log.encryption import NO_KEYS, Keyring, LogKey
from storage.log.frame import Frame
from storage.log.segment import SegmentHeader, check_order, encode_header, encrypted, scan_segment, wal_name
from storage.log.wal_reading import find_frame, read_runs, read_segments
from storage.log.wal_recovery import recover
from storage.log.wal_segments import StandingFrames, WalSegment, held, is_unbroken, standing_frames, trimmable
from storage.log.wal_tail import MemoryTail
from storage.settings import KIB, MIB, RESTART, KeyReferences, Within
from twinlog.errors import LogError, LogGap, SyncFailed

_NEVER = 1 << 62


@dataclass(frozen=True, slots=True)
class WalSettings:
    segment_bytes: Annotated[int, Within(64 * KIB, 4096 * MIB), RESTART] = 16 * MIB
    backup_bytes_max: Annotated[int, Within(0, 1 << 50), RESTART] = 1024 * MIB  # a longer log is not kept for backups
    tail_bytes_max: Annotated[int, Within(64 * KIB, 4096 * MIB), RESTART] = 32 * MIB  # newest frames, kept for the shipper
    encryption_keys: Annotated[tuple[LogKey, ...], KeyReferences(), RESTART] = ()  # the first writes, all read; none: plain


DEFAULTS = WalSettings()


@dataclass(frozen=True, slots=True)
class WalSegmentInfo:
    """A segment as others see it. Sequences are None while the segment is empty. `bytes`: that are written, without the zeros
    behind them."""

    name: str
    epoch: int
    first_seq: int | None
    last_seq: int | None
    bytes: int


class Wal:
    def __init__(
        self, files: Files, folder: str, settings: WalSettings, segments: list[WalSegment], next_index: int, pair: str,
        keys: Keyring,
    ) -> None:
        self.pair = pair  # the identity in its segments; "": it holds none
        self._files, self._folder, self._settings, self._keys = files, folder, settings, keys
        self._segments = segments  # in order; the open one is the last
        self._next_index = next_index
        self._open: WalSegment | None = None
        self._epoch = 0
        known = held(segments)
        self._last_seq = known[1] if known else 0
        self._tail = MemoryTail(settings.tail_bytes_max)
        self._last_append: asyncio.Future[None] | None = None
        self._before: asyncio.Future[None] | None = None  # last append to the segment before, until it has ended
        self._spare: WalSegment | None = None
        self._unused: str | None = None  # a file that is not in use and may be there: made in part, or not deleted for sure
        self._spare_at = _NEVER  # the open segment's end at which the next one is made
        self._preparing: asyncio.Task[None] | None = None
        self._retiring: set[asyncio.Task[None]] = set()
        self._changing = asyncio.Lock()  # segments come and go under it
        self._unconfirmed: list[str] = []  # files that are gone by a deletion that failed: it may not be durable
        self._is_settled = True  # as `recover` left it

    @classmethod
    async def open(
        cls, files: Files, folder: str = "wal", settings: WalSettings = DEFAULTS, keys: Keyring = NO_KEYS
    ) -> Wal:
        """Recover what is there: check every segment, cut the torn tail. Raises DamagedLog, KeyUnavailable."""
        segments, next_index, pair = await recover(files, folder, keys)
        return cls(files, folder, settings, segments, next_index, pair, keys)

    async def beside(self, folder: str) -> Wal:
        """The log in another folder of the same disk, with the same settings and keys. Raises DamagedLog, KeyUnavailable."""
        return await Wal.open(self._files, folder, self._settings, self._keys)

    # ---- writing

    async def start(self, epoch: int, next_seq: int, pair: str = "") -> None:
        """Open a segment for `epoch` of `pair`; no frame appended to it may be below `next_seq`. Earlier segments stay, of the
        same pair."""
        if self._segments and self.pair != pair:
            raise InvariantBroken(f"wal: a log of pair {self.pair!r} is continued as one of pair {pair!r}")
        self._epoch, self.pair = epoch, pair
        await self.roll(next_seq)

    async def roll(self, next_seq: int) -> None:
        """Seal the open segment, failed or not, and open a new one. Raises SyncFailed; may then be called again."""
        async with self._changing:
            await self._seal()
            spare = await self._take_spare()
            self._use(spare or await self._create(next_seq))

    def append(self, frame: Frame) -> asyncio.Future[None]:
        """Queue `frame` behind all others; the future ends when it is durable, or with SyncFailed. HOT."""
        segment = self._open
        if segment is None or segment.file is None:
            return _failed("the WAL has no open segment")
        if segment.after(frame, segment.end) > self._settings.segment_bytes and segment.runs and self._spare is not None:
            segment = self._switch(segment, self._spare)
        assert segment.file is not None
        if self._before is not None and self._before.done():
            if self._before.cancelled() or self._before.exception() is not None:
                return _failed("the WAL segment before this one failed")
            self._before = None
        data = frame.data if segment.cipher is None else segment.cipher.seal(frame, segment.end)
        appended = asyncio.ensure_future(segment.file.append(data))
        if self._before is not None:
            appended = asyncio.ensure_future(_both(self._before, appended))
        segment.note(frame)
        self._tail.append(frame)
        self._last_seq = frame.last_seq
        self._last_append = appended
        if segment.end > self._spare_at:
            self._spare_at = _NEVER
            self._preparing = asyncio.ensure_future(self._prepare(segment))
        return appended

    async def settle(self) -> None:
        """Be as at a start of the process: what was appended has ended, well or badly, and the torn tail is cut. It has to be
        before `read_all` where an epoch of this very process may have ended with appends outstanding, or failed: the file
        after a failed one can hold what links to nothing. Raises DamagedLog, SyncFailed."""
        if self._is_settled:
            return
        async with self._changing:
            await self._seal()
            await self._take_spare(keep=False)
            self._segments, _, self.pair = await recover(self._files, self._folder, self._keys)
            known = held(self._segments)
            self._last_seq = known[1] if known else 0
            self._tail.clear()
            self._is_settled = True

    def forget_after(self, seq: int) -> None:
        """The frames that end above `seq` failed: nobody reads them any more. The next one must name `seq` as previous."""
        self._tail.forget_after(seq)
        self._last_seq = min(self._last_seq, seq)

    async def withdraw(self, start: Frame) -> None:
        """Take `start` away, durably: the last frame of its file, and the whole of an epoch that this site never opened. The
        log is settled. Raises SyncFailed."""
        async with self._changing:
            ends = [(segment, segment.runs[-1]) for segment in self._segments if segment.runs]
            found = [end for end in ends if (end[1].position, end[1].last_seq) == (start.position, start.last_seq)]
            if len(found) != 1:
                raise InvariantBroken(f"wal: a start that was never opened ends one file; {len(found)} end with {start!r}")
            segment, last = found[0]
            await self._files.truncate_tail(segment.path, last.offset)
            segment.cut(last.offset)
            known = held(self._segments)
            self._last_seq = known[1] if known else 0

    # ---- reading

    async def read_all(self, after_seq: int = 0) -> list[Frame]:
        """Every whole frame in the files that ends above `after_seq`, standing or not, for chain.py. Of those whose
        append has not ended, some may be missing: `settle` first, where that matters."""
        frames: list[Frame] = []
        for segment in [segment for segment in self._segments if segment.last_seq > after_seq]:
            data = await self._files.read(segment.path, 0, segment.end)
            scan = scan_segment(data, segment.path, keys=self._keys)
            check_order(scan, segment.path)
            frames.extend(frame for frame in scan.frames if frame.last_seq > after_seq)
        return frames

    def every_frame(self, after_seq: int = 0) -> AsyncGenerator[list[Frame], None]:
        """The frames of `read_all` by (epoch, sequence), a group at a time: about 256 KiB of them, or one larger frame. Raises
        DamagedLog."""
        return read_runs(self._files, self._segments, after_seq)

    def standing(self) -> StandingFrames:
        """Says which frames of `every_frame` stand, as the log is now."""
        return standing_frames(self._segments)

    async def read(self, after_seq: int, upto_seq: int, bytes_max: int) -> list[Frame]:
        """Standing frames in (after_seq, upto_seq], the first linking to `after_seq`: at least one if there is one, else
        about `bytes_max` bytes. `upto_seq` is committed. Raises LogGap when `after_seq` is older than what is held."""
        if after_seq >= upto_seq:
            return []
        if self._tail.reaches(after_seq):
            return self._tail.read(after_seq, upto_seq, bytes_max)
        first = self.first_previous
        if first is None or after_seq < first:
            raise LogGap(
                f"the WAL holds nothing that continues sequence {after_seq}; it begins after {first}",
                held_seq=after_seq, offered_previous=first,
            )
        return await read_segments(self._files, self._segments, after_seq, min(upto_seq, self._last_seq), bytes_max)

    async def frame_at(self, seq: int) -> Frame | None:
        """The standing frame that ends at `seq`; None when none does, or it is older than what is held."""
        return self._tail.frame_at(seq) or await find_frame(self._files, self._segments, seq)

    # ---- keeping

    async def trim(self, below_seq: int) -> int:
        """Delete the oldest segments as far as nothing at or above `below_seq`, which is at most the next sequence after
        the committed one, is in them; bytes freed. The newest of them stays until the one behind it has a frame below."""
        async with self._changing:
            await self._confirm_deletions()
            return sum([await self._delete(segment) for segment in trimmable(self._segments, below_seq)])

    async def clear(self, into: str = "") -> None:
        """All segments away, or into the folder `into`: this site follows another one now. `start` begins anew."""
        async with self._changing:
            for segment in (await self._sealed())[::-1]:  # a crash on the way leaves a shorter log, and no torn one
                await self._delete(segment, into)
            self._last_seq = 0
            self.pair = ""

    async def drop_before(self, first: Frame) -> None:
        """All segments away that end before `first`, which another one holds; `start` continues the log. As in a trim, the
        oldest goes first: what a later segment cuts off of it stands at no moment, also not behind a crash."""
        async with self._changing:
            for segment in await self._sealed():
                if segment.ends_before(first.position):
                    await self._delete(segment)

    async def _sealed(self) -> list[WalSegment]:
        """Returns the segments of a log that is not written any more. Nothing of it is read from memory."""
        await self._seal()
        spare = await self._take_spare(keep=False)
        assert spare is None
        await self._confirm_deletions()
        self._tail.clear()
        return list(self._segments)

    async def close(self) -> None:
        """After everything outstanding has ended. The files stay."""
        async with self._changing:
            await self._seal()
            await self._take_spare(keep=False)
            if self._retiring:
                await asyncio.wait(self._retiring)

    # ---- status

    @property
    def first_previous(self) -> int | None:
        """The oldest sequence that `read` can continue from; None when no frame is held."""
        known = held(self._segments)
        return known[0] if known else None

    @property
    def is_unbroken(self) -> bool:
        """True when no link is missing between its standing frames."""
        return is_unbroken(self._segments)

    @property
    def last_seq(self) -> int:
        """Last sequence of the newest frame that was not forgotten; it may not be durable yet. 0: none."""
        return self._last_seq

    @property
    def bytes_held(self) -> int:
        """On the disk, preallocated zeros included."""
        return sum(segment.size_bytes for segment in self._segments) + (self._spare.size_bytes if self._spare else 0)

    @property
    def tail_bytes(self) -> int:
        """In memory: the newest frames."""
        return self._tail.size_bytes

    @property
    def is_encrypted(self) -> bool:
        """True when its segments are written or read with keys."""
        return bool(self._keys)

    @property
    def backup_bytes_max(self) -> int:
        """Returns how much of a log is kept only because a backup may come for it."""
        return self._settings.backup_bytes_max

    @property
    def is_too_long_for_backups(self) -> bool:
        return self.bytes_held > self.backup_bytes_max

    def segments(self) -> list[WalSegmentInfo]:
        return [
            WalSegmentInfo(
                segment.name, segment.epoch, segment.runs[0].first_seq if segment.runs else None,
                segment.last_seq if segment.runs else None, segment.end,
            )
            for segment in self._segments
        ]

    # ---- segments

    def _use(self, segment: WalSegment) -> None:
        self._segments.append(segment)
        self._open = segment
        self._is_settled = False
        self._spare_at = self._settings.segment_bytes // 2

    def _switch(self, full: WalSegment, spare: WalSegment) -> WalSegment:
        """Continue in the segment that was made ahead; the full one is closed once its appends have ended."""
        assert full.file is not None
        self._before = self._last_append
        task = asyncio.ensure_future(full.file.close())
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)
        full.file = None
        self._spare = None
        self._use(spare)
        return spare

    async def _seal(self) -> None:
        """Nothing is appended from here on; wait until what was queued has ended, well or badly. A seal that is given up in the
        middle is finished by the next one: nobody may take the log for settled, or forget a file, before that."""
        self._open = self._before = None
        self._spare_at = _NEVER
        if self._last_append is not None:
            await asyncio.wait([self._last_append])
            self._last_append = None
        for segment in self._segments:
            if segment.file is not None:
                await segment.file.close()
                segment.file = None

    async def _prepare(self, current: WalSegment) -> None:
        """Make the next segment ahead. A failure, whatever it is, is no one's yet: the old one grows, and it is tried again."""
        try:
            self._spare = await unless_asked(self._create(self._last_seq + 1), "the next segment")
        except Exception as error:
            self._spare_at = current.end + self._settings.segment_bytes // 4
            if not isinstance(error, LogError):
                raise  # nobody foresaw it: the event loop reports it

    async def _take_spare(self, *, keep: bool = True) -> WalSegment | None:
        """The segment made ahead, if there is one and it is of this epoch; others go away."""
        if self._preparing is not None:
            await asyncio.wait([self._preparing])
            self._preparing = None
        spare = self._spare
        self._spare_at = _NEVER
        if spare is not None and not (keep and spare.epoch == self._epoch):
            assert spare.file is not None
            await spare.file.close()
            self._unused, self._spare = spare.path, None
            await self._delete_unused()
        spare, self._spare = self._spare, None
        return spare

    async def _create(self, next_seq: int) -> WalSegment:
        await self._delete_unused()
        epoch, name = self._epoch, wal_name(self._epoch, self._next_index)
        self._next_index += 1
        path, size_bytes = f"{self._folder}/{name}", self._settings.segment_bytes
        header, cipher = encrypted(SegmentHeader(0, epoch, next_seq, name, pair=self.pair), self._keys)
        self._unused = path
        file = await self._files.create_log(path, encode_header(header), size_bytes)
        self._unused = None
        return WalSegment(path, epoch, next_seq, size_bytes, file, begin=header.begin, cipher=cipher)

    async def _delete_unused(self) -> None:
        """Before a segment is made behind it: a later one would prove that something had been lost out of it."""
        if self._unused is not None:
            await self._files.delete(self._unused)
            self._unused = None

    async def _delete(self, segment: WalSegment, into: str = "") -> int:
        """First out of the list, so that a reader who finds the file gone knows why. `into`: moved to that folder."""
        place = self._segments.index(segment)
        del self._segments[place]
        try:
            await (self._files.rename(segment.path, f"{into}/{segment.name}") if into else self._files.delete(segment.path))
        except LogError:
            if await self._is_there(segment):
                self._segments.insert(place, segment)
            else:
                self._unconfirmed.append(segment.path)
            raise
        return segment.size_bytes

    async def _confirm_deletions(self) -> None:
        """From here on a power loss brings back none of the segments that are gone."""
        while self._unconfirmed:
            await self._files.delete(self._unconfirmed[-1])
            self._unconfirmed.pop()

    async def _is_there(self, segment: WalSegment) -> bool:
        """False: the file is gone, although its deletion failed, as when the folder could not be synced."""
        try:
            return segment.path.rpartition("/")[2] in await self._files.list(self._folder)
        except LogError:
            return True


def _failed(message: str) -> asyncio.Future[None]:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.set_exception(SyncFailed(f"{message}; roll to a new one"))
    return future


async def _both(before: asyncio.Future[None], own: asyncio.Future[None]) -> None:
    """The end of an append to a new segment while the one before still has appends outstanding."""
    await asyncio.wait([before, own])
    if before.cancelled() or before.exception() is not None:
        if not own.cancelled():
            own.exception()
        raise SyncFailed("the WAL segment before this one failed; roll to a new one")
    await own
