"""A site's door that remembers: what went back, to any earlier value at any time, is given to nobody who knew more."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchover.register.port import Beat, PairState, pair_begun_by, read_or_known, update
from switchover.register.remembering import PATH, RememberingCoordinator, last_met
from switchover.register.transitions import abandon_plan, begin_plan, downgrade, open_plan, resync
from switchover.register.went_back import same_facts
from tests.storage.disk.memory_files import MemoryFiles
from tests.switchover.register.memory_coordinator import MemoryCoordinator, MemoryRegister
from twinlog.errors import DamagedLog, RegisterWentBack, TwinlogError

BEAT = Beat(10, 1, 1.0)


class Sites:
    """Two sites at one register, whose history goes back with it."""

    def __init__(self) -> None:
        self.register = MemoryRegister()
        self.files = {"a": MemoryFiles(), "b": MemoryFiles()}
        self.plans = 0

    async def door(self, site: str) -> RememberingCoordinator:
        """A new process of `site`."""
        met = await last_met(self.files[site])
        return RememberingCoordinator(MemoryCoordinator(self.register, site), site, self.files[site], met)

    async def change(self, site: str, change: Callable[[PairState | None], PairState]) -> PairState:
        return await update(await self.door(site), change)

    async def open(self, site: str, kind: str, mode: str = "sync") -> PairState:
        self.plans += 1
        plan = f"p{self.plans}"
        await self.change(site, lambda state: begin_plan(
            state, plan, site, kind, 1, supersede=True, accept_data_loss=True, pair=pair_begun_by(plan)))
        return await self.change(site, lambda state: open_plan(state, plan, mode, 5))  # type: ignore[arg-type]


async def test_an_older_value_is_given_to_nobody_who_has_met_a_later_one() -> None:
    sites = Sites()
    await sites.open("a", "bootstrap")
    saved = list(sites.register.history)
    await sites.open("b", "takeover")
    await (await sites.door("a")).read()
    sites.register.history[:] = saved
    for site in "ab":
        door = await sites.door(site)
        with pytest.raises(RegisterWentBack, match=r"it is at 2 \(epoch 1\), this site has met 4 \(epoch 2\)"):
            await door.read()
        assert door.finding is not None
        with pytest.raises(RegisterWentBack):
            await door.force(lambda state: downgrade(state, "a", 1, 5))
        with pytest.raises(RegisterWentBack):
            await update(door, lambda state: begin_plan(state, "p9", "a", "restart", 1))
        assert await read_or_known(door) is None
    assert sites.register.history == saved
    sites.register.history.append(saved[-1])
    with pytest.raises(RegisterWentBack):
        await (await sites.door("a")).read()


async def test_who_has_met_nothing_later_goes_on_and_the_other_one_sees_that_its_value_is_not_in_the_history() -> None:
    sites = Sites()
    await sites.open("a", "bootstrap")
    await (await sites.door("b")).read()
    saved = list(sites.register.history)
    await sites.change("a", lambda state: downgrade(state, "a", 1, 5))
    sites.register.history[:] = saved
    value = await sites.open("b", "takeover")
    assert value.state_id > 3
    with pytest.raises(RegisterWentBack, match="its history does not hold 3"):
        await (await sites.door("a")).read()


async def test_the_beats_of_a_register_that_went_back_prove_no_lease() -> None:
    sites = Sites()
    await sites.open("a", "bootstrap")
    saved = list(sites.register.history)
    await sites.change("a", lambda state: downgrade(state, "a", 1, 5))
    door = await sites.door("a")
    await door.renew("a", 1, BEAT)
    sites.register.history[:] = saved
    with pytest.raises(RegisterWentBack):
        await door.renew("a", 1, BEAT)


async def test_an_epoch_that_was_never_given_away_says_that_it_went_back() -> None:
    sites = Sites()
    await sites.open("a", "bootstrap")
    door = await sites.door("b")
    door.know(1)
    await door.read()
    door.know(7)
    with pytest.raises(RegisterWentBack, match="never gave away epoch 7"):
        await door.read()
    assert door.met_epoch == 7


async def test_the_command_that_begins_anew_gets_past_it_and_the_other_site_follows() -> None:
    sites = Sites()
    await sites.open("a", "bootstrap")
    saved = list(sites.register.history)
    await sites.open("b", "takeover")
    await (await sites.door("a")).read()
    sites.register.history[:] = saved
    door = await sites.door("b")
    met = door.met_epoch

    def anew(state: PairState | None) -> PairState:
        return begin_plan(
            state, "p9", "b", "bootstrap", 1, supersede=True, accept_data_loss=True, highest_claim=met, lost_epoch=met,
            epoch_step=1000,
        )

    began = await door.force(anew)
    assert (began.active, began.epoch, began.anew_epoch) == (None, 2, 1002)
    assert await (await sites.door("a")).read() == began
    assert await door.read() == began


async def test_another_site_that_has_met_more_is_believed_by_command_only() -> None:
    sites = Sites()
    await sites.open("a", "bootstrap")
    door = await sites.door("a")
    await door.read()
    door.doubt("site b says so", 9)
    with pytest.raises(RegisterWentBack, match="site b says so"):
        await door.read()


async def test_a_damaged_memory_is_not_taken_for_none() -> None:
    files = MemoryFiles()
    await files.write_new(PATH, b"{}")
    with pytest.raises(DamagedLog, match="delete this file"):
        await last_met(files)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(
    ["look", "look", "begin", "open", "abandon", "downgrade", "resync", "beat", "back"])), max_size=40), st.integers(0, 99))
async def test_nobody_ever_gets_less_than_it_knew(steps: list[tuple[str, str]], back: int) -> None:
    """Whoever gets a value has met nothing that this value's own history does not hold."""
    sites = Sites()
    moments: list[list[PairState]] = []
    met: dict[str, PairState | None] = {"a": None, "b": None}
    for number, (site, what) in enumerate(steps):
        moments.append(list(sites.register.history))
        if what == "back":
            earlier = moments[(back * (number + 1)) % len(moments)]
            sites.register.history[:] = earlier or sites.register.history  # one that is empty is lost: lost_value.py
            continue
        door = await sites.door(site)
        try:
            if what == "beat":
                got: PairState | None = await door.renew(site, 1, BEAT)
            elif what == "look":
                got = await door.read()
            else:
                got = await update(door, _change(what, site, f"p{number}"))
        except TwinlogError:
            continue
        known, history = met[site], sites.register.history
        if known is not None and got is not None:
            assert any(same_facts(value, known) for value in history), (site, known, history)
        met[site] = got or known


