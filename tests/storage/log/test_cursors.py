"""The cursor registry: what may be trimmed, and what is remembered."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.invariants import InvariantBroken, watched
from storage.log.cursors import CursorRegistry, Holder, HolderPosition
from tests.storage.disk.memory_files import MemoryFiles
from twinlog.errors import LogError, SyncFailed


async def registry_of(*names: str) -> CursorRegistry:
    registry = await CursorRegistry.open(MemoryFiles())
    for name in names:
        await registry.register("engine" if name == "engine" else "peer", name)
    return registry


async def test_the_slowest_blocking_holder_decides() -> None:
    registry = await registry_of("engine", "b")
    registry.advance("engine", 3, 70)
    assert registry.safepoint(3) == 0  # b is unknown
    registry.advance("b", 3, 50)
    assert registry.safepoint(3) == 50
    registry.advance("b", 3, 90)
    assert registry.safepoint(3) == 70
    registry.advance("engine", 3, 60)  # an engine that was replaced starts further back
    assert registry.safepoint(3) == 60


async def test_a_position_counts_only_in_its_own_epoch() -> None:
    registry = await registry_of("engine", "b")
    registry.advance("engine", 4, 70)
    registry.advance("b", 3, 70)
    assert registry.safepoint(4) == registry.safepoint(3) == 0
    registry.advance("b", 4, 65)
    assert registry.safepoint(4) == 65


async def test_nobody_at_all_means_that_nothing_is_trimmed() -> None:
    registry = await registry_of()
    assert registry.safepoint(1) == 0
    await registry.register("reader", "r", blocking=False)
    registry.advance("r", 1, 100)
    assert registry.safepoint(1) == 0


async def test_a_holder_that_does_not_block_is_only_listed() -> None:
    registry = await registry_of("engine")
    await registry.register("reader", "r", blocking=False)
    registry.advance("engine", 1, 40)
    registry.advance("r", 1, 10)
    assert registry.safepoint(1) == 40
    assert registry._positions == {"engine": HolderPosition(1, 40), "r": HolderPosition(1, 10)}


async def test_a_new_holder_blocks_until_it_is_heard_and_no_longer_than_it_is_there() -> None:
    registry = await registry_of("engine")
    registry.advance("engine", 1, 40)
    await registry.register("sink", "s")
    assert registry.safepoint(1) == 0
    await registry.remove("s")
    await registry.remove("never there")
    assert registry.safepoint(1) == 40
    registry.advance("s", 1, 5)  # a late word of one that is gone
    assert registry.safepoint(1) == 40


async def test_registering_again_keeps_the_position_unless_something_changed() -> None:
    registry = await registry_of("engine")
    registry.advance("engine", 1, 40)
    await registry.register("engine", "engine")
    assert registry.safepoint(1) == 40
    await registry.register("lease", "engine")
    assert registry.safepoint(1) == 0


async def test_holders_outlive_a_restart_and_positions_do_not() -> None:
    files = MemoryFiles()
    registry = await CursorRegistry.open(files)
    await registry.register("engine", "engine")
    await registry.register("peer", "b")
    await registry.register("reader", "r", blocking=False)
    await registry.remove("r")
    registry.advance("engine", 1, 40)
    registry.advance("b", 1, 40)
    again = await CursorRegistry.open(files)
    assert (sorted(again._holders), again._positions) == (["b", "engine"], {})
    assert again.safepoint(1) == 0


async def test_a_registration_that_is_not_durable_has_not_happened() -> None:
    files = MemoryFiles()
    registry = await CursorRegistry.open(files)
    await registry.register("engine", "engine")
    registry.advance("engine", 1, 40)
    files.full = True
    with pytest.raises(SyncFailed):
        await registry.register("peer", "b")
    with pytest.raises(SyncFailed):
        await registry.remove("engine")
    assert list(registry._holders) == ["engine"]
    assert registry.safepoint(1) == 40


async def test_a_registry_that_cannot_be_read_is_an_error_and_not_an_empty_one() -> None:
    files = MemoryFiles()
    await files.write_new("cursors/holders.json", b'[{"kind":')
    with pytest.raises(LogError, match=r"cursors/holders\.json is damaged"):
        await CursorRegistry.open(files)


async def test_registration_waits_for_a_trim_and_a_trim_for_registration() -> None:
    registry = await registry_of("engine")
    registry.advance("engine", 1, 40)
    async with registry.trimming(1) as safepoint:
        assert safepoint == 40
        late = asyncio.ensure_future(registry.register("sink", "s"))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not late.done()
    await late
    async with registry.trimming(1) as safepoint:
        assert safepoint == 0


POSITIONS = st.none() | st.tuples(st.integers(1, 2), st.integers(0, 99))


@given(st.dictionaries(st.sampled_from("abcde"), st.tuples(st.booleans(), POSITIONS)))
def test_the_safepoint_against_its_definition(wanted: dict[str, tuple[bool, tuple[int, int] | None]]) -> None:
    async def check() -> None:
        registry = await CursorRegistry.open(MemoryFiles())
        for name, (blocking, position) in wanted.items():
            await registry.register("peer", name, blocking=blocking)
            if position is not None:
                registry.advance(name, *position)
        safe = registry.safepoint(2)
        for blocking, position in wanted.values():
            assert not blocking or safe <= (position[1] if position and position[0] == 2 else 0)
        assert safe == 0 or any(blocking and position == (2, safe) for blocking, position in wanted.values())

    asyncio.run(check())


async def test_a_position_of_nobody_is_found() -> None:
    registry = await registry_of("engine")
    registry._positions["stranger"] = HolderPosition(1, 5)
    with watched() as broken, pytest.raises(InvariantBroken, match="only who is registered"):
        registry.advance("engine", 1, 4)
    assert len(broken) == 1


async def test_a_negative_position_is_found() -> None:
    registry = await registry_of("engine")
    with watched(), pytest.raises(InvariantBroken, match="below sequence 0"):
        registry.advance("engine", 1, -4)


async def test_a_safepoint_above_a_holder_is_found_before_anything_is_trimmed(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = await registry_of("engine", "b")
    registry.advance("engine", 3, 70)
    registry.advance("b", 2, 90)  # of another epoch: it counts as 0
    monkeypatch.setattr(CursorRegistry, "_counted", lambda self, holder, epoch: self._positions[holder.name].durable_seq)
    with watched(), pytest.raises(InvariantBroken, match="needs what is about to be trimmed up to 70"):
        async with registry.trimming(3):
            raise AssertionError("nothing may be trimmed")


async def test_a_registration_during_a_trim_is_found() -> None:
    registry = await registry_of("engine")
    registry.advance("engine", 3, 70)
    with watched(), pytest.raises(InvariantBroken, match="nobody registers"):
        async with registry.trimming(3):
            await registry._save({**registry._holders, "late": Holder("peer", "late")})  # past the lock


async def test_holders_are_found_by_their_kind() -> None:
    registry = await registry_of("engine", "b", "c")
    assert registry.of_kind("peer") == ["b", "c"]
    assert registry.of_kind("backup") == []


async def test_a_passing_holder_blocks_until_it_is_let_go_or_the_process_ends() -> None:
    files = MemoryFiles()
    registry = await CursorRegistry.open(files)
    await registry.register("engine", "engine")
    registry.advance("engine", 1, 40)
    assert await registry.register_passing("backup", "s")
    assert registry.safepoint(1) == 0  # it is unknown
    registry.advance("s", 1, 30)
    assert (registry.safepoint(1), registry.of_kind("backup"), registry.positions(1)["s"]) == (30, ["s"], 30)
    assert (await CursorRegistry.open(files)).of_kind("backup") == []
    async with registry.trimming(1) as safepoint:  # who goes meanwhile harms nobody
        registry.let_go("s")
        assert safepoint == 30
    assert (registry.safepoint(1), registry.of_kind("backup"), list(registry.positions(1))) == (40, [], ["engine"])
    registry.let_go("engine")
    assert registry.of_kind("engine") == ["engine"]


async def test_a_passing_holder_is_registered_for_good_with_its_position() -> None:
    files = MemoryFiles()
    registry = await CursorRegistry.open(files)
    await registry.register_passing("backup", "s")
    registry.advance("s", 1, 30)
    await registry.register("backup", "s")
    assert not await registry.register_passing("backup", "s")
    registry.let_go("s")
    assert registry.safepoint(1) == 30
    assert (await CursorRegistry.open(files)).of_kind("backup") == ["s"]
    await registry.remove("s")
    await registry.register_passing("backup", "s")
    await registry.remove("s")
    assert registry.of_kind("backup") == []
