"""A call of a DFS that the protocol does not allow is reported as it is asked."""

from __future__ import annotations

from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from chaos.simulate.looks.decisions import Decisions, Given
from chaos.simulate.looks.dfs_calls import RECOVERIES, DfsCalls
from chaos.simulate.twins.dfs import SimDfsWriter
from chaos.simulate.twins.process import Process
from chaos.simulate.world import PAIR, Life, World
from remote_log.layout import RemoteLayout
from tests.chaos.simulate.looks.a_world import a_world
from tests.chaos.simulate.on_virtual_loop import run
from twinlog.errors import DfsError

LAYOUT = RemoteLayout(PAIR)
OLD, NEW = (LAYOUT.segment(6, "000000000001-00000001", number) for number in (0, 1))
CLAIM = LAYOUT.claim(7)
LOOK = "look"


def a_looked_at(epoch: Any = None) -> tuple[World, Process, list[str]]:
    """A world in which site a got epoch 7 at second 5. `epoch`: what is open there."""
    world, process, found = a_world(), Process("a.1"), list[str]()
    decisions = Decisions(world, found.append)
    decisions.given[7, "a"] = Given("a7", 5.0)
    DfsCalls(world, decisions, found.append)
    site: Any = SimpleNamespace(active_epoch=epoch)
    world.lives["a"] = Life(process, site)
    return world, process, found


def said(*calls: tuple[str, str] | str) -> list[str]:
    """Returns what is said of these calls of the DFS of site b, once epoch 7 was given."""
    world, process, found = a_looked_at()
    dfs = world.machines["b"].dfs
    world.loop.now_s = 6.0
    for call in calls:
        if isinstance(call, str):
            dfs.listed(process, LAYOUT.claims_folder, [])
        else:
            dfs.asked(process, *call)
    return [sentence.removeprefix("a.1 at the DFS of site b ") for sentence in found]


def test_who_claims_has_looked_before_and_looks_again() -> None:
    assert said(LOOK, ("create_file", CLAIM), LOOK, ("recover_lease", OLD)) == []
    assert said(("create_file", CLAIM)) == ["claims epoch 7, and has not looked for a higher claim since it got it."]
    assert said(LOOK, ("create_file", CLAIM), ("recover_lease", OLD)) == [
        f"closes {OLD} behind its claim {CLAIM}, and has not looked for a higher one."
    ]


def test_other_files_and_other_calls_are_not_claims() -> None:
    assert said(("create_file", f"{LAYOUT.register_folder}/7"), ("read", CLAIM), ("delete", CLAIM), ("is_closed", OLD)) == []


def test_a_recovery_that_has_begun_is_not_begun_again_and_again() -> None:
    world, process, found = a_looked_at()
    dfs = world.machines["b"].dfs
    for _ in range(RECOVERIES):
        dfs.recovers(process, OLD)
    assert found == []
    dfs.recovers(process, OLD)
    assert found == [f"a.1 had the DFS of site b recover the lease of {OLD} for the {RECOVERIES + 1}th time."]


def test_a_call_for_a_lease_that_fails_is_made_until_it_succeeds() -> None:
    """Seed 94005729: a fence asks for the lease of a segment as long as the DFS is cut off."""
    assert said(*[("recover_lease", OLD)] * 99) == []
    world, process, found = a_looked_at()
    dfs = world.machines["b"].dfs
    dfs.make(OLD, b"", closed=False)
    dfs.down = True
    client = dfs.client(process, "a", "b", world.network)

    async def asks() -> None:
        for number in range(2 * RECOVERIES + 2):
            dfs.down = number <= RECOVERIES
            with suppress(DfsError):
                await client.recover_lease(OLD)

    run(world.loop, asks())
    assert len(found) == 1


@pytest.mark.parametrize(("is_asked", "writer", "making", "is_wrong"), [
    (False, True, False, True), (False, False, True, True), (True, True, False, False), (False, False, False, False),
])
def test_a_file_that_the_caller_has_open_is_closed_by_its_writer(
    is_asked: bool, writer: bool, making: bool, is_wrong: bool
) -> None:
    """A degrade lets its writer go, and the trimmer closes what that has left open."""
    epoch = SimpleNamespace(remote=object() if writer else None, modes=SimpleNamespace(making_remote=making))
    world, process, found = a_looked_at(epoch)
    dfs = world.machines["b"].dfs
    file = dfs.make(OLD, b"", closed=False)
    dfs.opened(SimDfsWriter(dfs.client(process, "a", "b", world.network), OLD, file))
    file.is_asked = is_asked
    dfs.asked(process, "recover_lease", OLD)
    dfs.asked(Process("b.1"), "recover_lease", OLD)
    assert len(found) == is_wrong


@pytest.mark.parametrize(("segments", "path", "is_wrong"), [
    ([(0, 4, True), (5, 9, True)], OLD, False), ([(0, 4, True), (5, 9, True)], NEW, True),
    ([(0, 4, True), (5, 4, True)], OLD, True), ([(0, 4, True), (5, 4, True)], NEW, True),
    ([(0, 4, False), (5, 9, True)], OLD, True),
])
def test_a_writer_keeps_what_is_open_the_newest_and_the_newest_with_a_frame(
    segments: list[tuple[int, int, bool]], path: str, is_wrong: bool
) -> None:
    made = [
        SimpleNamespace(path=path, begun=True, first_seq=first, last_seq=last, closed=closed)
        for path, (first, last, closed) in zip((OLD, NEW), segments, strict=True)
    ]
    world, process, found = a_looked_at(SimpleNamespace(remote=SimpleNamespace(segments=made)))
    world.machines["b"].dfs.asked(process, "delete", path)
    assert found == [f"a.1 at the DFS of site b deletes {path}, which its writer needs."] * is_wrong