def _change(what: str, site: str, plan: str) -> Callable[[PairState | None], PairState]:
    def change(state: PairState | None) -> PairState:
        running = state.switching.plan_id if state is not None and state.switching is not None else "none"
        epoch = state.epoch if state is not None else 0
        if what == "begin":
            kind = "bootstrap" if state is None or state.active is None else "restart" if state.active == site else "takeover"
            return begin_plan(state, plan, site, kind, 1)
        if what == "open":
            return open_plan(state, running, "sync", 5)
        if what == "abandon":
            return abandon_plan(state, running)
        return downgrade(state, site, epoch, 5) if what == "downgrade" else resync(state, site, epoch)

    return change


async def test_the_register_of_another_pair_of_this_name_is_given_to_nobody() -> None:
    """It may be further than ours, and its epochs grow as ours do: only its identity says it."""
    ours, theirs = Sites(), Sites()
    theirs.plans = 10  # no plan id is ever given twice
    mine = await ours.open("a", "bootstrap")
    for kind, site in (("bootstrap", "a"), ("takeover", "b"), ("takeover", "a")):
        other = await theirs.open(site, kind)
    assert mine.pair != other.pair
    saved = list(ours.register.history)
    ours.register.history[:] = theirs.register.history
    door = await ours.door("a")
    said = f"another pair, {other.pair}, and this site belongs to pair {mine.pair}; correct coordinator.url"
    with pytest.raises(RegisterWentBack, match=said):
        await door.read()
    assert door.finding is not None
    with pytest.raises(RegisterWentBack, match=said):  # by an operator's command, with whatever loss accepted
        await door.force(lambda state: begin_plan(
            state, "p9", "a", "bootstrap", 1, accept_data_loss=True, highest_claim=50, pair=door.met_pair))
    assert ours.register.history == theirs.register.history, "the other pair keeps its register"
    ours.register.history[:] = saved
    assert await door.read() == saved[-1]


async def test_a_pair_that_begins_anew_keeps_its_identity() -> None:
    sites = Sites()
    begun = await sites.open("a", "bootstrap")
    sites.register.history.clear()
    door = await sites.door("a")
    assert door.met_pair == begun.pair
    anew = await door.force(lambda state: begin_plan(
        state, "p9", "a", "bootstrap", 1, accept_data_loss=True, highest_claim=5, pair=door.met_pair))
    assert anew.pair == begun.pair
