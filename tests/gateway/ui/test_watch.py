"""The watch: one look for all pages, none where nobody looks, and what it keeps of a site that is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NoReturn

import pytest
from msgspec.structs import replace

from gateway.access.caller import ANONYMOUS
from gateway.api.routes.streams import PING
from gateway.ui import live as live_room
from gateway.ui.drawing import Shared, frame_between
from gateway.ui.live import Live
from gateway.ui.looks import SiteLook
from gateway.ui.pages import Pages
from gateway.ui.watch import PairWatch
from storage.clock import SystemClock
from tests.gateway.dict_service import DictService
from tests.gateway.door_client import DoorClient
from tests.gateway.ui.ui_rig import look, operation, pair_seen
from twinlog.errors import PeerError


class _Counting:
    """Looks at the own site, counted."""

    def __init__(self, service: DictService) -> None:
        self.count = 0
        self._look = service.looks.now
        service.looks.now = self.now  # type: ignore[method-assign]

    def now(self) -> SiteLook:
        self.count += 1
        return self._look()


@pytest.fixture
async def watched() -> AsyncIterator[tuple[DictService, PairWatch, asyncio.Event]]:
    service, closing = DictService(), asyncio.Event()
    service.looks.cluster = look().cluster
    service.looks.other = look("b", "STANDBY")
    watch = PairWatch(service.ports, SystemClock(), closing)
    yield service, watch, closing
    closing.set()
    async for _ in watch.follow():
        pass
    left = [task for task in asyncio.all_tasks() if task.get_name().startswith("page:")]
    if left:
        await asyncio.wait(left, timeout=5)
    assert all(task.done() for task in left)


async def test_many_pages_cost_one_look(watched: tuple[DictService, PairWatch, asyncio.Event]) -> None:
    service, watch, _ = watched
    counting = _Counting(service)
    streams = [watch.follow() for _ in range(50)]
    first = await asyncio.gather(*(anext(stream) for stream in streams))
    second = await asyncio.gather(*(anext(stream) for stream in streams))
    assert len({id(seen) for seen in second}) == 1
    assert first[0].number < second[0].number
    assert counting.count <= 4  # and not one for each page
    for stream in streams:
        await stream.aclose()  # type: ignore[attr-defined]


async def test_both_sites_are_seen_and_the_lost_one_keeps_its_last_word(
    watched: tuple[DictService, PairWatch, asyncio.Event],
) -> None:
    service, watch, _ = watched
    seen = await watch.seen()
    assert seen.sides["b"].look is not None
    assert seen.advice is not None
    service.looks.other = DictService().looks.other
    stream = watch.follow()
    async with asyncio.timeout(10):
        async for seen in stream:
            if seen.sides["b"].look is None:
                break
    assert seen.sides["b"].error == "site b does not answer"
    assert seen.sides["b"].last is not None
    await stream.aclose()  # type: ignore[attr-defined]


async def test_a_fault_of_the_program_is_on_the_page_and_ends_nothing(
    watched: tuple[DictService, PairWatch, asyncio.Event], monkeypatch: pytest.MonkeyPatch,
) -> None:
    service, watch, _ = watched

    async def broken() -> SiteLook:
        raise RuntimeError("a slip")

    monkeypatch.setattr(service.looks, "other_now", broken)
    stream = watch.follow()
    async with asyncio.timeout(10):
        async for seen in stream:
            if seen.faults:
                break
    assert "a slip" in seen.faults[0]
    assert (await anext(stream)).number > seen.number
    await stream.aclose()  # type: ignore[attr-defined]


async def test_seconds_without_writes(watched: tuple[DictService, PairWatch, asyncio.Event]) -> None:
    service, watch, _ = watched
    assert (await watch.seen()).unwritten_s == 0
    service.looks.cluster = look("a", "DRAINING").cluster
    stream = watch.follow()
    async with asyncio.timeout(10):
        async for seen in stream:
            if seen.unwritten_s:
                break
    assert not seen.curve[-1].is_taken
    await stream.aclose()  # type: ignore[attr-defined]


async def test_time_in_which_nobody_looked_is_no_time_without_writes(
    watched: tuple[DictService, PairWatch, asyncio.Event], monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A page of the standby is opened, closed, and opened again later: the active took writes all the time."""
    service, watch, _ = watched
    service.looks.cluster, service.looks.other = look("a", "STANDBY").cluster, look("b", "ACTIVE")
    stream = watch.follow()
    async with asyncio.timeout(10):
        async for seen in stream:
            if len(seen.curve) >= 3:
                break
    assert all(point.is_taken is not False for point in seen.curve)
    await stream.aclose()  # type: ignore[attr-defined]
    with monkeypatch.context() as sooner:
        sooner.setattr("gateway.ui.watch.NEEDED_S", 0.0)
        await asyncio.wait([task for task in asyncio.all_tasks() if task.get_name().startswith("page:")], timeout=10)
    asked = asyncio.Event()

    async def later() -> SiteLook:
        await asked.wait()
        return look("b", "ACTIVE")

    monkeypatch.setattr(service.looks, "other_now", later)
    monkeypatch.setattr("gateway.ui.watch.OLD_S", 0.0)
    monkeypatch.setattr("gateway.ui.watch.FIRST_S", 0.1)
    seen = await watch.seen()
    assert [point.is_taken for point in seen.curve] == [None]
    assert seen.unwritten_s == 0
    asked.set()
    async with asyncio.timeout(10):
        async for seen in watch.follow():
            if len(seen.curve) >= 2:
                break
    assert all(point.is_taken is not False for point in seen.curve)


