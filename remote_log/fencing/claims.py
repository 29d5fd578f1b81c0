"""Claim an epoch, fence every older one, read what they left: the three steps between two active writers.

What always holds: a claim is an exclusive file; who loses it learns the winner and never takes a higher number by
itself. A writer creates a segment and THEN lists the claims; a fencer creates its claim and THEN lists the segments: so
one of them sees the other, and a segment that a fenced writer creates after the last listing here holds nothing that
was acknowledged. `fence` returns only when every segment that it saw is proven closed; `read_frames` reads nothing else.
Every step may be repeated after a crash. Source: protocol.md section 5.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import msgspec

from remote_log.dfs.port import Dfs
from remote_log.dfs.retrying import PatientDfs
from remote_log.fencing.last_append import Growth
from remote_log.layout import RemoteLayout, SegmentName
from storage.clock import Clock
from storage.log.frame import BrokenFrame, Frame, parse_frame
from storage.log.segment import HEADER_BYTES, BrokenHeader, frames_before_damage, parse_header, scan_segment
from twinlog.errors import ClaimLost, DamagedLog, DfsError, DfsExists, DfsNotFound, Fenced, LeaseNotRecovered

FIRST_BYTES = 64 << 10, 8 << 20  # read for a first frame: what mostly suffices, and what has to; a larger frame tells nothing
POLL_FIRST_S = 0.02
POLL_MAX_S = 0.1
ASK_AGAIN_SHARE = 0.5  # of the deadline: then a recovery is called for again, which a port may find too soon (hdfs_dfs.py)
Progress = Callable[[str, int, int], None]  # a segment just proven closed, how many so far, how many seen


class ClaimContent(msgspec.Struct, frozen=True):
    """Who took an epoch, and why. JSON in the claim's file, for operators too."""

    site: str
    plan: str
    kind: str
    reason: str
    wall_ms: int
    follows_epoch: int


async def claimed_epochs(dfs: Dfs, layout: RemoteLayout) -> list[int]:
    """Every epoch with a claim, ascending, by names alone: one listing."""
    names = [layout.parse_epoch(entry.name) for entry in await dfs.list(layout.claims_folder)]
    return sorted(epoch for epoch in names if epoch is not None)


async def list_claims(dfs: Dfs, layout: RemoteLayout) -> dict[int, ClaimContent]:
    """Every claim with its content. Raises DamagedLog for one that cannot be read: it must not look like no claim."""
    return {epoch: await read_claim(dfs, layout, epoch) for epoch in await claimed_epochs(dfs, layout)}


async def read_claim(dfs: Dfs, layout: RemoteLayout, epoch: int) -> ClaimContent:
    path = layout.claim(epoch)
    try:
        return msgspec.json.decode(await dfs.read(path), type=ClaimContent)
    except msgspec.MsgspecError as error:
        raise DamagedLog(f"the claim {path} cannot be read: {error}; it still grants the epoch to someone, so do not delete"
                         " it before you know to whom", file=path, offset=0) from error


async def claim(dfs: Dfs, layout: RemoteLayout, epoch: int, content: ClaimContent) -> None:
    """Take `epoch`; taking it again with the same plan is fine. Raises ClaimLost with the winner's content."""
    await _check_none_higher(dfs, layout, epoch)
    try:
        await dfs.create_file(layout.claim(epoch), msgspec.json.encode(content))
    except DfsExists:
        winner = await read_claim(dfs, layout, epoch)
        if winner.plan != content.plan:
            raise _lost(epoch, epoch, winner) from None
    await _check_none_higher(dfs, layout, epoch)


async def check_not_fenced(dfs: Dfs, layout: RemoteLayout, epoch: int) -> None:
    """Raises Fenced when a higher epoch is claimed; DfsError when `epoch` itself is not: then this is not the DFS that the
    epoch claimed, or it was emptied since, and that nothing higher is seen there proves nothing."""
    claims = await claimed_epochs(dfs, layout)
    highest = max(claims, default=0)
    if highest > epoch:
        raise Fenced(f"epoch {highest} was claimed: epoch {epoch} may write and acknowledge nothing any more", epoch=epoch,
                     by_epoch=highest)
    if epoch not in claims:
        raise DfsError(f"{layout.claim(epoch)} is gone: the DFS was emptied or replaced, and the remote log with it; bring it"
                       " back, or degrade and resync", path=layout.claim(epoch))


