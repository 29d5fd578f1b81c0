"""Limits of an identity: rates by the clock, requests at a time, and that one greedy client slows nobody else."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.access.gate import REFUSED_AT_ONCE_PER_S, REFUSED_LATE_S
from gateway.access.limits import IDENTITIES_MAX, Budget, Budgets, LimitSettings
from gateway.service.port import WriteRequest, WriteResult
from tests.gateway.access.rig import GuardedDoor, guarded_door
from tests.gateway.door_client import ROWS, problem
from twinlog.errors import Overloaded

ways = pytest.mark.parametrize("query", ["", "?versions=number"], ids=["hot", "plain"])


# ---- the budget itself
def let_in(budget: Budget, now_s: float, size_bytes: int = 0) -> bool:
    try:
        budget.enter(now_s, size_bytes)
    except Overloaded:
        return False
    budget.leave()
    return True


@given(st.integers(1, 50), st.lists(st.floats(0, 0.5), max_size=60))
def test_never_more_than_the_rate_and_one_burst(rate: int, steps: list[float]) -> None:
    budget, now_s, entered = Budget(LimitSettings(requests_per_s=rate), 0.0), 0.0, 0
    for step in steps:
        now_s += step
        entered += let_in(budget, now_s)
        assert entered <= rate + now_s * rate + 1e-6


@given(st.integers(1, 50), st.integers(0, 5000))
def test_whoever_waits_as_told_is_let_in(rate: int, size_bytes: int) -> None:
    budget, now_s = Budget(LimitSettings(requests_per_s=rate, bytes_per_s=100.0), 0.0), 0.0
    for _ in range(200):
        try:
            budget.enter(now_s, size_bytes)
            budget.leave()
        except Overloaded as error:
            wait_s = error.fields["retry_after_s"]
            assert isinstance(wait_s, float)
            assert wait_s > 0
            now_s += wait_s + 1e-6
            budget.enter(now_s, size_bytes)
            budget.leave()


def test_one_request_always_fits_and_is_paid_back() -> None:
    budget = Budget(LimitSettings(bytes_per_s=100.0), 0.0)
    assert let_in(budget, 0.0, 1000)
    assert not let_in(budget, 8.9)
    assert let_in(budget, 9.1)


def test_bytes_that_were_not_known_are_paid_back_too() -> None:
    budget = Budget(LimitSettings(bytes_per_s=100.0), 0.0)
    assert let_in(budget, 0.0)
    budget.spend(300)
    assert not let_in(budget, 1.0)
    assert let_in(budget, 2.1)


def test_without_limits_nothing_is_refused() -> None:
    budget = Budget(LimitSettings(), 0.0)
    assert all(let_in(budget, 0.0, 1 << 30) for _ in range(1000))


def test_a_clock_that_goes_back_gives_nothing() -> None:
    budget = Budget(LimitSettings(requests_per_s=1.0), 100.0)
    assert let_in(budget, 100.0)
    assert not let_in(budget, 50.0)
    assert not let_in(budget, 50.5)


def test_budgets_are_bounded_and_those_under_way_stay() -> None:
    budgets = Budgets(LimitSettings(concurrent=1))
    busy = budgets.of("token", "busy", 0.0)
    busy.enter(0.0, 0)
    for number in range(IDENTITIES_MAX + 10):
        budgets.of("oidc", f"n{number}", 0.0)
    assert len(budgets) == IDENTITIES_MAX
    assert budgets.of("token", "busy", 0.0) is busy


# ---- at a door
async def _put(door: GuardedDoor, who: str, query: str) -> httpx.Response:
    return await door.http.put(f"{ROWS}/UA,1{query}", json={}, headers=door.as_(who))


@ways
async def test_requests_a_second(query: str) -> None:
    async with guarded_door(LimitSettings(requests_per_s=3.0)) as door:
        assert [(await _put(door, "writer", query)).status_code for _ in range(3)] == [200, 200, 200]
        refused = await _put(door, "writer", query)
        found = problem(refused, 429, "overloaded", outcome="not_applied")
        assert refused.headers["retry-after"] == "1"
        assert 0 < found["retry_after_s"] <= 1 / 3
        assert (await _put(door, "both", query)).status_code == 200, "another identity"
        door.clock.s += 0.34
        assert (await _put(door, "writer", query)).status_code == 200
        assert (await _put(door, "writer", query)).status_code == 429
        for _ in range(20):
            assert (await door.http.get("/health/live", headers=door.as_("writer"))).status_code == 200


@ways
async def test_bytes_a_second(query: str) -> None:
    """Those of bodies and of answers."""
    async with guarded_door(LimitSettings(bytes_per_s=10_000.0)) as door:
        url = f"{ROWS}/UA,1{query}"
        long = {"note": "x" * 30_000}
        assert (await door.http.put(url, json=long, headers=door.as_("writer"))).status_code == 200
        refused = await _put(door, "writer", query)
        problem(refused, 429, "overloaded")
        assert refused.headers["retry-after"] in ("2", "3")
        for _ in range(2):  # the first one is proven the plain way
            assert (await door.http.get(url, headers=door.as_("reader"))).status_code == 200
            assert (await door.http.get(url, headers=door.as_("reader"))).status_code == 429
            door.clock.s += 3.1


async def test_a_body_in_chunks_is_counted_as_it_comes() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b'{"note": "' + b"x" * 30_000 + b'"}'

    async with guarded_door(LimitSettings(bytes_per_s=10_000.0)) as door:
        headers = {**door.as_("writer"), "content-type": "application/json"}
        assert (await door.http.put(f"{ROWS}/UA,1", content=chunks(), headers=headers)).status_code == 200
        problem(await _put(door, "writer", ""), 429, "overloaded")


def _held(door: GuardedDoor) -> tuple[asyncio.Event, Callable[[], int]]:
    """Writes to the key UA,1 wait for the event. And how many wait now."""
    free, waiting = asyncio.Event(), 0
    write: Callable[..., Awaitable[WriteResult]] = door.service.write

    async def slow(request: WriteRequest, deadline_s: float | None = None) -> WriteResult:
        nonlocal waiting
        waiting += 1
        await free.wait()
        return await write(request, deadline_s)

    door.service.write = slow  # type: ignore[method-assign]
    return free, lambda: waiting


@ways
async def test_a_greedy_client_slows_nobody_else(query: str) -> None:
    """Forty of its requests hang in the write path; four are let in, and another identity's pass at once."""
    async with guarded_door(LimitSettings(concurrent=4)) as door:
        for name in ("writer", "both"):
            await _put(door, name, query)
        free, waiting = _held(door)
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{door.port}", trust_env=False, timeout=None, limits=httpx.Limits(max_connections=40),
        ) as greedy:
            tasks = [
                asyncio.create_task(greedy.put(f"{ROWS}/UA,{n}{query}", json={}, headers=door.as_("writer"))) for n in range(40)
            ]
            async with asyncio.timeout(60):
                refused = [await one for one in itertools.islice(asyncio.as_completed(tasks), 36)]
            assert {answer.status_code for answer in refused} == {429}
            assert waiting() == 4
            for _ in range(10):
                assert (await door.http.get(f"{ROWS}/UA,1{query}", headers=door.as_("both"))).status_code == 200
            free.set()
            assert sorted([(await task).status_code for task in tasks]) == [200] * 4 + [429] * 36
            assert (await _put(door, "writer", query)).status_code == 200, "what ended is counted no more"


@ways
async def test_a_flood_of_refusals_is_answered_late(query: str) -> None:
    """Whoever asks again at once, whatever the answer, has at most one refusal a second on each connection."""
    late: list[float] = []

    async def sleep(delay_s: float) -> None:
        late.append(delay_s)

    async with guarded_door(LimitSettings(requests_per_s=1.0), sleep=sleep) as door:
        await _put(door, "both", query)
        for _ in range(REFUSED_AT_ONCE_PER_S + 3):
            await door.http.put(f"{ROWS}/UA,1{query}", json={})
        assert late == [REFUSED_LATE_S] * 3
        door.clock.s += 1
        assert (await _put(door, "both", query)).status_code == 200, "what is let in never waits"
        assert (await _put(door, "both", query)).status_code == 429
        assert len(late) == 3