async def test_both_sites_are_shown_as_they_are_at_one_moment(watched: tuple[DictService, PairWatch, asyncio.Event]) -> None:
    """Else the standby seems to have committed more than the active. Here a sequence is a millisecond."""
    service, watch, _ = watched

    def own() -> SiteLook:
        return look("a", "STANDBY", committed_seq=int(1000 * SystemClock().monotonic_s()))

    async def other() -> SiteLook:
        return look("b", committed_seq=int(1000 * SystemClock().monotonic_s()))

    service.looks.now, service.looks.other_now = own, other  # type: ignore[method-assign]
    stream = watch.follow()
    apart = []
    for _ in range(6):
        seqs = [side.look.cluster.committed_seq for side in (await anext(stream)).sides.values() if side.look is not None]
        if len(seqs) == 2:
            apart.append(abs((seqs[0] or 0) - (seqs[1] or 0)))
    assert sorted(apart)[len(apart) // 2] < 300
    await stream.aclose()  # type: ignore[attr-defined]


async def test_the_operation_of_the_other_site_is_followed_too(
    watched: tuple[DictService, PairWatch, asyncio.Event],
) -> None:
    service, watch, _ = watched
    service.looks.other = replace(look("b", "SWITCHING"), operation=operation())
    stream = watch.follow()
    async with asyncio.timeout(10):
        async for seen in stream:
            if seen.operation is not None:
                break
    assert seen.operation is not None
    assert seen.operation[0] == "b"
    await stream.aclose()  # type: ignore[attr-defined]


def test_a_part_is_drawn_once_a_look_and_only_what_changed_is_sent() -> None:
    shared, drawn = Shared(), []

    def draw(seen: object) -> dict[str, str]:
        drawn.append(seen)
        return {"one": "same", "two": f"{len(drawn)}"}

    key = ("now", "", True, True)
    first = shared.draw(key, pair_seen(number=1), draw)
    assert shared.draw(key, pair_seen(number=1), draw) is first
    second = shared.draw(key, pair_seen(number=2), draw)
    assert len(drawn) == 2
    assert second.frame == frame_between(first.parts, second.parts) == b'event: page\ndata: {"two":"2"}\n\n'
    assert frame_between(second.parts, second.parts) == b""
    shared.draw(("change", "x", True, True), pair_seen(number=100), draw)
    assert shared.draw(key, pair_seen(number=101), draw).before == -1  # forgotten, as nobody asked for it


async def test_two_hundred_pages_share_one_drawing_and_one_frame_of_each_look(
    served: DoorClient, monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Counts work: each frame is one object, however many streams send it."""
    pages, drawn = _pages(served), list[str]()
    draw = live_room.regions
    monkeypatch.setattr(live_room, "regions", lambda name, values: drawn.append(name) or draw(name, values))
    streams = [Live(pages, ANONYMOUS, "", "now", "").follow() for _ in range(200)]
    looks: list[set[int]] = []
    kept: list[bytes] = []
    for number in range(4):
        served.service.looks.cluster = look(now_ms=1_700_000_000_000 + 1000 * number).cluster
        frames = await asyncio.gather(*(anext(stream) for stream in streams))
        kept += frames  # so that no two of them have one id
        looks.append({id(frame) for frame in frames})
    assert [len(one) for one in looks] == [1] * 4
    assert len(drawn) <= 8  # and not one for each page
    for stream in streams:
        await stream.aclose()


async def test_a_page_on_which_nothing_changes_gets_a_sign_of_life(
    served: DoorClient, monkeypatch: pytest.MonkeyPatch,
) -> None:
    pages = _pages(served)
    monkeypatch.setattr(live_room, "PING_S", 0.0)
    monkeypatch.setattr(live_room, "regions", lambda name, values: {"one": "same"})
    stream = Live(pages, ANONYMOUS, "", "now", "").follow()
    assert [await anext(stream), await anext(stream)] == [b'event: page\ndata: {"one":"same"}\n\n', PING]
    await stream.aclose()


async def test_no_page_waits_for_a_site_that_hangs(served: DoorClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts calls: whoever was silent a moment ago is not asked again by each view, and is not shown as it was long ago."""
    pages, asked = _pages(served), list[str]()
    assert (await pages.watch.seen()).silence == ""
    with monkeypatch.context() as long_ago:
        long_ago.setattr("gateway.ui.watch.NEEDED_S", -1.0)
        await asyncio.wait([task for task in asyncio.all_tasks() if task.get_name().startswith("page:")])
    looks = served.service.looks

    over = asyncio.Event()

    async def hang(*of: str) -> NoReturn:
        await over.wait()
        raise PeerError("it came to an end")

    def counted(*of: str) -> NoReturn:
        asked.append("a view")
        raise AssertionError

    for name in ("other_now", "other_view"):
        monkeypatch.setattr(looks, name, hang)
    for name in ("other_operations", "other_epochs", "other_logs", "other_checks"):
        monkeypatch.setattr(looks, name, counted)
    monkeypatch.setattr("gateway.ui.watch.FIRST_S", 0.05)
    monkeypatch.setattr("gateway.ui.watch.OLD_S", -1.0)
    assert (await pages.watch.seen()).silence == "site b has not answered yet"
    for path in ("/ui", "/ui/history", "/ui/log", "/ui/change?kind=switchover"):
        answer = await served.http.get(path, headers={"accept": "text/html"})
        assert "has not answered yet" in answer.text, path
    assert asked == []
    over.set()


def _pages(door: DoorClient) -> Pages:
    door.service.looks.cluster = look().cluster
    door.service.looks.other = look("b", "STANDBY")
    pages = door.app.context.pages
    assert pages is not None
    return pages