async def missing_from(dfs: Dfs, layout: RemoteLayout, epoch: int) -> str | None:
    """What the remote log of `epoch` lacks although a synchronous active of `epoch` never takes it away; None: nothing.

    Its claim was there before its first segment; its trimmer keeps the newest segment that has a header (trimmer.py).
    """
    if epoch not in await claimed_epochs(dfs, layout):
        return f"the claim {layout.claim(epoch)}"
    for path in reversed(await segments_of(dfs, layout, epoch)):
        with suppress(BrokenHeader, DfsNotFound):
            if parse_header(await dfs.read(path, 0, HEADER_BYTES)).epoch == epoch:
                return None
    return f"every segment below {layout.epoch_folder(epoch)}"


async def begins_after(dfs: Dfs, layout: RemoteLayout, epoch: int) -> int | None:
    """The sequence that the oldest frame of this log there continues, up to `epoch`, also while it is written; whoever holds
    less cannot follow it. None: there is no frame that tells."""
    for path in await segments_below(dfs, layout, epoch + 1):
        data = b""
        for length in FIRST_BYTES:
            with suppress(BrokenFrame, DfsNotFound):  # it is trimmed meanwhile
                data = await dfs.read(path, HEADER_BYTES, length)
                return parse_frame(data, 0).previous
        if any(data):  # else nothing was written into it yet
            return None
    return None


async def fence(
    dfs: Dfs, layout: RemoteLayout, below_epoch: int, clock: Clock, deadline_s: float, progress: Progress | None = None
) -> float:
    """After the claim of `below_epoch`: close every segment of every lower epoch. Returns a moment of `clock`'s monotonic scale
    after which no append was started that ever succeeds (growth.py).

    It lists again until it sees none that is open: an old writer may create one more before it lists the claims. Raises
    LeaseNotRecovered, naming the file, when one is not proven closed by the deadline, and DfsError when nothing can be listed
    for some time; then nothing may be read.
    """
    step = _Step.begin(clock, deadline_s)
    closed: set[str] = set()
    growth = Growth(dfs, clock)
    while True:
        seen = await segments_below(PatientDfs(dfs, clock), layout, below_epoch)
        still_open = [path for path in seen if path not in closed and not await step.is_closed(dfs, path)]
        growth.listed(seen)
        if not still_open:
            return await growth.ended_s()
        async with growth.looking(still_open):
            begun = await asyncio.gather(*(step.recover(dfs, path) for path in still_open), return_exceptions=True)
            for path, answer in zip(still_open, begun, strict=True):
                if isinstance(answer, BaseException):
                    raise answer
                if not answer:
                    continue  # it is gone
                await step.await_closed(dfs, path)
                closed.add(path)
                if progress is not None:
                    progress(path, len(closed), len(seen))


async def close_by_recovery(dfs: Dfs, path: str, clock: Clock, deadline_s: float) -> None:
    """Close one file under its writer, whoever that is. Absent is fine. Raises LeaseNotRecovered at the deadline."""
    step = _Step.begin(clock, deadline_s)
    if not await step.is_closed(dfs, path) and await step.recover(dfs, path):
        await step.await_closed(dfs, path)


async def segments_below(dfs: Dfs, layout: RemoteLayout, below_epoch: int) -> list[str]:
    """Paths of the segments of all lower epochs, by epoch and name."""
    paths = []
    for folder in await dfs.list(layout.folder):
        epoch = layout.parse_epoch(folder.name) if folder.is_folder else None
        if epoch is not None and epoch < below_epoch:
            paths += await segments_of(dfs, layout, epoch)
    return paths


async def segments_of(dfs: Dfs, layout: RemoteLayout, epoch: int) -> list[str]:
    """Paths of one epoch's segments, by name."""
    folder = layout.epoch_folder(epoch)
    paths = [f"{folder}/{entry.name}" for entry in await dfs.list(folder) if not entry.is_folder]
    return [path for path in paths if isinstance(layout.parse(path), SegmentName)]


async def read_frames(
    dfs: Dfs, layout: RemoteLayout, below_epoch: int, damaged: list[DamagedLog] | None = None
) -> list[Frame]:
    """All frames of all lower epochs in the order of (epoch, sequence), each once; the caller follows the chain.

    Raises DamagedLog with the DFS path; LeaseNotRecovered for a segment that is open: fence (again) first. With `damaged`, for
    whoever can do without: of a damaged segment what stands before the damage, and the error goes there.
    """
    frames: dict[bytes, Frame] = {}
    for path in await segments_below(dfs, layout, below_epoch):
        try:
            found = await read_segment(dfs, layout, path)
        except DamagedLog as error:
            if damaged is None:
                raise
            damaged.append(error)
            found = frames_before_damage(await dfs.read(path), path)
        for frame in found:
            frames[frame.data] = frame
    return sorted(frames.values(), key=lambda frame: frame.position)


