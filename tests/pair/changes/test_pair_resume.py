"""A role change that its gateway's death interrupted goes on by itself: against an abort, against the other site's failover."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from switchover.operations.attempt import history_entry
from switchover.operations.document import HistoryEntry, Operation, OperationDocument
from switchover.register.port import PairState
from tests.armed_failpoints import ArmedFailpoints
from tests.pair.pair import Pair, SkewedClock
from tests.pair.pair_rig import Moments, caught_up, coordinator_value, epoch, holds, open_pair, put, rows, site
from twinlog.errors import DfsError, Refused, Unavailable

SERVES = ("ACTIVE", "DOWNGRADE_ACTIVE")


async def dies(pair: Pair, name: str, point: str) -> str:
    """A failover to the site that ends at the point, and its process with it; the plan that it leaves at the coordinator."""
    pair.running[name].operations._executor._failpoints = ArmedFailpoints(point)
    ended = await pair.operate(name, "failover", name)
    assert ended.state == "interrupted", ended
    left = (await coordinator_value(pair, name)).switching
    assert left is not None
    await pair.crash(name)
    return left.plan_id


async def end_of_failover(pair: Pair, name: str) -> OperationDocument:
    """The site's last failover, once it has ended, whoever took it up."""
    async with asyncio.timeout(120):
        while True:
            last = next(one for one in await pair.running[name].operations.all() if one.kind == "failover")
            if last.state not in ("running", "interrupted"):
                return last
            await asyncio.sleep(0.01)  # a poll of observable state, bounded by the time-out


async def resumed_by(pair: Pair, name: str) -> list[str]:
    return [one.actor for one in await pair.running[name].operations._executor.history() if one.event == "resumed"]


async def opens_again(pair: Pair) -> None:
    """Nothing has the pair: the old active serves, and the other one follows."""
    assert (await coordinator_value(pair, "b")).switching is None
    await pair.start("a")
    await pair.until(lambda: pair.role("a") == "ACTIVE" and pair.role("b") == "STANDBY")
    assert (await put(pair, "a", 2, "y")).mode == "sync"
    await pair.until(lambda: holds(pair, "b", {1: "x", 2: "y"}))


@pytest.mark.parametrize("moment", ["created", "preflight.before", "preflight.after", "claim.before", "replay.after"])
async def test_an_abort_while_a_takeover_goes_on_wins_until_the_claim(tmp_path: Path, moment: str) -> None:
    async with open_pair(tmp_path) as pair:
        await put(pair, "a", 1, "x")
        await pair.crash("a")
        await dies(pair, "b", "plan.failover.begin.after")
        asked: list[asyncio.Future[OperationDocument]] = []

        def abort() -> None:
            operations = pair.running["b"].operations
            asked.append(asyncio.ensure_future(operations.abort(str(operations.running_id))))

        pair.failpoints["b"] = Moments({f"plan.failover.{moment}": abort})
        await pair.start("b")
        ended = await end_of_failover(pair, "b")
        assert await resumed_by(pair, "b") == ["site b"]
        if moment in ("claim.before", "replay.after"):
            with pytest.raises(Refused, match="past the point of no return"):
                await asked[0]
            assert ended.state == "succeeded", ended
            assert (await put(pair, "b", 2, "y")).mode == "async"
        else:
            assert (await asked[0]).state == ended.state == "aborted", ended
            await opens_again(pair)


async def test_an_abort_asked_as_the_site_comes_back_leaves_a_pair_that_opens(tmp_path: Path) -> None:
    """Whichever is first: aborted, then it lets go; resumed and past the claim, then it serves."""
    async with open_pair(tmp_path) as pair:
        await put(pair, "a", 1, "x")
        await pair.crash("a")
        await dies(pair, "b", "plan.failover.begin.after")
        await pair.start("b")
        operations = pair.running["b"].operations
        last = next(one for one in await operations.all() if one.kind == "failover")
        [answer] = await asyncio.gather(operations.abort(last.id), return_exceptions=True)
        ended = await end_of_failover(pair, "b")
        if isinstance(answer, Refused):
            assert ended.state == "succeeded", ended
            await pair.until(lambda: pair.role("b") in SERVES)
        else:
            assert ended.state == "aborted", ended
            await opens_again(pair)


