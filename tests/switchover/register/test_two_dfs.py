"""The register on two DFSs: where a value counts, what a cut leaves open, what an operator's command may do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from msgspec.structs import replace

from remote_log.dfs.retrying import within
from switchover.register import two_dfs
from switchover.register.dfs_folder import KEPT, RegisterFolder
from switchover.register.homes import next_home, rank, reconciled
from switchover.register.port import Beat, PairState, read_or_known, update
from switchover.register.transitions import abandon_plan, begin_plan, downgrade, downgrade_closed, open_plan, resync
from tests.remote_log.dfs.memory_dfs import Fault, MemoryDfs
from tests.switchover.register.register_world import LAYOUT, RegisterWorld
from twinlog.errors import DamagedLog, DfsError, Fenced, PlanSuperseded, Refused, Unavailable

BEAT = Beat(0, 0, 1.0)


async def begin(world: RegisterWorld, site: str, plan: str = "p", **given: bool) -> PairState:
    return await update(world.doors[site], lambda now: begin_plan(now, plan, site, "takeover", 1, **given))


# ---- where the value is


async def test_the_home_is_where_a_site_that_goes_on_alone_can_reach_it() -> None:
    world = RegisterWorld()
    opened = await world.open_at_a()
    assert opened.home == "b", "synchronous: where a takeover by b and a restart of a meet"
    degraded = await update(world.doors["a"], lambda now: downgrade(now, "a", 1, 5))
    assert degraded.home == "a", "asynchronous: a goes on without b"
    back = await update(world.doors["a"], lambda now: resync(now, "a", 1))
    assert back.home == "b"
    assert (await begin(world, "b")).home == "b", "a plan moves nothing before it opens"
    assert (await update(world.doors["b"], lambda now: open_plan(now, "p", "async", 9))).home == "b"
    assert await world.doors["a"].read() == await world.doors["b"].read()


async def test_the_first_value_needs_the_first_home() -> None:
    world = RegisterWorld()
    world.cut("a")
    assert await world.doors["b"].read() is None
    world.cut("a", down=False)
    world.cut("b")
    with pytest.raises(Unavailable, match="site b's DFS, which does not answer"):
        await world.doors["a"].read()


async def test_a_value_that_names_another_home_does_not_count() -> None:
    """b's DFS is the home; a's has copies. Who reaches only those must not take them for the value."""
    world = RegisterWorld()
    await world.open_at_a()
    assert world.files("a")
    world.cut("b", sites="a")
    await begin(world, "b")
    with pytest.raises(Unavailable, match="site b's DFS") as caught:
        await world.doors["a"].read()
    assert "twinlog degrade" in caught.value.message, "a is the active: it may be opened alone, by command"
    assert world.doors["a"].known is not None
    with pytest.raises(Unavailable):
        await update(world.doors["a"], lambda now: downgrade(now, "a", 1, 5))


async def test_a_move_that_was_decided_and_not_copied_holds() -> None:
    world = RegisterWorld()
    await world.open_at_a("async")
    world.ways["a", "b"].faults["create_file", world.ways["a", "b"].calls["create_file"] + 1] = Fault(DfsError("cut"))
    moved = await update(world.doors["a"], lambda now: resync(now, "a", 1))
    assert moved.home == "b"
    world.cut("b", sites="a")
    with pytest.raises(Unavailable, match="site b's DFS"):
        await world.doors["a"].read()
    assert await world.doors["b"].read() == moved, "whoever sees the decision and not the copy makes the copy"
    world.cut("a")
    assert await world.doors["b"].read() == moved
    assert world.doors["b"].unseen == "a"
    assert (await begin(world, "b")).switching is not None


async def test_a_home_that_does_not_take_the_change_is_not_confirmed() -> None:
    world = RegisterWorld()
    await world.open_at_a()
    way = world.ways["b", "b"]
    way.faults["create_file", way.calls["create_file"] + 1] = Fault(DfsError("the answer is lost"), landed=1)
    with pytest.raises(Unavailable, match="may have happened"):
        await begin(world, "b")
    assert (await begin(world, "b")).state_id == 3, "asked again, the change is found made"


async def test_a_dfs_that_hangs_is_out_of_reach_by_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    world = RegisterWorld()
    await world.open_at_a()
    door = world.doors["b"]
    door._deadline_s = 3.0
    way = world.ways["b", "a"]
    for call in (1, 2):
        way.faults["list", way.calls["list"] + call] = Fault(gate=asyncio.Event())
    given_s: list[float] = []

    async def noted(deadline_s: float, work: Awaitable[Any]) -> Any:
        given_s.append(deadline_s)
        return await within(deadline_s, work)

    monkeypatch.setattr(two_dfs, "within", noted)
    for shortest_s in (3.0, 0.3):
        given_s.clear()
        assert (await door.read()) is not None
        assert door.unseen == "a"
        assert min(given_s) == pytest.approx(shortest_s), "the next look does not wait as long"
    assert (await door.read()) is not None
    assert door.unseen is None


# ---- files


async def folder_with(count: int) -> tuple[MemoryDfs, RegisterFolder]:
    dfs = MemoryDfs()
    folder = RegisterFolder(dfs, LAYOUT, "a", RegisterWorld().doors["a"]._folders["a"]._clock)
    for number in range(count):
        assert await folder.add(await folder.tip(), PairState(state_id=number + 1)) is not None
    return dfs, folder


async def test_old_files_are_deleted() -> None:
    dfs, folder = await folder_with(3 * KEPT)
    assert len(await dfs.list(LAYOUT.register_folder)) == KEPT
    assert (await folder.tip()).value == PairState(state_id=3 * KEPT)


async def test_a_file_made_where_older_ones_were_deleted_does_not_count() -> None:
    dfs, folder = await folder_with(3)
    stale = await folder.tip()
    for number in range(3 * KEPT):
        assert await folder.add(await folder.tip(), PairState(state_id=10 + number)) is not None
    newest = await folder.tip()
    assert await folder.add(stale, PairState(state_id=99)) is None
    assert await folder.tip() == newest
    assert await folder.add(newest, PairState(state_id=100)) is not None
    assert len(await dfs.list(LAYOUT.register_folder)) == KEPT, "it is deleted with the next change"


async def test_a_file_made_just_below_the_ones_that_are_left_does_not_count() -> None:
    dfs, folder = await folder_with(KEPT - 1)
    before = await folder.tip()
    for number in range(KEPT + 1):
        assert await folder.add(await folder.tip(), PairState(state_id=100 + number)) is not None
    assert folder._layout.register_file(before.number + 2) in dfs.disk.files, "the one above is still there"
    assert await folder.add(before, PairState(state_id=99)) is None


async def test_who_was_overtaken_at_once_knows_that_it_went_in() -> None:
    dfs, folder = await folder_with(2)
    tip = await folder.tip()
    gate = asyncio.Event()
    dfs.faults["list", dfs.calls["list"] + 1] = Fault(gate=gate)
    first = asyncio.ensure_future(folder.add(tip, PairState(state_id=3)))
    while f"{LAYOUT.register_folder}/000000000003" not in dfs.disk.files:  # noqa: ASYNC110
        await asyncio.sleep(0)
    other = RegisterFolder(MemoryDfs(dfs.disk), LAYOUT, "b", folder._clock)
    assert await other.add(await other.tip(), PairState(state_id=4)) is not None
    gate.set()
    assert await first is not None


async def test_a_file_that_cannot_be_read_does_not_look_like_an_older_value() -> None:
    dfs, folder = await folder_with(2)
    dfs.disk.files[f"{LAYOUT.register_folder}/000000000002"].data[:] = b"{"
    with pytest.raises(DamagedLog, match="000000000002"):
        await folder.tip()


async def test_the_file_that_came_behind_and_cannot_be_read_is_named() -> None:
    """It is the one that an operator is to look at."""
    dfs, folder = await folder_with(2)
    stale = await folder.tip()
    assert await folder.add(stale, PairState(state_id=3)) is not None
    assert await folder.add(await folder.tip(), PairState(state_id=4)) is not None
    dfs.disk.files.pop(f"{LAYOUT.register_folder}/000000000003")
    dfs.disk.files[f"{LAYOUT.register_folder}/000000000004"].data[:] = b"{"
    with pytest.raises(DamagedLog, match="000000000004"):
        await folder.add(stale, PairState(state_id=99))


# ---- by command, without the home


async def forced_degrade(world: RegisterWorld) -> PairState:
    return await world.doors["a"].force(lambda now: downgrade(now, "a", 1, 5))


async def test_a_forced_degrade_rules_over_an_untouched_register() -> None:
    world = RegisterWorld()
    before = await world.open_at_a()
    world.cut("b", sites="a")
    forced = await forced_degrade(world)
    assert (forced.mode, forced.home, forced.home_forced, forced.state_id) == ("async", "a", 1, before.state_id + 1)
    assert "site b's DFS was not known" in forced.reason
    assert await world.doors["a"].read() == forced
    world.cut("b", sites="a", down=False)
    assert await world.doors["b"].read() == forced
    with pytest.raises(Refused, match="asynchronously"):
        await begin(world, "b")
    world.cut("a")
    with pytest.raises(Unavailable, match="site a's DFS"):
        await begin(world, "b")


async def test_a_forced_degrade_is_not_forgotten_while_the_dfs_that_holds_it_is_away() -> None:
    """Seed 6229667: the other DFS, back again, still said sync; a resync took that for the register's word."""
    world = RegisterWorld()
    await world.open_at_a()
    world.cut("b")
    forced = await forced_degrade(world)
    world.cut("b", down=False)
    world.cut("a")
    door = world.doors["a"]
    with pytest.raises(Unavailable, match="on site a's DFS"):
        await door.read()
    await door.renew("a", 1, BEAT)
    stale = await world.doors["b"].read()
    assert stale is not None
    assert stale.mode == "sync", "who has not met it cannot know"
    world.cut("a", down=False)
    for each in world.doors.values():
        read = await each.read()
        assert read is not None
        assert (read.mode, read.home, read.home_forced) == ("async", "a", forced.home_forced)


