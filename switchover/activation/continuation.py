"""The choice of the frames that a new epoch continues from, out of the logs that it read.

What always holds:
- what is given continues the storage's (epoch, sequence) frame by frame: a link is a sequence without an epoch, so a newer
  epoch is entered through its start only, which names the end that it follows; a storage that diverged is not continued;
- without force, nothing that the logs hold behind the storage is left out: a gap is an error;
- what lies before a gap that ends at or below the storage goes into no new log: one of the two logs is an older copy there,
  and the part that was trimmed is in the storages;
- a takeover does not continue the start of an epoch that its own site wrote and never opened;
- with force, no more is given up than lies behind the first gap.
Source: protocol.md sections 4 and 5 (activation, step 3).
This module is pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from storage.log.chain import gaps, reachable, tail_after, unbroken
from storage.log.frame import Frame
from storage.log.record import RecordKind, decode_epoch_start
from switchover.register.port import PairState
from twinlog.errors import LogGap


def frames_after(frames: Sequence[Frame], seq: int, epoch: int) -> list[Frame]:
    """All frames that stand behind (`epoch`, `seq`). Raises LogGap when they do not continue from there."""
    tail = tail_after(frames, seq, epoch)
    at = epoch
    for frame in tail:
        if frame.epoch != at and not _begins_epoch(frame):
            raise LogGap(
                f"{frame!r} continues an epoch whose start is missing: nothing shows whether its "
                f"log contains sequence {seq} of epoch {epoch}, which is applied here",
                held_seq=seq, offered_previous=frame.previous,
            )
        at = frame.epoch
    return tail


def frames_after_by_force(remote: Sequence[Frame], local: Sequence[Frame], seq: int, epoch: int) -> list[Frame]:
    """As far as the remote log leads without a gap. When it does not lead on at all, as far as the own log does: of a site
    that was the active once and never rejoined, the lost epoch is given up as a whole, but not what a crash took from it."""
    return _led(remote, seq, epoch) or _led(local, seq, epoch)


def _led(frames: Sequence[Frame], seq: int, epoch: int) -> list[Frame]:
    led: list[Frame] = []
    at = epoch
    for frame in reachable(frames, seq, epoch):
        if frame.epoch != at and not _begins_epoch(frame):
            break
        led.append(frame)
        at = frame.epoch
    return led


def unopened_starts(local: Sequence[Frame], remote: Sequence[Frame], site: str, applied_epoch: int) -> list[Frame]:
    """The starts at the end of the own log that attempts of `site` left there, newest first.

    An epoch that opened here has more behind its start, or the storage durably is in it. Nobody else has seen such a start,
    unless it is in the remote log: then it may have been continued, and stays.
    """
    shared = {frame.position for frame in remote}
    starts: list[Frame] = []
    for frame in sorted(local, key=lambda frame: frame.position, reverse=True):
        if frame.epoch <= applied_epoch or frame.position in shared or not _begins_epoch(frame):
            break
        if decode_epoch_start(frame.records[0].value).site != site:
            break
        starts.append(frame)
    return starts


def _begins_epoch(frame: Frame) -> bool:
    return frame.records[0].kind == RecordKind.EPOCH_START


def check_told(site: str, state: PairState, held: int) -> None:
    """Raises LogGap when the active `site`, which restarts, holds less than the register says since it was degraded: by its
    last renewal, or before that by the degrade itself. That was on its disk then, and an older copy of the disk lacks it."""
    told = max(state.async_since_seq or 0, state.beat.committed_seq if state.beat is not None else 0)
    if told > held:
        raise LogGap(
            f"site {site} acknowledged alone, and reported to the register that it had committed {told}, but its "
            f"storage and log end at {held}: an older copy, or without a part; put the newest one back. If there is none, "
            f"see in `twinlog status` whether the other site has applied more than {held}: if so, `twinlog failover --to` it, "
            f"else give up what is missing: `twinlog failover --to {site} --accept-data-loss --count unknown`",
            held_seq=held,
        )


def ends_before(local: Sequence[Frame], applied: tuple[int, int]) -> bool:
    """True when the own log ends before the storage of its site, at (epoch, sequence) `applied`: then the log is an older copy.
    A write is in the log before it is in the storage, and is not trimmed before a later one is there."""
    return _end(local) < applied


def older_wal(site: str, local: Sequence[Frame], applied: tuple[int, int]) -> LogGap:
    """The error of a site that restarts with such a log, when no whole remote log shows what was acknowledged behind the
    storage: after a crash, only the log would have it."""
    epoch, seq = _end(local)
    return LogGap(
        f"the log of site {site} ends at {seq} (epoch {epoch}), before its storage at {applied[1]} (epoch {applied[0]}): it is"
        f" an older copy, and acknowledged writes behind {applied[1]} may be missing; put the newest one back, or give up what"
        f" is missing: `twinlog failover --to {site} --accept-data-loss --count unknown`",
        held_seq=seq, offered_previous=applied[1],
    )


def _end(frames: Sequence[Frame]) -> tuple[int, int]:
    return max(((frame.epoch, frame.last_seq) for frame in frames), default=(0, 0))


def joined(frames: Sequence[Frame], end: tuple[int, int]) -> list[Frame]:
    """The frames that stand and lead to (epoch, sequence) `end`, as far back as no link is missing; none when they end
    elsewhere."""
    log = unbroken(frames)
    return log if log and (log[-1].epoch, log[-1].last_seq) == end else []


def from_first_of(local: Sequence[Frame], log: Sequence[Frame]) -> list[Frame]:
    """The frames of `log` from the first one on that is in the own log, too: what was trimmed there stays away, for behind the
    others it would be kept longer than they are. All of them when it has none."""
    held = {frame.position for frame in local}
    first = next((place for place, frame in enumerate(log) if frame.position in held), 0)
    return list(log[first:])


def staying(local: Sequence[Frame], log: Sequence[Frame]) -> list[Frame]:
    """The front of `log` that stays in the files of the own log, as the rest can be written behind it. None of it where a frame
    that the own log lacks stands before one that it has: files in which frames do not ascend cannot be read, so all of `log` is
    written anew."""
    held = {frame.position for frame in local}
    front = list(takewhile(lambda frame: frame.position in held, log))
    return front if all(frame.position not in held for frame in log[len(front) :]) else []


def is_broken(frames: Sequence[Frame], end: tuple[int, int]) -> bool:
    """True when a link is missing between the frames that stand, or when they do not lead to (epoch, sequence) `end`."""
    return bool(frames) and (not joined(frames, end) or bool(gaps(frames)))


def frames_to_copy(log: Sequence[Frame], remote: Sequence[Frame], *, whole: bool) -> list[Frame]:
    """The frames of `log`, as `joined` gives it, that the remote log lacks, from where the remote log begins.

    The remote log is trimmed behind what the peer has durably applied, so what lies before its first frame is not needed. Not
    `whole`: it is damaged, so where it began is unknown, and everything is needed.
    """
    held = {frame.position for frame in remote}
    needed_from = min((frame.previous for frame in remote), default=0) if whole else 0
    return [frame for frame in log if frame.position not in held and frame.last_seq > needed_from]