async def test_a_failover_to_the_other_site_supersedes_a_takeover_that_goes_on(tmp_path: Path) -> None:
    async with open_pair(tmp_path) as pair:
        await put(pair, "a", 1, "x")
        await pair.crash("a")
        await dies(pair, "b", "plan.failover.claim.after")
        replayed, go_on = asyncio.Event(), asyncio.Event()

        def hold() -> None:
            coordinator: Any = site(pair, "b").parts.coordinator
            read = coordinator.read

            async def held() -> PairState | None:
                await go_on.wait()
                found: PairState | None = await read()
                return found

            coordinator.read = held
            replayed.set()

        pair.failpoints["b"] = Moments({"activation.replay": hold})
        await pair.start("b")
        await replayed.wait()
        await pair.start("a")
        ended = await pair.operate("a", "failover", "a")
        assert ended.state == "succeeded", ended
        await put(pair, "a", 2, "y")
        go_on.set()
        ended = await end_of_failover(pair, "b")
        assert (ended.state, ended.error.code) == ("failed", "plan-superseded"), ended
        await pair.until(lambda: pair.role("b") == "STANDBY" and caught_up(pair, "a", "b"))
        assert await rows(pair, "b") == {1: "x", 2: "y"}


@pytest.mark.parametrize("step", ["begin", "claim"])
@pytest.mark.parametrize("opened", [False, True])
async def test_a_takeover_that_was_superseded_since_the_site_looked_does_not_go_on(
    tmp_path: Path, opened: bool, step: str
) -> None:
    """The command at the other site is the later one: nobody asked for this takeover again."""
    async with open_pair(tmp_path) as pair:
        await put(pair, "a", 1, "x")
        await pair.crash("a")
        plan_id = await dies(pair, "b", f"plan.failover.{step}.after")
        await pair.start("a")
        if opened:
            assert (await pair.operate("a", "failover", "a")).state == "succeeded"
        else:
            await pair.running["a"].supervisor.stop()
            await dies(pair, "a", "plan.failover.begin.after")
        before = await coordinator_value(pair, "a") if opened else None
        await pair.start("b")
        await pair.running["b"].supervisor.stop()
        assert await pair.running["b"].operations.go_on(plan_id)
        ended = await end_of_failover(pair, "b")
        if opened and step == "begin":  # before its claim, and the active answers
            assert ended.state == "aborted", ended
        else:
            assert (ended.state, ended.error.code) == ("failed", "plan-superseded"), ended
        now = await coordinator_value(pair, "b")
        if opened:
            assert before is not None
            assert (now.epoch, now.epoch_allocated, now.switching) == (before.epoch, before.epoch_allocated, None)
            assert epoch(pair, "a").epoch == now.epoch
        else:
            assert now.switching is not None
            assert now.switching.site == "a"
            await pair.start("a")
        pair.running["b"].supervisor.start()
        await pair.until(lambda: pair.role("a") in SERVES and pair.role("b") == "STANDBY" and caught_up(pair, "a", "b"))


async def test_a_takeover_waits_with_its_one_attempt_for_the_dfs_that_it_claims_on(tmp_path: Path) -> None:
    async with open_pair(tmp_path) as pair:
        await put(pair, "a", 1, "x")
        await pair.crash("a")
        await dies(pair, "b", "plan.failover.fence.after")
        await pair.start("b")
        own: Any = site(pair, "b").parts.own_dfs
        probe = own.probe

        async def fails() -> None:
            raise DfsError("injected: not mounted yet")

        own.probe = fails
        await pair.until(lambda: "not mounted yet" in (site(pair, "b").waiting_for or ""))
        assert await resumed_by(pair, "b") == []
        own.probe = probe
        await pair.until(lambda: pair.role("b") in SERVES)
        assert await resumed_by(pair, "b") == ["site b"]
        assert await rows(pair, "b") == {1: "x"}