async def test_nothing_is_forced_while_the_home_answers() -> None:
    world = RegisterWorld()
    await world.open_at_a()
    degraded = await forced_degrade(world)
    assert degraded.home_forced == 0
    way = world.ways["a", "a"]
    way.faults["create_file", way.calls["create_file"] + 1] = Fault(DfsError("the answer is lost"), landed=1)
    with pytest.raises(Unavailable, match="may have happened"):
        await world.doors["a"].force(lambda now: resync(now, "a", 1))
    moved = await world.doors["a"].read()
    assert moved is not None
    assert moved.home_forced == 0
    world.cut("a", sites="a")
    world.cut("b", sites="a")
    with pytest.raises(Unavailable):
        await world.doors["a"].force(lambda now: resync(now, "a", 1))


async def test_a_restarted_gateway_degrades_from_the_copy_on_its_own_dfs() -> None:
    world = RegisterWorld()
    await world.open_at_a()
    world.cut("b", sites="a")
    door = world.door("a")
    forced = await door.force(lambda now: downgrade_closed(now, "a", 7, {1}))
    assert (forced.home, forced.async_since_seq) == ("a", 7)
    began = await update(door, lambda now: begin_plan(now, "r", "a", "restart", 1))
    assert began.epoch_allocated % 2 == 1, "a's DFS gives odd numbers, b's even ones: no number is given twice"


