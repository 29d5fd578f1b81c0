"""The rows' service by itself: what one request holds, and what waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gateway.service.port import Mutation, WriteRequest
from gateway.service.receipts import Receipt, decode_receipt
from gateway.service.rows import Holds, RowsService, to_records
from storage.clock import SystemClock
from storage.engine import RequestOutcome
from storage.log.record import RequestMark
from tests.gateway.dict_service import DictService
from tests.remote_log.writing.remote_rig import turns
from twinlog.errors import InvalidInput, Unavailable


def rows_of(site: DictService, *, mode: str = "sync", valid: Callable[[], bool] = lambda: True) -> RowsService:
    """Rows of an active in that mode, whose lease is `valid`; its epoch logs nothing."""
    lease: Any = SimpleNamespace(valid_at=lambda now_s: valid())
    epoch: Any = SimpleNamespace(lease=lease, core=SimpleNamespace(mode=SimpleNamespace(label=mode)))
    serving: Any = SimpleNamespace(for_writes=lambda: epoch, for_reads=lambda: epoch)
    admission: Any = SimpleNamespace(requests=0)
    return RowsService(
        serving, site.catalog, admission, engine=site.engine, clock=SystemClock(), deadline_s=60.0, new_id=lambda: "id"
    )


async def test_a_recorded_answer_is_looked_for_once_the_request_under_way_has_its_fate() -> None:
    """Its table has changed since, so it cannot be read any more as it was: "nothing was applied" would be false."""
    site, asked = DictService(), list[str]()
    rows = rows_of(site)

    async def request_outcome(key: str) -> None:
        asked.append(key)

    site.engine.request_outcome = request_outcome  # type: ignore[method-assign]
    holds = Holds()
    await rows._take_request("key", rows._clock.monotonic_s() + 60.0, holds)
    looking = asyncio.ensure_future(rows.recorded("key", b"digest"))
    await turns(20)
    assert asked == []
    holds.release_all()
    assert await looking is None
    assert asked == ["key"]


def test_a_release_that_fails_keeps_no_other() -> None:
    released: list[str] = []

    def fails() -> None:
        raise RuntimeError("planted")

    holds = Holds()
    for release in (lambda: released.append("first"), fails, lambda: released.append("last")):
        holds.add(release)
    with pytest.raises(RuntimeError, match="planted"):
        holds.release_all()
    assert released == ["last", "first"]
    holds.release_all()
    assert released == ["last", "first"]


@pytest.mark.parametrize(("was_async", "mode", "said"), [
    (False, "sync", "sync"), (True, "sync", "async"), (False, "async", "async"), (True, "async", "async"),
])
async def test_a_recorded_answer_is_of_the_very_request_and_as_weak_as_the_weaker_mode(
    was_async: bool, mode: str, said: str
) -> None:
    site = DictService()

    async def request_outcome(key: str) -> RequestOutcome:
        return RequestOutcome(b"digest", 3, 40, 7000, 2, was_async)

    site.engine.request_outcome = request_outcome  # type: ignore[method-assign]
    rows = rows_of(site, mode=mode)
    found = await rows.recorded("key", b"digest")
    assert found is not None
    assert (found.version, found.mode, found.count) == (7000, said, 2)
    assert decode_receipt(found.receipt) == Receipt(0, 3, 40, said)
    with pytest.raises(InvalidInput, match="was used for a different request"):
        await rows.recorded("key", b"another digest")


def test_the_mark_of_a_request_counts_its_records() -> None:
    mutations = [Mutation("upsert", b"%d" % n, b"v") for n in range(3)]
    table: Any = SimpleNamespace(id=7)
    records = to_records(WriteRequest(table, mutations, (), "key", b"digest"))
    assert [record.request != b"" for record in records] == [True, False, False]
    assert msgspec.msgpack.decode(records[0].request, type=RequestMark) == RequestMark("key", b"digest", 3)


async def test_a_read_whose_lease_runs_out_while_the_storage_answers_is_not_answered() -> None:
    """By then another site may be the active, and the row another one."""
    site = DictService()
    table, _ = await site.tables.create({"name": "t", "columns": [{"name": "k", "type": "int64"}], "primary_key": ["k"]})
    valid = iter([True, False])
    with pytest.raises(Unavailable, match="ran out during the read"):
        await rows_of(site, valid=lambda: next(valid)).read(table, b"k")
    assert await rows_of(site).read(table, b"k") is None
