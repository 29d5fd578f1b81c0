"""A segment that the other site holds durably is needless while nothing is broken, and must go in time."""

from __future__ import annotations

from chaos.checkers import CHECKERS
from chaos.harness.honesty.known import Known
from chaos.harness.honesty.needless import TRIM_SLACK_S, looks
from chaos.harness.nemesis import Span
from chaos.harness.pair.files.remote_copy import RemoteCopy
from chaos.harness.pair.samples import Sample
from chaos.history.history import Limits, Moment, Opened, history_of

BEGUN = (Limits(trim_slack_s=TRIM_SLACK_S), Opened("a", 1, 0.0, "sync"))
KNOWN = Known(history_of(BEGUN))
THERE = RemoteCopy(90, (("one", 30), ("two", 60)))


def active(at_s: float) -> Sample:
    return Sample("a", at_s, "ACTIVE", 1, "sync", reads=True, writes=True, told_s=at_s + 0.1, there=THERE, remote_log_bytes=9)


def standby(at_s: float, durable: int, role: str = "STANDBY", epoch: int = 1) -> Sample:
    return Sample("b", at_s, role, epoch, durable=durable, follows=role == "STANDBY", told_s=at_s + 0.1)


def needless(*samples: Sample, spans: tuple[Span, ...] = ()) -> list[tuple[str, ...]]:
    return [each.needless for each in looks(samples, spans, KNOWN)]


def test_what_the_other_site_had_said_to_hold_is_needless() -> None:
    assert needless(standby(4.8, 59), active(5.0)) == [("one",)]
    assert needless(standby(4.8, 60), active(5.0)) == [("one", "two")]
    assert needless(active(5.0), standby(5.2, 60)) == [()], "it said so later"
    assert needless(standby(3.0, 60), active(5.0)) == [()], "it said so long ago"
    assert needless(standby(4.8, 60, "CLOSED"), active(5.0)) == [()], "it does not follow"
    assert needless(standby(4.8, 60, epoch=2), active(5.0)) == [()], "it follows another epoch"


def test_while_something_is_broken_nothing_is_needless() -> None:
    cut = Span("black-hole", "a>b", "", 4.0, 5.05)
    assert needless(standby(4.8, 60), active(5.0), spans=(cut,)) == [()]
    assert needless(standby(4.8, 60), active(5.2), spans=(cut,)) == [("one", "two")]
    assert needless(standby(4.8, 60), active(5.0), spans=(Span("crash", "b", "", 5.0, 5.0, skipped="it does not run"),)) != [()]


def test_a_segment_that_stays_for_longer_than_its_time_is_found() -> None:
    samples = [each for n in range(50) for each in (standby(n / 2, 40), active(n / 2 + 0.2))]
    found = CHECKERS["bounded"](history_of([*BEGUN, *looks(samples, (), KNOWN)]))
    assert "still holds one, that nobody has needed for 16." in found[0].sentence
    assert not CHECKERS["bounded"](history_of([*BEGUN, *looks(samples[:60], (), KNOWN)]))
    drained = [*BEGUN, Moment("drained", 10.0), *looks(samples[:60], (), KNOWN)]
    assert "when everything is drained" in CHECKERS["bounded"](history_of(drained))[0].sentence