async def test_a_takeover_that_opened_rules_over_a_forced_degrade() -> None:
    world = RegisterWorld()
    await world.open_at_a()
    world.cut("b", sites="a")
    world.cut("a", sites="b")
    await forced_degrade(world)
    await begin(world, "b")
    opened = await update(world.doors["b"], lambda now: open_plan(now, "p", "async", 9))
    assert opened.epoch == 2
    world.cut("b", sites="a", down=False)
    world.cut("a", sites="b", down=False)
    assert await world.doors["a"].read() == opened
    assert await world.doors["b"].read() == opened
    with pytest.raises(Fenced):
        await world.doors["a"].renew("a", 1, BEAT)


@pytest.mark.parametrize("given_up", [False, True])
async def test_a_takeover_that_has_not_opened_learns_of_a_forced_degrade(given_up: bool) -> None:
    """Its plan ranks above the degrade, but what was acknowledged asynchronously must not be forgotten."""
    world = RegisterWorld()
    await world.open_at_a()
    world.cut("b", sites="a")
    world.cut("a", sites="b")
    await forced_degrade(world)
    began = await begin(world, "b")
    assert began.mode == "sync"
    if given_up:
        await update(world.doors["b"], lambda now: abandon_plan(now, "p"))
    world.cut("a", sites="b", down=False)
    state = await world.doors["b"].read()
    assert state is not None
    assert (state.mode, state.async_since_seq, state.switching is None) == ("async", 5, given_up)
    world.cut("b", sites="a", down=False)
    assert await world.doors["a"].read() == state
    if given_up:
        with pytest.raises(Refused, match="asynchronously"):
            await begin(world, "b", "again")
        await world.doors["a"].renew("a", 1, BEAT)
    else:
        with pytest.raises(PlanSuperseded):
            await world.doors["a"].renew("a", 1, BEAT)


async def test_what_two_lines_gave_away_stays_given_away() -> None:
    world = RegisterWorld()
    await world.open_at_a()
    world.cut("b", sites="a")
    world.cut("a", sites="b")
    await forced_degrade(world)
    for plan in ("r1", "r2", "r3"):
        restarted = await update(world.doors["a"], lambda now, plan=plan: begin_plan(now, plan, "a", "restart", 1))
    await begin(world, "b")
    opened = await update(world.doors["b"], lambda now: open_plan(now, "p", "async", 9))
    world.cut("a", sites="b", down=False)
    state = await world.doors["b"].read()
    assert state is not None
    assert (state.epoch, state.active) == (opened.epoch, "b")
    assert state.epoch_allocated == restarted.epoch_allocated > opened.epoch


