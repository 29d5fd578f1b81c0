"""A role change is one trace: a span for each step and each undo, also over a crash, and in the trace of who asks."""

from __future__ import annotations

import pytest

from chaos.simulate.twins.journal import MemoryJournal
from storage.clock import SystemClock
from storage.failpoints import Failpoints
from storage.tracing import CURRENT
from switchover.operations.executor import Executor
from tests.armed_failpoints import ArmedFailpoints, Crash
from tests.recorded_traces import RecordedTraces
from tests.switchover.operations.plan_world import World, failing
from twinlog.errors import Unavailable


async def test_all_attempts_at_an_operation_are_one_trace() -> None:
    world, journal, recorded = World(), MemoryJournal(), RecordedTraces()
    dying = Executor(journal, SystemClock(), world.plan, ArmedFailpoints("plan.switchover.claim.after"), recorded)
    await dying.start("op-1", "switchover", "b", {}, "ann")
    assert dying._live is not None
    assert dying._live.task is not None
    with pytest.raises(Crash):
        await dying._live.task
    resumed = Executor(journal, SystemClock(), world.plan, Failpoints(), recorded)
    await resumed.resume("op-1", "ann")
    assert (await resumed.wait("op-1")).state == "succeeded"
    changes = recorded.named("role change switchover")
    assert len(changes) == 2
    assert len({span.trace for span in recorded.spans}) == 1
    assert all(span.is_over for span in recorded.spans)
    steps = [span.name for span in recorded.spans if span.parent == changes[1].number]
    assert steps[0] == "step claim"
    assert changes[1].attributes["outcome"] == "succeeded"


async def test_a_step_that_fails_and_what_is_undone_say_so() -> None:
    world, recorded = World(), RecordedTraces()
    world.hooks["drain"] = failing(Unavailable("no"))
    executor = Executor(MemoryJournal(), SystemClock(), world.plan, Failpoints(), recorded)
    caller = recorded.sampled("POST /v1/operations")
    assert caller is not None
    before = CURRENT.set(caller)
    await executor.start("op-1", "switchover", "b", {}, "ann")
    CURRENT.reset(before)
    assert (await executor.wait("op-1")).state == "failed"
    [change] = recorded.named("role change switchover")
    assert change.parent == recorded.spans[0].number
    assert change.error == "unavailable"
    assert recorded.named("step drain")[0].error == "unavailable"
    assert any(span.name.startswith("undo ") for span in recorded.spans)
    caller.end()
    assert all(span.is_over for span in recorded.spans)