async def test_nothing_but_a_takeover_or_a_switchover_is_taken_up(tmp_path: Path) -> None:
    """A later operation of another kind has nothing to do with the plan that has the pair."""
    async with open_pair(tmp_path) as pair:
        await pair.crash("a")
        plan_id = await dies(pair, "b", "plan.failover.claim.after")
        await pair.start("b")
        await pair.running["b"].supervisor.stop()
        operations = pair.running["b"].operations
        journal = operations._executor._journal
        [left] = await journal.operations(1)
        later = replace(left, id="later", kind="rejoin")
        await journal.create(later, history_entry(later, later.created_ms, "started", "test"))
        assert not await operations.go_on(plan_id)
        assert await resumed_by(pair, "b") == []


@pytest.mark.parametrize("point", ["plan.failover.begin.after", "plan.failover.claim.after", "plan.failover.replay.after"])
async def test_a_plan_that_no_operation_here_is_part_of_is_let_go(tmp_path: Path, point: str) -> None:
    """Its journal was lost with the disk: nothing could resume or abort it, and the other site would wait for it for ever."""
    async with open_pair(tmp_path) as pair:
        await put(pair, "a", 1, "x")
        await pair.crash("a")
        await dies(pair, "b", point)
        (tmp_path / "b" / "journal.db").unlink()
        await pair.start("a")
        await pair.start("b")
        await pair.until(lambda: pair.role("a") == "ACTIVE" and pair.role("b") == "STANDBY" and caught_up(pair, "a", "b"))
        assert await rows(pair, "b") == {1: "x"}


async def test_a_dfs_that_fails_once_past_the_point_of_no_return_costs_no_command(tmp_path: Path) -> None:
    """Found by the simulator (seed 557): nobody served until the operator typed `resume`."""
    async with open_pair(tmp_path) as pair:
        await put(pair, "a", 1, "x")

        def fail() -> None:
            pair.faults["b"].remote_down = True  # b opens its remote log on a's DFS

        pair.failpoints["b"].hit = Moments({"plan.switchover.replay.after": fail}).hit  # type: ignore[method-assign]
        ended = await pair.operate("b", "switchover", "b")
        assert ended.state == "failed", ended
        assert ended.error.code == "dfs-error"
        assert pair.role("b") == "CLOSED"
        pair.faults["b"].remote_down = False
        await pair.until(lambda: pair.role("b") == "ACTIVE" and pair.role("a") == "STANDBY")
        assert set(await resumed_by(pair, "b")) == {"site b"}
        assert (await put(pair, "b", 2, "y")).mode == "sync"


async def test_a_failover_that_expired_while_its_gateway_was_away_is_undone(tmp_path: Path) -> None:
    """Interrupted before its claim, it would be carried out an hour later, when nobody waits for it any more."""
    async with open_pair(tmp_path) as pair:
        await put(pair, "a", 1, "x")
        await pair.crash("a")
        await dies(pair, "b", "plan.failover.begin.journaled")
        pair.clock_ahead_s["b"] = 3600.0
        await pair.start("b")
        assert (await end_of_failover(pair, "b")).state == "aborted"
        assert await resumed_by(pair, "b") == []
        await opens_again(pair)


WITH_A_WAY_BACK = {  # of each kind of plan the steps up to the one of no return, which is the last
    "switchover": ["preflight", "near", "begin", "drain", "catch_up", "step_down"], "failover": ["preflight", "begin", "claim"],
    "degrade": ["degrade"],
}