async def test_a_forced_takeover_leaves_room_for_what_it_does_not_know() -> None:
    world = RegisterWorld()
    await world.open_at_a("async")
    await world.doors["b"].read()
    world.cut("a", sites="b")
    world.cut("b", sites="a")
    assert (await read_or_known(world.doors["b"])) == world.doors["b"].known
    took = await world.doors["b"].force(
        lambda now: begin_plan(now, "p", "b", "takeover", 1, accept_data_loss=True, epoch_step=1000)
    )
    assert (took.home, took.epoch_allocated) == ("b", 1002), "an even number: b's DFS gave it"
    opened = await update(world.doors["b"], lambda now: open_plan(now, "p", "async", 9))
    restarted = await update(world.doors["a"], lambda now: begin_plan(now, "r", "a", "restart", 1))
    await update(world.doors["a"], lambda now: open_plan(now, "r", "async", 9))
    assert restarted.epoch_allocated < opened.epoch
    world.cut("a", sites="b", down=False)
    world.cut("b", sites="a", down=False)
    assert await world.doors["a"].read() == opened


async def test_a_change_made_of_another_line_is_refused_though_the_ids_are_alike() -> None:
    world = RegisterWorld()
    await world.open_at_a()
    seen_by_b = await world.doors["b"].read()
    assert seen_by_b is not None
    world.cut("b", sites="a")
    forced = await forced_degrade(world)
    from_b = begin_plan(replace(seen_by_b, state_id=forced.state_id), "p", "b", "takeover", 1)
    with pytest.raises(PlanSuperseded):
        await world.doors["b"].compare_and_set(forced, from_b)


# ---- the lease of an asynchronous active


async def test_a_lease_is_proved_by_a_look_that_changes_nothing() -> None:
    world = RegisterWorld()
    await world.open_at_a("async")
    files = world.files("a"), world.files("b")
    await world.doors["a"].renew("a", 1, BEAT)
    assert (world.files("a"), world.files("b")) == files
    await update(
        world.doors["b"], lambda now: begin_plan(now, "p", "b", "takeover", 1, accept_data_loss=True)
    )
    with pytest.raises(PlanSuperseded):
        await world.doors["a"].renew("a", 1, BEAT)


async def test_without_its_home_only_an_asynchronous_active_goes_on() -> None:
    world = RegisterWorld()
    await world.open_at_a("async")
    for dfs in "ab":
        world.cut(dfs, sites="a")
    await world.doors["a"].renew("a", 1, BEAT)
    for dfs in "ab":
        world.cut(dfs, sites="a", down=False)
    await update(world.doors["a"], lambda now: resync(now, "a", 1))
    with pytest.raises(Refused, match="synchronous"):
        await world.doors["a"].renew("a", 1, BEAT)
    world.cut("b", sites="a")
    with pytest.raises(Unavailable):
        await world.doors["a"].renew("a", 1, BEAT)


async def test_a_plan_seen_in_a_copy_stops_the_reads_too() -> None:
    world = RegisterWorld()
    await world.open_at_a("async")
    world.cut("a", sites="a")
    await update(world.doors["b"], lambda now: begin_plan(now, "p", "b", "takeover", 1, accept_data_loss=True))
    with pytest.raises(PlanSuperseded):
        await world.doors["a"].renew("a", 1, BEAT)


# ---- pure


def test_ranks() -> None:
    older = PairState(state_id=9, epoch=1, epoch_allocated=1, home="b")
    forced = PairState(state_id=5, epoch=1, epoch_allocated=1, home="a", home_forced=1)
    begun = PairState(state_id=6, epoch=1, epoch_allocated=2, home="b")
    opened = PairState(state_id=7, epoch=2, epoch_allocated=2, home="b")
    assert sorted([opened, forced, begun, older], key=rank) == [older, forced, begun, opened]
    assert rank(None) < rank(PairState(state_id=1))


def test_what_is_alike_needs_no_reconciling() -> None:
    state = PairState(state_id=5, epoch=1, epoch_allocated=1, active="a", home="a", home_forced=1)
    assert reconciled(state, [PairState(state_id=4, epoch=1, epoch_allocated=1, active="a", home="b")]) is state


def test_a_value_without_an_active_stays_at_the_first_home() -> None:
    assert next_home(None, PairState(), "b", ("a", "b")) == "b"
