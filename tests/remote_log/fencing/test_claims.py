"""Claims: of many claimers one wins, and who does not hold the highest claim is fenced."""

from __future__ import annotations

import asyncio

import pytest

from remote_log.dfs.port import Dfs
from remote_log.fencing.claims import ClaimContent, check_not_fenced, claim, claimed_epochs, read_claim
from tests.remote_log.dfs.memory_dfs import Fault, MemoryDfs
from tests.remote_log.writing.remote_rig import LAYOUT, content_of, turns
from twinlog.errors import ClaimLost, DamagedLog, DfsError, Fenced


async def test_of_many_claimers_exactly_one_wins(dfs: Dfs) -> None:
    plans = [f"plan-{i}" for i in range(20)]
    results = await asyncio.gather(*[claim(dfs, LAYOUT, 2, content_of(plan)) for plan in plans], return_exceptions=True)
    winners = [plan for plan, result in zip(plans, results, strict=True) if result is None]
    assert len(winners) == 1
    for result in results:
        if result is not None:
            assert isinstance(result, ClaimLost)
            winner = result.fields["winner"]
            assert isinstance(winner, dict)
            assert winner["plan"] == winners[0]
    assert await claimed_epochs(dfs, LAYOUT) == [2]
    assert await read_claim(dfs, LAYOUT, 2) == content_of(winners[0])


async def test_the_same_plan_takes_its_own_claim_again(dfs: Dfs) -> None:
    await claim(dfs, LAYOUT, 2, content_of("mine"))
    later = ClaimContent(site="b", plan="mine", kind="takeover", reason="after a crash", wall_ms=9, follows_epoch=1)
    await claim(dfs, LAYOUT, 2, later)
    assert await read_claim(dfs, LAYOUT, 2) == content_of("mine")


async def test_a_claim_whose_answer_was_lost_is_found_again() -> None:
    dfs = MemoryDfs()
    dfs.faults["create_file", 1] = Fault(DfsError("the answer was lost"), landed=1)
    with pytest.raises(DfsError):
        await claim(dfs, LAYOUT, 2, content_of("mine"))
    await claim(dfs, LAYOUT, 2, content_of("mine"))


async def test_a_higher_claim_wins_over_a_free_lower_one(dfs: Dfs) -> None:
    await claim(dfs, LAYOUT, 5, content_of("later", 5))
    with pytest.raises(ClaimLost) as lost:
        await claim(dfs, LAYOUT, 3, content_of("mine", 3))
    assert lost.value.fields["winner_epoch"] == 5
    assert f"epoch 3 of pair {LAYOUT.pair} cannot" in lost.value.message, "two pairs may share one DFS"
    assert await claimed_epochs(dfs, LAYOUT) == [5]


async def test_a_higher_claim_that_appears_during_ours_is_seen() -> None:
    dfs = MemoryDfs()
    gate = asyncio.Event()
    dfs.faults["create_file", 1] = Fault(gate=gate)
    ours = asyncio.create_task(claim(dfs, LAYOUT, 2, content_of("mine")))
    await turns(10)
    await claim(MemoryDfs(dfs.disk), LAYOUT, 3, content_of("later", 3))
    gate.set()
    with pytest.raises(ClaimLost):
        await ours


async def test_a_claim_that_cannot_be_read_is_no_free_epoch(dfs: Dfs) -> None:
    await dfs.create_file(LAYOUT.claim(4), b"{half")
    with pytest.raises(DamagedLog) as damaged:
        await read_claim(dfs, LAYOUT, 4)
    assert damaged.value.fields["file"] == LAYOUT.claim(4)
    with pytest.raises(DamagedLog):
        await claim(dfs, LAYOUT, 4, content_of("mine", 4))
    with pytest.raises(Fenced, match=f"epoch 4 of pair {LAYOUT.pair} was claimed"):
        await check_not_fenced(dfs, LAYOUT, 3)


async def test_only_a_higher_claim_fences(dfs: Dfs) -> None:
    await claim(dfs, LAYOUT, 1, content_of("o", 1))
    await check_not_fenced(dfs, LAYOUT, 1)
    await claim(dfs, LAYOUT, 2, content_of("p"))
    await check_not_fenced(dfs, LAYOUT, 2)
    with pytest.raises(Fenced) as fenced:
        await check_not_fenced(dfs, LAYOUT, 1)
    assert fenced.value.fields == {"epoch": 1, "by_epoch": 2}


async def test_a_dfs_without_ones_own_claim_proves_nothing(dfs: Dfs) -> None:
    with pytest.raises(DfsError, match="is gone"):
        await check_not_fenced(dfs, LAYOUT, 2)
    await claim(dfs, LAYOUT, 1, content_of("older", 1))
    with pytest.raises(DfsError, match="is gone"):
        await check_not_fenced(dfs, LAYOUT, 2)