async def read_segment(dfs: Dfs, layout: RemoteLayout, path: str) -> Sequence[Frame]:
    """The frames of one closed segment; none when it was trimmed meanwhile."""
    try:
        if not await dfs.is_closed(path):
            raise LeaseNotRecovered(f"{path} is not closed: fence its epoch (again) before reading", file=path)
        data = await dfs.read(path)
    except DfsNotFound:
        return ()
    scan = scan_segment(data, path)
    name = layout.parse(path)
    if scan.header is not None and isinstance(name, SegmentName) and (
        (scan.header.log, scan.header.epoch) != (layout.log, name.epoch)
    ):
        raise DamagedLog(f"{path} says in its header that it belongs to epoch {scan.header.epoch} of log {scan.header.log}:"
                         " it was put into the wrong folder", file=path, offset=0)
    return scan.frames


async def _check_none_higher(dfs: Dfs, layout: RemoteLayout, epoch: int) -> None:
    highest = max(await claimed_epochs(dfs, layout), default=0)
    if highest > epoch:
        raise _lost(epoch, highest, await read_claim(dfs, layout, highest))


def _lost(epoch: int, winner_epoch: int, winner: ClaimContent) -> ClaimLost:
    return ClaimLost(
        f"epoch {epoch} cannot be claimed: plan {winner.plan} of site {winner.site} ({winner.kind}) holds epoch"
        f" {winner_epoch}; decide anew from what that plan does", epoch=epoch, winner_epoch=winner_epoch,
        winner=msgspec.to_builtins(winner),
    )


async def _is_closed(dfs: Dfs, path: str) -> bool:
    """A file that was deleted has nothing left to close."""
    try:
        return await dfs.is_closed(path)
    except DfsNotFound:
        return True


async def _recover(dfs: Dfs, path: str) -> bool:
    """Call for lease recovery; False when the file is gone."""
    try:
        await dfs.recover_lease(path)
    except DfsNotFound:
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Step:
    """Closing files, until a moment of `clock`. A call that fails is repeated until then."""

    clock: Clock
    again_s: float
    until_s: float

    @classmethod
    def begin(cls, clock: Clock, deadline_s: float) -> _Step:
        now_s = clock.monotonic_s()
        return cls(clock, now_s + ASK_AGAIN_SHARE * deadline_s, now_s + deadline_s)

    async def is_closed(self, dfs: Dfs, path: str) -> bool:
        return await self._answer(path, partial(_is_closed, dfs, path))

    async def recover(self, dfs: Dfs, path: str) -> bool:
        """False when the file is gone."""
        return await self._answer(path, partial(_recover, dfs, path))

    async def await_closed(self, dfs: Dfs, path: str) -> None:
        """Poll, for on HDFS a call of recover_lease may start the recovery anew; late in the step, call for it once more:
        the first recovery came to nothing when no DataNode with the block was alive."""
        asked_again = False
        wait_s = POLL_FIRST_S
        answer = "it is still open"
        while True:
            try:
                if await _is_closed(dfs, path):
                    return
                if not asked_again and self.again_s <= self.clock.monotonic_s() < self.until_s:
                    await _recover(dfs, path)
                    asked_again = True
            except DfsError as error:
                answer = str(error)
            wait_s = await self._pause(path, answer, wait_s)

    async def _answer(self, path: str, call: Callable[[], Awaitable[bool]]) -> bool:
        wait_s = POLL_FIRST_S
        while True:
            try:
                return await call()
            except DfsError as error:
                wait_s = await self._pause(path, str(error), wait_s)

    async def _pause(self, path: str, answer: str, wait_s: float) -> float:
        """How long the next one is. Raises LeaseNotRecovered when the time is over."""
        if self.clock.monotonic_s() >= self.until_s:
            raise _not_recovered(path, answer)
        await self.clock.sleep(wait_s)
        return min(2 * wait_s, POLL_MAX_S)


def _not_recovered(path: str, answer: str) -> LeaseNotRecovered:
    return LeaseNotRecovered(
        f"{path} was not proven closed in time ({answer}): its writer may still append, so nothing was read; mend that"
        " DFS (docs/operations.md, A file that does not close), then run the same plan again", file=path,
    )
