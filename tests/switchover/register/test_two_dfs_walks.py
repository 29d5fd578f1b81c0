"""Random walks of two gateways on the register, their ways to the two DFSs cut and mended at random between any two calls.

Changes run at the same time, each DFS call a step of its own. What must hold is said in `Walk`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from switchover.register.homes import rank
from switchover.register.port import PairState, update
from switchover.register.transitions import abandon_plan, begin_plan, downgrade, open_plan, resync
from tests.switchover.register.register_world import OTHER, RegisterWorld
from twinlog.errors import TwinlogError

Change = Callable[[PairState | None], PairState]
WAYS = [(site, dfs) for site in OTHER for dfs in OTHER]
KINDS = ("begin", "open", "abandon", "downgrade", "resync", "read", "force", "restart")

step = st.tuples(
    st.sampled_from(sorted(OTHER)), st.sampled_from(KINDS), st.integers(0, 12), st.lists(st.sampled_from(WAYS), max_size=3)
)
rounds = st.lists(st.lists(step, min_size=1, max_size=3), max_size=12)


class Walk:
    """These must hold: of all changes to one value exactly one succeeds; an epoch belongs to one plan, and opens once; a look
    that began after another one, or a change, had ended never tells an older value; once all ways are open both sites tell one
    value, and none that was told before ranks above it. With `forced` commands the third holds no longer while a way is cut."""

    def __init__(self, *, forced: bool) -> None:
        self.world, self.forced = RegisterWorld(), forced
        self.plans = Counter[str]()
        self.followed: set[tuple[object, ...]] = set()
        self.epochs: dict[int, str] = {}
        self.opened: dict[int, str] = {}
        self.told: PairState | None = None  # the highest value told

    def change(self, site: str, kind: str) -> Change:
        plan = f"{site}{self.plans[site]}"
        if kind == "begin":
            self.plans[site] += 1
            plan = f"{site}{self.plans[site]}"

        def made(now: PairState | None) -> PairState:
            if kind == "begin":
                active = now.active if now is not None else None
                what = "bootstrap" if active is None else "restart" if active == site else "takeover"
                return begin_plan(now, plan, site, what, 1, supersede=True, accept_data_loss=True)
            if kind == "open":
                return open_plan(now, plan, "async" if now is not None and now.mode == "async" else "sync", 7)
            if kind == "abandon":
                return abandon_plan(now, plan)
            epoch = now.epoch if now is not None else 0
            return downgrade(now, site, epoch, 5) if kind in ("downgrade", "force") else resync(now, site, epoch)

        return made

    async def do(self, site: str, kind: str, pause: int) -> None:
        for _ in range(pause):
            await asyncio.sleep(0)
        door, told = self.world.doors[site], self.told
        if kind == "restart":
            self.world.doors[site] = self.world.door(site)
            return
        try:
            if kind == "read":
                value = await door.read()
            elif kind == "force" and self.forced:
                value = await door.force(self.change(site, kind))
            else:
                value = await update(door, self.noting(self.change(site, kind)))
        except TwinlogError:
            return
        if not self.forced:
            assert rank(value) >= rank(told), "a value older than what had been told"
        self.note(value)

    def noting(self, change: Change) -> Change:
        def made(now: PairState | None) -> PairState:
            self.note(now)
            return change(now)

        return made

    def note(self, value: PairState | None) -> None:
        if value is None:
            return
        if value.switching is not None:
            assert self.epochs.setdefault(value.switching.epoch, value.switching.plan_id) == value.switching.plan_id
        assert self.opened.setdefault(value.epoch, value.opened_by or "") == (value.opened_by or "")
        if rank(value) > rank(self.told):
            self.told = value

    async def end(self) -> None:
        for way in self.world.ways.values():
            way.down = False
        one, other = await self.world.doors["a"].read(), await self.world.doors["b"].read()
        assert one == other
        assert rank(one) >= rank(self.told)
        self.note(one)


def watched(walk: Walk) -> None:
    """Each change that a door confirms has a predecessor of its own."""
    for door in walk.world.doors.values():
        compare_and_set = door.compare_and_set

        async def judged(expected: PairState | None, new: PairState, cas: Callable[..., object] = compare_and_set) -> PairState:
            value: PairState = await cas(expected, new)  # type: ignore[misc]
            key = (value.state_id, value.home_forced, new.home)
            assert key not in walk.followed, f"two changes to one value: {key}"
            walk.followed.add(key)
            return value

        door.compare_and_set = judged  # type: ignore[method-assign]


async def walked(plan: list[list[tuple[str, str, int, list[tuple[str, str]]]]], *, forced: bool) -> None:
    walk = Walk(forced=forced)
    watched(walk)
    await walk.world.open_at_a()
    for together in plan:
        for way, dfs in walk.world.ways.items():
            dfs.down = any(way in cuts for _, _, _, cuts in together)
        await asyncio.gather(*(walk.do(site, kind, pause) for site, kind, pause, _ in together))
    await walk.end()


@settings(max_examples=300, deadline=None)
@given(rounds)
def test_walks(plan: list[list[tuple[str, str, int, list[tuple[str, str]]]]]) -> None:
    asyncio.run(walked(plan, forced=False))


@settings(max_examples=300, deadline=None)
@given(rounds)
def test_walks_with_forced_commands(plan: list[list[tuple[str, str, int, list[tuple[str, str]]]]]) -> None:
    asyncio.run(walked(plan, forced=True))