@pytest.mark.parametrize(("kind", "step", "moment"), [
    (kind, step, moment) for kind, steps in WITH_A_WAY_BACK.items() for step in steps for moment in ("before", "journaled")
    if (step, moment) != (steps[-1], "journaled")
])
async def test_a_role_change_that_stood_still_at_a_step_begins_no_other_one(
    tmp_path: Path, kind: str, step: str, moment: str
) -> None:
    """The process is stopped, or a port hangs, for longer than the request is valid: right before the step acts, or between
    its end and the next one. Nobody waits for the change any more, so nothing of it is left."""
    steps = WITH_A_WAY_BACK[kind]
    async with open_pair(tmp_path) as pair:
        await put(pair, "a", 1, "x")
        executor = "a" if kind == "degrade" else "b"
        if kind == "failover":
            await pair.crash("a")
        operations, clock = pair.running[executor].operations, site(pair, executor).parts.clock
        assert isinstance(clock, SkewedClock)
        operations._executor._failpoints = Moments({f"plan.{kind}.{step}.{moment}": lambda: clock.set_ahead(3600.0)})
        ended = await pair.operate(executor, kind, executor)
        assert ended.error is not None, ended
        assert (ended.state, ended.error.step) == ("failed", step if moment == "before" else steps[steps.index(step) + 1])
        assert "the request expired" in ended.error.message
        assert [one.name for one in ended.steps if one.abortable] + [steps[-1]] == steps, "a new step belongs into this table"
        assert [one.state for one in ended.steps if not one.abortable] == ["pending"] * (len(ended.steps) - len(steps) + 1)
        if kind == "failover":
            await opens_again(pair)
            return
        assert (pair.role("a"), pair.role("b"), (await coordinator_value(pair, "b")).switching) == ("ACTIVE", "STANDBY", None)
        assert (await put(pair, "a", 2, "y")).mode == "sync"
        await pair.until(lambda: holds(pair, "b", {1: "x", 2: "y"}))


async def test_a_request_that_has_expired_begins_nothing(tmp_path: Path) -> None:
    async with open_pair(tmp_path) as pair:
        operations = pair.running["b"].operations
        now_ms = site(pair, "b").parts.clock.wall_ms()
        with pytest.raises(Refused, match="the request expired 2 s ago, by the clock of site b: nothing was begun"):
            await operations.start("switchover", "b", {}, False, "ann", "k1", now_ms - 2000)
        assert [one.kind for one in await operations.all()] == ["rejoin"]
        begun = await operations.start("switchover", "b", {}, False, "ann", "k1", now_ms + 30_000)
        again = await operations.start("switchover", "b", {}, False, "ann", "k1", now_ms - 2000)
        assert again.id == begun.id, "the answer to it is asked for again, and not the work"
        assert (await operations._executor.wait(begun.id)).state == "succeeded"


@pytest.mark.parametrize(("event", "step"), [("step done", "claim"), ("step started", "replay"), ("step done", "replay")])
async def test_a_takeover_whose_journal_failed_once_resumes_in_the_same_process(tmp_path: Path, event: str, step: str) -> None:
    """Found by a test under load: the first plan of a pair stopped at its journal, and the site stayed SWITCHING for ever."""
    async with open_pair(tmp_path) as pair:
        await put(pair, "a", 1, "x")
        await pair.crash("a")
        journal = pair.running["b"].operations._executor._journal
        save = journal.save

        async def fails_once(operation: Operation, entry: HistoryEntry) -> None:
            if (entry.event, entry.step) == (event, step):
                journal.save = save  # type: ignore[method-assign]
                raise Unavailable("injected: the journal does not answer")
            await save(operation, entry)

        journal.save = fails_once  # type: ignore[method-assign]
        await pair.operate("b", "failover", "b")
        ended = await end_of_failover(pair, "b")
        assert ended.state == "succeeded", ended
        await pair.until(lambda: pair.role("b") in SERVES)
        assert await holds(pair, "b", {1: "x"})
