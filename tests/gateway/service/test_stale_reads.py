"""Stale reads of a standby: the age in `Twinlog-Stale` is that of the rows in the answer, and never too small."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import msgspec
import pytest

from tests.gateway.dict_service import ACTIVE
from tests.gateway.door_client import ROWS, DoorClient, problem

ARROW, NDJSON = "application/vnd.apache.arrow.stream", "application/x-ndjson"
AGE = "twinlog-stale"


async def _standby(door: DoorClient, rows: int = 5) -> None:
    """Its storage is of 0.25 s ago."""
    for flight in range(rows):
        await door.put(f"UA,{flight}", {})
    door.service.role_now, door.service.vouched = "STANDBY", door.service.now_s - 0.25


def _meanwhile(door: DoorClient, monkeypatch: pytest.MonkeyPatch, method: str, change: Callable[[], object]) -> None:
    """`change` happens in the storage's first answer to `method`, right behind the reading of it."""
    real: Callable[..., Awaitable[Any]] = getattr(door.service.engine, method)

    async def changed(*arguments: Any, **more: Any) -> Any:
        found = await real(*arguments, **more)
        monkeypatch.setattr(door.service.engine, method, real)
        change()
        return found

    monkeypatch.setattr(door.service.engine, method, changed)


async def test_a_standby_reads_only_on_request_and_says_so(door: DoorClient) -> None:
    await door.put("UA,1", {})
    fresh = await door.http.get(f"{ROWS}/UA,1?stale=true")
    assert AGE not in fresh.headers
    await _standby(door)
    problem(await door.http.get(f"{ROWS}/UA,1"), 421, "not-active", active=ACTIVE)
    stale = await door.http.get(f"{ROWS}/UA,1?stale=true")
    assert (stale.status_code, stale.headers[AGE]) == (200, "0.250")
    door.service.vouched = None
    assert (await door.http.get(f"{ROWS}/UA,1?stale=true")).headers[AGE] == "unknown"


@pytest.mark.parametrize("headers", [{}, {"if-match": '"1"'}], ids=["absent", "at another version"])
async def test_also_an_answer_without_a_row_says_how_old_it_is(plain: DoorClient, headers: dict[str, str]) -> None:
    """The active may have the row by now."""
    await _standby(plain)
    key, status = ("UA,0", 412) if headers else ("UA,77", 404)
    answer = await plain.http.get(f"{ROWS}/{key}?stale=true", headers=headers)
    assert (answer.status_code, answer.headers.get(AGE)) == (status, "0.250")


@pytest.mark.parametrize(("path", "method"), [(f"{ROWS}/UA,1", "get"), (ROWS, "scan")])
async def test_the_time_that_a_read_takes_is_in_its_age(
    plain: DoorClient, path: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The storage is of a later moment by the time of the answer, and the row is not."""
    await _standby(plain)

    def pass_time() -> None:
        plain.service.now_s += 2
        plain.service.vouched = plain.service.now_s

    _meanwhile(plain, monkeypatch, method, pass_time)
    assert (await plain.http.get(path, params={"stale": "true"})).headers[AGE] == "2.250"


@pytest.mark.parametrize(("path", "method"), [(f"{ROWS}/UA,1", "get"), (ROWS, "scan")])
async def test_a_storage_that_was_opened_anew_under_a_read_has_no_known_age(
    plain: DoorClient, path: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may hold less than it did, until the active vouches again."""
    await _standby(plain)
    _meanwhile(plain, monkeypatch, method, lambda: setattr(plain.service, "vouched", None))
    assert (await plain.http.get(path, params={"stale": "true"})).headers[AGE] == "unknown"


async def _snapshot_page(door: DoorClient, **more: str) -> httpx.Response:
    answer = await door.http.get(ROWS, params={"stale": "true", "snapshot": "true", "limit": 2, **more})
    assert answer.status_code == 200, answer.text
    return answer


async def test_a_later_page_of_a_snapshot_is_as_old_as_the_snapshot(plain: DoorClient) -> None:
    """The standby goes on following meanwhile, and the snapshot does not."""
    await _standby(plain)
    page = await _snapshot_page(plain)
    assert page.headers[AGE] == "0.250"
    for age in ("30.250", "60.250"):
        plain.service.now_s += 30
        plain.service.vouched = plain.service.now_s - 0.1
        page = await _snapshot_page(plain, page_token=page.json()["next_page_token"])
        assert page.headers[AGE] == age
    assert page.json()["next_page_token"] is None


async def test_a_snapshot_of_an_unknown_moment_stays_so_and_one_of_a_known_moment_too(plain: DoorClient) -> None:
    await _standby(plain)
    known = await _snapshot_page(plain)
    plain.service.vouched = None
    unknown = await _snapshot_page(plain)
    later = await _snapshot_page(plain, page_token=known.json()["next_page_token"])
    assert later.headers[AGE] == "0.250", "the snapshot has not changed"
    plain.service.vouched = plain.service.now_s
    later = await _snapshot_page(plain, page_token=unknown.json()["next_page_token"])
    assert (unknown.headers[AGE], later.headers[AGE]) == ("unknown", "unknown")


@pytest.mark.parametrize("kind", ["application/json", NDJSON, ARROW])
async def test_what_begins_without_an_age_reads_nothing_from_a_standby(
    served: DoorClient, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The active becomes a standby between two pieces of a scan: the other site may have changed the rows that are left."""
    await _standby(served)
    served.service.role_now = "ACTIVE"
    monkeypatch.setattr("gateway.api.scans.FIRST_CHUNK_ROWS", 2)
    monkeypatch.setattr("gateway.api.scans.CHUNK_ROWS_MAX", 2)
    _meanwhile(served, monkeypatch, "scan", lambda: setattr(served.service, "role_now", "STANDBY"))
    ask = served.http.get(ROWS, params={"stale": "true"}, headers={"accept": kind})
    if kind == "application/json":
        problem(await ask, 421, "not-active", active=ACTIVE)
    else:
        with pytest.raises(httpx.RemoteProtocolError):
            await ask


@pytest.mark.parametrize("moment", [float("nan"), float("inf"), -float("inf")])
async def test_a_token_whose_moment_is_no_time_is_refused(plain: DoorClient, moment: float) -> None:
    await _standby(plain)
    token = (await _snapshot_page(plain)).json()["next_page_token"]
    *place, _ = msgspec.msgpack.decode(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
    forged = base64.urlsafe_b64encode(msgspec.msgpack.encode([*place, moment])).decode().rstrip("=")
    query = {"stale": "true", "snapshot": "true", "limit": 2, "page_token": forged}
    problem(await plain.http.get(ROWS, params=query), 422, "invalid-input", parameter="page_token")
