"""P2, I4: one writer at a time. No acknowledgement and no read of an epoch reaches a client after a later epoch has opened.

What always holds: each epoch is opened once, by one site; epochs grow in the order in which they open, but for an asynchronous
active that restarts apart, as its answers are forgiven (answers.py).
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise

from chaos.checkers.answers import answered_by, answered_s, forgiven, met_s
from chaos.checkers.violation import Violation
from chaos.history.history import Call, History, Opened

NAME = "one_active"


def check(history: History) -> list[Violation]:
    opened = sorted(history.opened, key=lambda each: each.at_s)
    return [*_openings(history, opened), *_answers(history, opened), *_counts(history, opened)]


def _openings(history: History, opened: list[Opened]) -> list[Violation]:
    found: list[Violation] = []
    for before, after in pairwise(opened):
        if after.epoch <= before.epoch and not _apart(history, before, after):
            who = "again" if after.epoch == before.epoch else f"although epoch {before.epoch} was open already"
            sentence = f"Site {after.site} opened epoch {after.epoch} {who} (site {before.site} had opened {before.epoch})."
            found.append(Violation("P2", NAME, sentence, (), (before.at_s, after.at_s)))
    return found


def _apart(history: History, before: Opened, after: Opened) -> bool:
    """An asynchronous active restarted where it could not know of the later epoch, which a command had opened apart."""
    restarted = after.mode == "async" and after.site != before.site and after.epoch != before.epoch
    until_s = met_s(history, after.site, before.at_s, after.at_s) if restarted else None
    return until_s is not None and after.at_s <= until_s


def _answers(history: History, opened: list[Opened]) -> list[Violation]:
    if not opened:
        return []
    times = [each.at_s for each in opened]
    highest: list[Opened] = []  # highest[i]: the latest epoch among the first i + 1
    for each in opened:
        highest.append(each if not highest or each.epoch > highest[-1].epoch else highest[-1])
    found: list[Violation] = []
    for call in history.calls:
        outcome = call.outcome
        if outcome is None or call.returned_s is None or outcome.result != "ok" or call.operation.kind == "schema":
            continue
        if call.id in forgiven(history):
            continue
        at_s = answered_s(call, history)
        at = bisect_left(times, at_s) - 1  # an answer of the same moment is not after it
        if at < 0:
            continue
        site, epoch = answered_by(call, opened, times)
        if epoch is not None and epoch < highest[at].epoch:
            found.append(_late(call, site, epoch, highest[at], at_s))
    return found


def _late(call: Call, site: str, epoch: int, later: Opened, at_s: float) -> Violation:
    what = "acknowledged a write" if call.outcome is not None and call.outcome.ack is not None else "served a read"
    sentence = f"Site {site} {what} in epoch {epoch} (call {call.id}) after site {later.site} had opened epoch {later.epoch}."
    return Violation("P2", NAME, sentence, (call.id,), (later.at_s, at_s))


def _counts(history: History, opened: list[Opened]) -> list[Violation]:
    """Reads that were served without a client of ours: the count must stand still once a later epoch is open."""
    found: list[Violation] = []
    last: dict[tuple[str, int], tuple[float, int]] = {}
    for sample in history.reads_served:
        before = last.get((sample.site, sample.epoch))
        last[sample.site, sample.epoch] = (sample.at_s, sample.count)
        if before is None or sample.count <= before[1]:
            continue
        for each in opened:
            if each.epoch > sample.epoch and each.at_s < before[0]:
                sentence = (
                    f"Site {sample.site} served {sample.count - before[1]} reads in epoch {sample.epoch}"
                    f" after site {each.site} had opened epoch {each.epoch}."
                )
                found.append(Violation("P2", NAME, sentence, (), (each.at_s, before[0], sample.at_s)))
                break
    return found
