"""The audits that run: how long one has been silent is by the site's own clock, and there is a bound of them."""

from __future__ import annotations

import pytest

from gateway.audits.running import FORGOTTEN_S, RUNNING_MAX, SILENT_S, RunningAudits
from storage.clock import SystemClock
from twinlog.wire.audit_report import AuditProgress

PROGRESS = AuditProgress(job="compare", phase="digests of a", elapsed_s=5.0)


class SetClock(SystemClock):
    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic_s(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def running(clock: SetClock) -> RunningAudits:
    return RunningAudits(clock)


def test_one_that_stopped_reporting_is_silent_and_not_running(running: RunningAudits, clock: SetClock) -> None:
    running.report("one", PROGRESS)
    for later_s, state in ((0.0, "running"), (SILENT_S, "running"), (SILENT_S + 1, "silent"), (FORGOTTEN_S, "silent")):
        clock.now_s = 100 + later_s
        (shown,) = running.all()
        assert (shown.state, shown.silent_s) == (state, later_s)
    running.report("one", PROGRESS)
    assert [one.state for one in running.all()] == ["running"]
    clock.now_s += FORGOTTEN_S + 1
    assert running.all() == []


def test_one_that_a_signal_stopped_says_so_for_as_long_as_it_is_known(running: RunningAudits, clock: SetClock) -> None:
    running.report("one", AuditProgress(job="compare", phase="x", elapsed_s=1.0, is_stopped=True))
    clock.now_s += SILENT_S + 1
    assert [one.state for one in running.all()] == ["stopped"]


def test_what_was_silent_longest_gives_way_and_the_newest_is_first(running: RunningAudits, clock: SetClock) -> None:
    for number in range(RUNNING_MAX + 2):
        clock.now_s += 1
        running.report(str(number), PROGRESS)
    assert [one.id for one in running.all()] == [str(number) for number in range(RUNNING_MAX + 1, 1, -1)]
    running.ended("5")
    assert running.get("5") is None
    assert running.get("6") is not None
