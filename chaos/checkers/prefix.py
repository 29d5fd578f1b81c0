"""P4: what a standby holds is a prefix of what the active committed, in the same order.

What always holds: of the same epoch, a standby has never applied more than its active had committed by then; at the end the
logs of both sites, where they overlap, hold the same frames with the same bytes, and each site's storage ends at a frame's
end. Where one log was trimmed, or was rebuilt from a base, it is compared from where it begins.
"""

from __future__ import annotations

from math import inf

from chaos.checkers.violation import Violation
from chaos.history.history import Dump, History, LoggedFrame, PositionLine, SiteLog

NAME = "prefix"


def check(history: History) -> list[Violation]:
    found = _positions(history)
    active = next((log for log in history.logs if log.active), None)
    if active is None:
        return found
    for log in history.logs:
        if log is not active:
            found += _logs(active, log)
    for dump in history.dumps:
        found += _ends(active, dump)
    return found


def _positions(history: History) -> list[Violation]:
    """Samples are judged against what the open active had committed at the very same moment; between two looks it may have
    committed more, and died or lost its storage since.

    Once a later epoch is open its start says where the epoch before ended, which may be above what that one's writer knew
    to be committed when it died; the logs at the end judge that.
    """
    found: list[Violation] = []
    committed: dict[tuple[int, float], int] = {}
    holder: dict[int, str] = {each.epoch: each.site for each in history.opened}
    order = sorted(history.positions, key=lambda each: (each.at_s, holder.get(each.epoch) != each.site))
    for position in order:
        epoch = position.epoch
        if holder.get(epoch) == position.site:
            if position.committed:
                committed[epoch, position.at_s] = position.committed
        elif position.applied > committed.get((epoch, position.at_s), inf) and not _superseded(history, position):
            sentence = (
                f"Standby {position.site} had applied {position.applied} of epoch {epoch}"
                f" when its active had committed {committed[epoch, position.at_s]}."
            )
            found.append(Violation("P4", NAME, sentence, (), (position.at_s,)))
    return found


def _superseded(history: History, position: PositionLine) -> bool:
    return any(each.epoch > position.epoch and each.at_s <= position.at_s for each in history.opened)


def _logs(active: SiteLog, standby: SiteLog) -> list[Violation]:
    theirs = active.frames
    if not theirs or not standby.frames:
        return []
    places = {(frame.epoch, frame.first_seq): at for at, frame in enumerate(theirs)}
    begin = (theirs[0].epoch, theirs[0].first_seq)
    expected: int | None = None
    for frame in standby.frames:
        at = places.get((frame.epoch, frame.first_seq))
        if at is None:
            if expected is None and (frame.epoch, frame.first_seq) < begin:
                continue  # the active has trimmed it
            return [_told(standby, frame, f"which the log of active {active.site} does not hold")]
        if theirs[at] != frame:
            return [_told(standby, frame, f"which stands otherwise in the log of active {active.site}")]
        if expected is not None and at != expected:
            return [_told(standby, frame, f"but lacks {_name(theirs[expected])} before it")]
        expected = at + 1
    return []


def _ends(active: SiteLog, dump: Dump) -> list[Violation]:
    """A frame is applied whole."""
    frames = active.frames
    if not frames or dump.applied < frames[0].first_seq or any(frame.last_seq == dump.applied for frame in frames):
        return []
    sentence = f"The storage of site {dump.site} ends at sequence {dump.applied}, where no frame of active {active.site} ends."
    return [Violation("P4", NAME, sentence, (), (dump.at_s,))]


def _told(standby: SiteLog, frame: LoggedFrame, what: str) -> Violation:
    return Violation("P4", NAME, f"The log of site {standby.site} holds {_name(frame)}, {what}.")


def _name(frame: LoggedFrame) -> str:
    return f"epoch {frame.epoch}, sequences {frame.first_seq} to {frame.last_seq}"
