"""A value of the register that must not be is reported as it is decided."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from chaos.simulate.looks.decisions import Decisions, Given
from chaos.simulate.world import PAIR, World
from remote_log.layout import RemoteLayout
from storage.log.segment import REMOTE_ALIGNMENT, SegmentHeader, encode_frames, encode_header
from switchover.operations.document import Operation, StepRecord
from switchover.register.port import Beat, PairState, Switching
from switchover.rejoin import ASYNC_EPOCH
from tests.chaos.simulate.looks.a_world import a_world, an_operation, journaled
from tests.storage.log.frames import run

LAYOUT = RemoteLayout(PAIR)
PLAN = Switching("p", "b", 8, "takeover", 0)
SYNC = PairState(4, 7, 7, "a", "o")
ASYNC = replace(SYNC, mode="async", async_since_seq=50, beat=Beat(60, 0, 1.0))


def said(before: PairState, value: PairState, author: str = "a", world: World | None = None) -> list[str]:
    """Returns what is said of the value that is decided behind `before`."""
    found: list[str] = []
    look = Decisions(world or a_world(), found.append)
    look._numbers.add(before.state_id)
    if before.switching is not None:
        look.decided(None, replace(before, state_id=1), before.switching.site)
    look.decided(before, value if value.state_id != before.state_id else replace(value, state_id=before.state_id + 1), author)
    return found


def test_numbers_go_up_by_one() -> None:
    assert said(SYNC, SYNC) == []
    assert said(SYNC, replace(SYNC, state_id=6)) == ["The register's value 6 follows none that was ever decided."]


def test_a_plan_loses_the_pair_by_its_own_site_or_to_another_plan() -> None:
    begun = replace(SYNC, switching=PLAN, epoch_allocated=8)
    assert said(begun, SYNC, "b") == []
    assert said(begun, replace(begun, switching=replace(PLAN, plan_id="q", site="a", epoch=9)), "a") == []
    assert said(begun, SYNC, "a") == ["The plan of site b for epoch 8 lost the pair by site a, which has none."]
    assert said(replace(begun, home="b"), replace(SYNC, home="b"), "a") == [], "two lines may be brought together"


def test_a_register_that_went_back_gives_an_epoch_again_also_to_the_other_site() -> None:
    """Seed 95008228: a change of the register was forgotten, and with it the plan of the other site."""
    world = a_world()
    look = Decisions(world, [].append)
    plans = (PLAN, PLAN, replace(PLAN, plan_id="q", site="a"), replace(PLAN, plan_id="r"))
    for at_s, plan in enumerate(plans, 1):
        world.loop.now_s = at_s
        look.decided(SYNC, replace(SYNC, state_id=5, switching=plan, epoch_allocated=8), plan.site)
    assert look.given == {(8, "b"): Given("r", 4), (8, "a"): Given("q", 3)}


@pytest.mark.parametrize(("before", "options", "is_wrong"), [
    (SYNC, {}, False), (ASYNC, {"accept_data_loss": 10}, False), (ASYNC, {}, True),
])
def test_a_loss_is_accepted_before_a_takeover_from_an_asynchronous_active(
    before: PairState, options: dict[str, Any], is_wrong: bool
) -> None:
    world = a_world()
    journaled(world, "b", replace(an_operation(), options=options))
    found = said(before, replace(before, switching=PLAN, epoch_allocated=8), "b", world)
    assert found == (["Site b begins to take over from the asynchronous a, and nobody accepted a loss."] if is_wrong else [])


def opened(plan: Switching, mode: Any = "async", end: int | None = 50) -> tuple[PairState, PairState]:
    begun = replace(SYNC, switching=plan, epoch_allocated=8)
    value = replace(
        begun, switching=None, epoch=8, active=plan.site, opened_by=plan.plan_id, mode=mode,
        async_since_seq=end if mode == "async" else None,
    )
    return begun, value


@pytest.mark.parametrize(("leases", "kind", "said_s"), [
    (1.15, "takeover", []), (1.05, "takeover", ["Site b opens epoch 8 "]), (1.05, "restart", []),
])
def test_a_takeover_waits_a_lease_and_its_margin_from_the_last_append(leases: float, kind: str, said_s: list[str]) -> None:
    world, found = a_world(), list[str]()
    look = Decisions(world, found.append)
    look._numbers.add(4)
    for epoch, asked_s in (7, -leases * world.plan.knobs.lease_s), (8, 0.0):  # the one that it opens may be appended to
        world.machines["b"].dfs.landed(LAYOUT.segment(epoch, "000000000001-00000001", 0), asked_s)
    before, value = opened(replace(PLAN, kind=kind), end=None)
    look.decided(before, replace(value, state_id=5), "b")
    assert [sentence[:21] for sentence in found] == said_s


def drained(durable_seq: int, attempt: int = 1) -> Operation:
    step = StepRecord("step_down", "", False, "done", 1, 2, {"confirmed": True, "durable_seq": durable_seq})
    return replace(an_operation("switchover", step), attempt=attempt)


@pytest.mark.parametrize(("operation", "mode", "is_wrong"), [
    (drained(49), "async", False), (drained(50), "sync", False), (drained(50), "async", True), (drained(50, 2), "async", False),
])
def test_a_switchover_opens_synchronously_where_the_other_site_has_all(operation: Operation, mode: str, is_wrong: bool) -> None:
    world = a_world()
    journaled(world, "b", operation)
    found = said(*opened(replace(PLAN, kind="switchover"), mode), "b", world)
    assert found == ["Site b opens asynchronously, and site a stopped with all of it on its disk."] * is_wrong


def segment(epoch: int, frames: list[Any]) -> bytes:
    header = SegmentHeader(0, epoch, frames[0].first_seq, "000000000001-00000001", REMOTE_ALIGNMENT, "0" * 16)
    return encode_header(header) + encode_frames(frames, REMOTE_ALIGNMENT)


@pytest.mark.parametrize(("copied_from", "is_wrong"), [(2, True), (3, False)])
def test_a_restart_copies_what_the_remote_log_lacks_and_no_more(copied_from: int, is_wrong: bool) -> None:
    world, frames = a_world(), run(1, 4)
    dfs = world.machines["b"].dfs
    dfs.make(LAYOUT.segment(7, "000000000001-00000001", 0), segment(7, frames[:3]), True)
    dfs.make(LAYOUT.segment(8, "000000000001-00000001", 0), segment(8, frames[copied_from:]), False)
    found = said(*opened(replace(PLAN, site="a", kind="restart"), "sync"), "a", world)
    assert [sentence[:26] for sentence in found] == ["Site a copied frame (1, 3)"] * is_wrong


def test_a_degrade_leaves_no_word_of_before_and_is_recorded_first() -> None:
    assert said(SYNC, replace(ASYNC, beat=None)) == []
    assert said(SYNC, ASYNC) == ["Site a degrades epoch 7, and the register keeps a word of before."]
    world = a_world()
    asyncio.run(world.machines["a"].engine.set_meta(ASYNC_EPOCH, b"6"))
    assert said(SYNC, replace(ASYNC, beat=None), world=world) == []
    asyncio.run(world.machines["a"].engine.set_meta(ASYNC_EPOCH, b"7"))
    early = ["Site a noted epoch 7 as asynchronous before the register did."]
    assert said(SYNC, replace(ASYNC, beat=None), world=world) == early


def test_what_an_active_has_told_the_register_stays_known() -> None:
    assert said(ASYNC, replace(ASYNC, lease_beats=1, beat=Beat(61, 0, 1.0))) == []
    assert said(ASYNC, replace(ASYNC, lease_beats=1, beat=None)) == [
        "Site a has reported 60 to the register, which knows of None behind that."
    ]
    assert said(ASYNC, replace(ASYNC, lease_beats=1, beat=Beat(59, 0, 1.0))) == [
        "Site a has reported 60 to the register, which knows of 59 behind that."
    ]
