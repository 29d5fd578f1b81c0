"""The verdicts of a run: each checker with the promise that it stands for, and whether it had anything to check.

What always holds: a checker whose evidence a run cannot have is `not checked`, and never `held`; whoever adds a checker adds
its line here (a test compares the two lists). The second checker is a program, and is asked here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from chaos.checkers import CHECKERS, check_all
from chaos.checkers.violation import Violation
from chaos.history.history import History
from chaos.porcupine import second
from chaos.workloads.workload import Workload

HELD, VIOLATED, NOT_CHECKED = "held", "violated", "not checked"


class Looked(msgspec.Struct, frozen=True):
    """A judgement of the run itself, made before: a checker with the promise that it stands for, and its evidence."""

    promise: str
    checker: str
    sentence: str
    looked_at: int


class Verdict(msgspec.Struct, frozen=True):
    """`looked_at`: how many pieces of evidence there were. `state`: held, violated, or not checked in this run."""

    promise: str
    checker: str
    sentence: str
    state: str
    looked_at: int


_Evidence = Callable[[History], int]


def _of_tables(check: str) -> _Evidence:
    """Ended calls of the tables that this checker judges."""
    def count(history: History) -> int:
        names = {use.name for use in history.tables if check in use.checks}
        return sum(call.operation.table in names and call.outcome is not None for call in history.calls)

    return count


def _scans(history: History) -> int:
    names = {use.name for use in history.tables if "scans" in use.checks}
    return sum(
        call.operation.table in names and (call.operation.kind == "scan" or call.operation.as_of is not None)
        for call in history.calls
    )


def _acks(history: History) -> int:
    return sum(call.outcome is not None and call.outcome.ack is not None for call in history.calls)


def _answers(history: History) -> int:
    return sum(call.outcome is not None and call.outcome.result == "ok" for call in history.calls) if history.opened else 0


_CHECKED: Mapping[str, tuple[str, str, _Evidence]] = {
    "linearizable": ("P3", "each row behaves like one atomic register, across every change of the active",
                     _of_tables("linearizable")),
    "acknowledged": ("P1", "every acknowledged write is stored at both sites, or a newer one is",
                     lambda history: _of_tables("acknowledged")(history) if history.dumps else 0),
    "phantom": ("P5", "nothing refused is there, and what was unknown settles once", _of_tables("phantom")),
    "one_active": ("P2", "no acknowledgement and no read of an epoch after a later one has opened", _answers),
    "prefix": ("P4", "both logs hold the same frames, and each storage ends at a frame's end",
               lambda history: len(history.logs)),
    "convergence": ("P6", "both storages hold the same rows at the same versions", lambda history: len(history.dumps)),
    "bounded": ("P7", "no segment of the remote log stays that nobody needs", lambda history: len(history.remote_logs)),
    "honest": ("P8", "an acknowledgement says async exactly when the register does",
               lambda history: _acks(history) if history.modes else 0),
    "deadline": ("I8", "every request ends by its deadline, and recovery in its time", lambda history: len(history.calls)),
    "batches": ("P3", "no part of a batch is ever seen or stored without the rest", _of_tables("batches")),
    "scans": ("P3", "scans keep order, bounds and their one moment", _scans),
    "two_copies": ("P1", "what was acknowledged as sync is in the files of the other site's log, or in its storage",
                   lambda history: len(history.copies)),
    "barriers": ("P4", "what both sites keep at a barrier is the same", lambda history: len(history.kept)),
    "stale": ("P4", "the age of a stale read is never too small", lambda history: len(history.stale_looks)),
    "receipts": ("P1", "a receipt says what became of its write, and a key has one answer",
                 lambda history: len(history.receipts) + len(history.repeats)),
    "proved": ("P2", "an answer about rows is never older than its proof allows", lambda history: len(history.served)),
    "at_risk": ("P8", "records at risk and lag are never shown too small",  # where there are some
                lambda history: sum(look.lacking > 0 or look.behind > 0 for look in history.risk_looks)),
    "allowed": ("P3", "a schema counts from its acknowledgement on", _acks),
    "tokens": ("P3", "a page token continues its own scan alone", lambda history: len(history.misled)),
}


OWN = (  # what the run itself looks at, once
    ("P10", "stuck", "after all faults the pair becomes healthy, by documented commands alone"),
    ("P7", "drained", "an idle pair becomes equal and durable, and its remote log holds one segment at most"),
    ("internal", "processes",
     "no gateway or monitor ends by itself, no error is unknown, and no log is synced again whose sync failed"),
    ("internal", "invariants", "what a gateway checks of itself holds"),
    ("I8", "stopping", "a gateway heeds SIGTERM"),
    ("I7", "reported", "no damage of a file is read over, and at the end everything can be read"),
)


def judge(
    history: History, workload: Workload, found: Iterable[Violation], looked: Iterable[Looked] = (),
    own: Iterable[tuple[str, str, str]] = OWN, blind: Collection[str] = (),
) -> tuple[list[Violation], list[Verdict]]:
    """All violations, `found` and those of the checkers and of the workload; and the verdicts on each checker, on what was
    `looked` at already, and on each look of the run's `own`: promise, name, sentence. It could not take those that are named in
    `blind`."""
    opinion = second.second_opinion(history)
    judged = [*found, *check_all(history), *workload.judge(history), *opinion.violations]
    broken = {violation.checker for violation in judged}
    verdicts = []
    for name in CHECKERS:
        promise, sentence, evidence = _CHECKED[name]
        count = evidence(history)
        state = VIOLATED if name in broken else HELD if count else NOT_CHECKED
        verdicts.append(Verdict(promise, name, sentence, state, count))
    state = VIOLATED if second.NAME in broken else HELD if opinion.decided else NOT_CHECKED
    verdicts.append(Verdict("P3", second.NAME, opinion.sentence, state, opinion.looked_at))
    demanded = f"workload:{workload.name}"
    verdicts.append(Verdict("I1", demanded, "what this workload demands of its own rows",
                            VIOLATED if demanded in broken else HELD, len(history.calls)))
    ended = int(history.moment("ended") is not None)
    for promise, name, sentence in own:
        taken = 0 if name in blind else ended
        state = VIOLATED if name in broken else HELD if taken else NOT_CHECKED
        verdicts.append(Verdict(promise, name, sentence, state, taken))
    for each in looked:
        state = VIOLATED if each.checker in broken else HELD if each.looked_at else NOT_CHECKED
        verdicts.append(Verdict(each.promise, each.checker, each.sentence, state, each.looked_at))
    return judged, verdicts
