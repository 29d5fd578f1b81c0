"""The checkers that judge observations of the sites: one active, prefix, convergence, bounded, honest, deadline."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chaos.checkers import CHECKERS, check_all
from chaos.history.history import (
    Ack,
    Copies,
    Dump,
    DumpedRow,
    GivenUp,
    Limits,
    LoggedFrame,
    ModeRecorded,
    Moment,
    Opened,
    Operation,
    Outcome,
    PositionLine,
    ReadsServed,
    RemoteLogLine,
    RoleChangeLine,
    SiteLog,
)
from chaos.history.lines import BarrierLine, Kept, ReceiptLine, Repeat, Served, Stood, Unheard
from tests.chaos.plots import Plot, check_found

Build = Callable[[Plot], Plot]
READ = Operation("read", "t", key="k")
WRITE = Operation("write", "t")
MOVED = (Opened("a", 1, 0.0, "sync"), Opened("b", 2, 10.0, "sync"))


def ack(site: str, epoch: int, mode: str = "sync") -> Outcome:
    return Outcome("ok", ack=Ack(site, epoch, 5, 5, mode))  # type: ignore[arg-type]


def frame(epoch: int, first: int, last: int, digest: str = "d") -> LoggedFrame:
    return LoggedFrame(epoch, first, last, first - 1, digest)


def log(site: str, *frames: LoggedFrame) -> SiteLog:
    return SiteLog(site, site == "a", frames)


def remote(at_s: float, *needless: str) -> RemoteLogLine:
    return RemoteLogLine("a", 1, at_s, 500, needless)


def kept(site: str, name: str, seq: int, digest: str = "d") -> Kept:
    return Kept(site, name, 1, seq, digest, 4)


FRAMES = (frame(1, 1, 4), frame(1, 5, 5), frame(2, 6, 9))
LIMITS = Limits(trim_slack_s=2.0, recovery_s=5.0)
CLEAN: dict[str, dict[str, Build]] = {
    "one_active": {
        "each in its time": lambda p: (
            p.add(*MOVED).call(WRITE, 8, 9, ack("a", 1)).call(WRITE, 11, 12, ack("b", 2))
            .call(READ, 12, 13, Outcome("ok", site="b"))
        ),
        "asked before, answered before": lambda p: p.add(*MOVED).call(READ, 8, 9.9, Outcome("ok", site="a", epoch=1)),
        "let go before, arrived after": lambda p: p.add(*MOVED).call(READ, 8, 10.5, Outcome("ok", site="a", served_s=9.9)),
        "refused after": lambda p: p.add(*MOVED).call(WRITE, 11, 12, Outcome("not_applied", site="a", epoch=1)),
        "a count that stands": lambda p: p.add(*MOVED, ReadsServed("a", 1, 5, 9), ReadsServed("a", 1, 5, 12)),
        "back again": lambda p: p.add(*MOVED, Opened("a", 3, 20.0, "sync")).call(READ, 21, 22, Outcome("ok", site="a")),
    },
    "prefix": {
        "equal": lambda p: p.add(log("a", *FRAMES), log("b", *FRAMES)),
        "behind": lambda p: p.add(log("a", *FRAMES), log("b", *FRAMES[:2])),
        "trimmed at the active": lambda p: p.add(log("a", *FRAMES[1:]), log("b", *FRAMES)),
        "trimmed at the standby": lambda p: p.add(log("a", *FRAMES), log("b", *FRAMES[1:])),
        "applied what was committed": lambda p: (
            p.add(Opened("a", 1, 0, "sync"), PositionLine("a", 1, 1, 9, 9, 5), PositionLine("b", 1, 1, 0, 9, 5))
        ),
        "ends with a frame": lambda p: p.add(log("a", *FRAMES), Dump("b", False, 9, 5, {})),
    },
    "convergence": {
        "equal": lambda p: p.add(Moment("drained", 9)).dump({"k": ("x", 1)}).dump({"k": ("x", 1)}, site="b"),
        "not drained": lambda p: p.dump({"k": ("x", 1)}).dump({}, site="b"),
    },
    "bounded": {
        "needed": lambda p: p.add(LIMITS, remote(0), remote(5), remote(10)),
        "needless for a moment": lambda p: p.add(LIMITS, remote(0), remote(5, "s1"), remote(6, "s1")),
        "one after the other": lambda p: p.add(LIMITS, remote(0, "s1"), remote(2, "s1", "s2"), remote(4, "s2")),
        "out of reach in between": lambda p: p.add(LIMITS, remote(0, "s1"), remote(2), remote(4, "s1")),
        "asynchronous": lambda p: p.add(LIMITS, ModeRecorded(1, "async", 1), remote(0), remote(5, "s1"), remote(9, "s1")),
        "drained": lambda p: p.add(LIMITS, Moment("drained", 9), remote(9)),
    },
    "honest": {
        "sync": lambda p: p.add(ModeRecorded(1, "sync", 0)).call(WRITE, 1, 2, ack("a", 1)),
        "async after it was recorded": lambda p: (
            p.add(ModeRecorded(1, "sync", 0), ModeRecorded(1, "async", 5)).call(WRITE, 4, 5.1, ack("a", 1, "async"))
        ),
        "sync again": lambda p: (
            p.add(ModeRecorded(1, "async", 5), ModeRecorded(1, "sync", 9)).call(WRITE, 8, 9.5, ack("a", 1))
        ),
        "on its way while it was recorded": lambda p: p.add(ModeRecorded(1, "async", 5)).call(WRITE, 4, 6, ack("a", 1)),
        "it was not answered by the register, and then not again": lambda p: p.add(
            Opened("a", 1, 0, "sync"), ModeRecorded(1, "async", 1), Unheard("a", 0.9, 4), Unheard("a", 4.4, 7)
        ).call(WRITE, 7.5, 8, ack("a", 1)),
        "the register forgot that it said async": lambda p: (
            p.add(ModeRecorded(1, "async", 0), Moment("forgotten", 4)).call(WRITE, 5, 6, ack("a", 1))
        ),
    },
    "two_copies": {
        "both lead to what is committed": lambda p: p.add(Copies("a", 1, 3, committed=5, held=7, held_there=5)),
        "asynchronous": lambda p: p.add(Copies("a", 1, 3, committed=5, held=5)),
    },
    "barriers": {
        "the same": lambda p: p.add(BarrierLine("n1", 1, 5, 3), kept("a", "n1", 5), kept("b", "n1", 5)),
        "at one site only": lambda p: p.add(BarrierLine("n1", 1, 5, 3), kept("b", "n1", 5)),
        "at neither": lambda p: p.add(BarrierLine("n1", 1, 5, 3)),
        "two, not told of": lambda p: p.add(kept("a", "n1", 5), kept("b", "n2", 7, "other")),
    },
    "receipts": {
        "the same answer": lambda p: p.call(WRITE, 1, 2, ack("a", 1)).add(Repeat(1, 3, 4, "ok", "", 5, 1, 5)),
        "an open outcome that is settled, and stays": lambda p: p.call(WRITE, 1, 2, Outcome("unknown")).add(
            Repeat(1, 3, 4, "unknown"), Repeat(1, 5, 6, "ok", "", 7, 2, 9), Repeat(1, 7, 8, "ok", "", 7, 2, 9)
        ),
        "an open outcome that is refused": lambda p: (
            p.call(WRITE, 1, 2, Outcome("unknown")).add(Repeat(1, 3, 4, "not_applied", "conflict"))
        ),
        "no answer": lambda p: p.call(WRITE, 1, 2, ack("a", 1)).add(Repeat(1, 3, 4, "not_applied", "unavailable")),
        "another request is not taken for it": lambda p: p.call(WRITE, 1, 2, ack("a", 1)).add(
            Repeat(1, 3, 4, "not_applied", "invalid-input", other=True), Repeat(1, 5, 6, "not_applied", "not-found", other=True)
        ),
        "a receipt": lambda p: p.call(WRITE, 1, 2, ack("a", 1)).add(
            ReceiptLine(1, "b", "unknown", 3), ReceiptLine(1, "a", "survived", 4, held_seq=5),
            ReceiptLine(1, "b", "survived", 9, last=True)
        ),
        "lost with an epoch that was given up": lambda p: p.call(WRITE, 1, 2, ack("a", 1)).add(
            GivenUp(1, 3), ReceiptLine(1, "b", "lost", 4), Repeat(1, 5, 6, "ok", "", 9, 2, 9)
        ),
        "lost, and only async": lambda p: p.call(WRITE, 1, 2, ack("a", 1, "async")).add(ReceiptLine(1, "b", "lost", 4)),
    },
    "proved": {
        "within the lease": lambda p: p.add(Limits(lease_s=1.0), Served("a", 1, 5.0, 4.0)),
        "no lease is known": lambda p: p.add(Served("a", 1, 5.0, 1.0)),
    },
    "deadline": {
        "in time": lambda p: p.call(READ, 0, 5, Outcome("ok"), 5),
        "within the slack": lambda p: p.call(READ, 0, 5.4, Outcome("unknown"), 5),
        "the clients stood": lambda p: p.add(Stood(4, 6), Stood(6.5, 7)).call(READ, 0, 7, Outcome("ok"), 5),
        "a role change that failed": lambda p: p.add(RoleChangeLine("1", "failover", 0, 5, "failed")),
        "recovered": lambda p: p.add(LIMITS, Moment("healed", 5), Moment("recovered", 9.9)),
    },
}
BROKEN: dict[str, dict[str, tuple[Build, str]]] = {
    "one_active": {
        "an acknowledgement of an old epoch": (
            lambda p: p.add(*MOVED).call(WRITE, 9, 10.1, ack("a", 1)), "acknowledged a write in epoch 1 (call 1) after site b",
        ),
        "a read of an old epoch": (
            lambda p: p.add(*MOVED).call(READ, 9, 10.1, Outcome("ok", site="a", epoch=1)), "served a read in epoch 1",
        ),
        "a read of an old epoch, known by its site": (
            lambda p: p.add(*MOVED).call(READ, 9, 10.1, Outcome("ok", site="a")), "served a read in epoch 1",
        ),
        "one epoch, two sites": (
            lambda p: p.add(Opened("a", 2, 0.0, "sync"), Opened("b", 2, 1.0, "sync")), "Site b opened epoch 2 again",
        ),
        "an epoch that does not grow": (
            lambda p: p.add(Opened("a", 2, 0.0, "sync"), Opened("b", 1, 1.0, "sync")), "although epoch 2 was open already",
        ),
        "a count that grows": (
            lambda p: p.add(*MOVED, ReadsServed("a", 1, 5, 11), ReadsServed("a", 1, 7, 12)), "served 2 reads in epoch 1",
        ),
    },
    "prefix": {
        "a frame that the active lacks": (
            lambda p: p.add(log("a", *FRAMES[:2]), log("b", *FRAMES)), "epoch 2, sequences 6 to 9, which the log of active a",
        ),
        "other bytes": (
            lambda p: p.add(log("a", *FRAMES), log("b", FRAMES[0], frame(1, 5, 5, "other"))), "stands otherwise",
        ),
        "a hole": (lambda p: p.add(log("a", *FRAMES), log("b", FRAMES[0], FRAMES[2])), "but lacks epoch 1, sequences 5 to 5"),
        "ahead": (
            lambda p: p.add(Opened("a", 1, 0, "sync"), PositionLine("b", 1, 1, 0, 10, 5), PositionLine("a", 1, 1, 9, 9, 5)),
            "had applied 10 of epoch 1",
        ),
        "half a frame": (lambda p: p.add(log("a", *FRAMES), Dump("b", False, 9, 3, {})), "ends at sequence 3"),
    },
    "convergence": {
        "a row": (
            lambda p: p.add(Moment("drained", 9)).dump({"k": ("x", 1)}).dump({}, site="b"), "1 rows of t differ",
        ),
        "a version": (
            lambda p: p.add(Moment("drained", 9)).dump({"k": ("x", 1)}).dump({"k": ("x", 2)}, site="b"), "1 rows of t differ",
        ),
        "a position": (
            lambda p: p.add(Moment("drained", 9)).dump({}).dump({}, site="b", applied=49), "site b 49, although both",
        ),
        "a table": (
            lambda p: (
                p.add(Moment("drained", 9)).dump({}).add(Dump("b", False, 9, 50, {"t": {}, "u": {"k": DumpedRow({}, 1)}}))
            ),
            "Site a has no table u",
        ),
    },
    "bounded": {
        "needless for long": (
            lambda p: p.add(LIMITS, remote(4, "s1"), remote(6, "s1", "s2"), remote(7, "s1", "s2")), "still holds s1",
        ),
        "needless after a resync": (
            lambda p: p.add(
                LIMITS, ModeRecorded(1, "async", 1), ModeRecorded(1, "sync", 5), remote(0, "s1"), remote(9, "s1")
            ), "still holds s1",
        ),
        "not drained": (lambda p: p.add(LIMITS, Moment("drained", 9), remote(9, "1.log")), "still holds 1.log"),
    },
    "honest": {
        "async without a downgrade": (
            lambda p: p.add(ModeRecorded(1, "sync", 0)).call(WRITE, 1, 2, ack("a", 1, "async")), "was recorded at all",
        ),
        "async before it was recorded": (
            lambda p: p.add(ModeRecorded(1, "async", 5)).call(WRITE, 1, 4.9, ack("a", 1, "async")), "was recorded before 5.000",
        ),
        "async by another epoch's downgrade": (
            lambda p: p.add(ModeRecorded(1, "async", 0)).call(WRITE, 1, 2, ack("a", 2, "async")), "in epoch 2",
        ),
        "sync in asynchronous mode": (
            lambda p: p.add(ModeRecorded(1, "async", 0)).call(WRITE, 5, 6, ack("a", 1)), "while the register said",
        ),
        "sync long after the register answered again": (
            lambda p: p.add(
                Opened("a", 1, 0, "sync"), ModeRecorded(1, "async", 1), Unheard("a", 0.9, 4), Unheard("a", 4.4, 7)
            ).call(WRITE, 7.7, 8, ack("a", 1)), "while the register said",
        ),
        "sync in asynchronous mode, while the register did not answer the other site": (
            lambda p: p.add(Opened("a", 1, 0, "sync"), ModeRecorded(1, "async", 1), Unheard("b", 0.9, 7)).call(
                WRITE, 5, 6, ack("a", 1)
            ), "while the register said",
        ),
        "sync in asynchronous mode, long before the register forgot it": (
            lambda p: p.add(ModeRecorded(1, "async", 0), Moment("forgotten", 9)).call(WRITE, 5, 6, ack("a", 1)),
            "while the register said",
        ),
    },
    "two_copies": {
        "the standby": (lambda p: p.add(Copies("a", 1, 3, 5, 7, 4), Copies("a", 1, 4, 5, 7, 4)), "remote log lead to 4 only"),
        "the active": (lambda p: p.add(Copies("a", 1, 3, 5, 4, 7)), "the active's storage and WAL lead to 4 only."),
    },
    "barriers": {
        "other content": (
            lambda p: p.add(kept("a", "n1", 5), kept("b", "n1", 5, "other")), "b keep at barrier n1 of 1:5 is not the same",
        ),
        "another sequence": (lambda p: p.add(kept("a", "n1", 5), kept("b", "n1", 7)), "Site b keeps barrier n1 of 1:7, site a"),
        "another epoch": (
            lambda p: p.add(kept("a", "n1", 5), Kept("b", "n1", 2, 5, "d", 4)), "Site b keeps barrier n1 of 2:5",
        ),
        "not what was told": (lambda p: p.add(BarrierLine("n1", 1, 5, 3), kept("b", "n1", 7)), "n1 was reported at 1:5, and"),
    },
    "receipts": {
        "two effects": (
            lambda p: p.call(WRITE, 1, 2, ack("a", 1)).add(Repeat(1, 3, 4, "ok", "", 9, 2, 9)),
            "Call 1 was acknowledged as version 5 at 1:5, and repeated as version 9 at 2:9",
        ),
        "another place": (lambda p: p.call(WRITE, 1, 2, ack("a", 1)).add(Repeat(1, 3, 4, "ok", "", 5, 1, 6)), "at 1:6"),
        "another request has its answer": (
            lambda p: p.call(WRITE, 1, 2, ack("a", 1)).add(Repeat(1, 3, 4, "ok", "", 5, 1, 5, other=True)), "given to another"
        ),
        "another request has its refusal": (
            lambda p: p.call(WRITE, 1, 2, Outcome("not_applied", error="precondition-failed")).add(
                Repeat(1, 3, 4, "not_applied", "precondition-failed", other=True)
            ), "given to another"
        ),
        "two effects of an open outcome": (
            lambda p: p.call(WRITE, 1, 2, Outcome("unknown")).add(
                Repeat(1, 3, 4, "ok", "", 5, 1, 5), Repeat(1, 5, 6, "ok", "", 9, 1, 9)
            ), "repeated as version 9",
        ),
        "refused later": (
            lambda p: p.call(WRITE, 1, 2, ack("a", 1)).add(Repeat(1, 3, 4, "not_applied", "precondition-failed")),
            "is refused when it is repeated: precondition-failed",
        ),
        "lost": (
            lambda p: p.call(WRITE, 1, 2, ack("a", 1)).add(ReceiptLine(1, "b", "lost", 4)),
            "Site b says at 4.000 s that call 1, acknowledged as version 5 at 1:5, is lost.",
        ),
        "not known at the end": (
            lambda p: p.call(WRITE, 1, 2, ack("a", 1)).add(ReceiptLine(1, "b", "unknown", 9, last=True)), "is unknown.",
        ),
        "said to survive before it arrived": (
            lambda p: p.call(WRITE, 1, 2, ack("a", 1)).add(ReceiptLine(1, "b", "survived", 3, held_seq=4)),
            "Site b says that call 1 survived, at version 5 at 1:5, and it holds 4 only.",
        ),
    },
    "proved": {
        "after the lease": (
            lambda p: p.add(Limits(lease_s=1.0), Served("a", 1, 5.01, 4.0)),
            "Site a answered in epoch 1 at 5.010 s, 1.010 s after its newest proof was asked for; its lease lasts 1.000 s.",
        ),
        "without any proof": (lambda p: p.add(Limits(lease_s=1.0), Served("a", 1, 5.0, -1e6)), "1000005.000 s after"),
    },
    "deadline": {
        "late": (lambda p: p.call(READ, 0, 5.6, Outcome("ok"), 5), "0.600 s after its deadline"),
        "late beside a standstill": (
            lambda p: p.add(Stood(3, 5.5), Stood(7, 9)).call(READ, 0, 6.2, Outcome("ok"), 5), "0.700 s after its deadline",
        ),
        "never": (lambda p: p.call(READ, 0, None, None, 5), "never ended"),
        "a role change that never ended": (lambda p: p.add(RoleChangeLine("1", "failover", 0)), "Role change 1 (failover)"),
        "recovered late": (lambda p: p.add(LIMITS, Moment("healed", 5), Moment("recovered", 11)), "Recovery took 6.000 s"),
        "not recovered": (lambda p: p.add(LIMITS, Moment("healed", 5), Moment("recovered", 4)), "did not recover"),
    },
}


@pytest.mark.parametrize(("checker", "name"), [(checker, name) for checker, plots in CLEAN.items() for name in plots])
def test_clean_observations_pass(checker: str, name: str) -> None:
    assert CHECKERS[checker](CLEAN[checker][name](Plot()).history()) == []


@pytest.mark.parametrize(("checker", "name"), [(checker, name) for checker, plots in BROKEN.items() for name in plots])
def test_broken_promises_are_found(checker: str, name: str) -> None:
    check_found(checker, *BROKEN[checker][name])


def test_an_empty_history_breaks_nothing() -> None:
    assert check_all(Plot().history()) == []
