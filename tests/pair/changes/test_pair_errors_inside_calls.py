"""An exception that nobody foresaw, raised by a part while the write path waits for it: each request is answered honestly and
in time, nothing that it held is held any more, and the site serves on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.pair.changes.test_pair_internal_errors import outcomes, serves_again
from tests.pair.pair import Pair
from tests.pair.pair_rig import caught_up, epoch, open_pair, put, rows, site
from twinlog.errors import DfsError

DEADLINE_S = 3.0
ERRORS = (
    RuntimeError("planted"), RecursionError("planted"), MemoryError("planted"),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "planted"), asyncio.CancelledError("planted"), ConnectionResetError("planted"),
)
Plant = Callable[[Pair, BaseException], list[str]]


def in_call(owner: object, name: str, error: BaseException, *, behind: bool) -> list[str]:
    """Raises `error` out of the next call of the coroutine `owner.name`, before its work or behind it, once it has waited.
    Returns the list to which the call is added."""
    real = getattr(owner, name)
    raised: list[str] = []

    async def planted(*args: Any, **kwargs: Any) -> Any:
        if raised:
            return await real(*args, **kwargs)
        raised.append(name)
        if behind:
            await real(*args, **kwargs)
        await asyncio.sleep(0)
        raise error

    setattr(owner, name, planted)
    return raised


def in_wal(pair: Pair, error: BaseException, *, behind: bool) -> list[str]:
    """In the append of the WAL's open file, on its way."""
    file = site(pair, "a").parts.wal._open.file  # type: ignore[union-attr]
    return _in_append(file, error, behind=behind)


def in_remote(pair: Pair, error: BaseException, *, behind: bool) -> list[str]:
    """In the append of the remote log's open file, on its way."""
    segment = epoch(pair, "a").commit.remote._segment  # type: ignore[union-attr]
    return _in_append(segment.writer, error, behind=behind)


def _in_append(file: Any, error: BaseException, *, behind: bool) -> list[str]:
    real, raised = file.append, []

    def planted(data: bytes) -> Any:
        if raised:
            return real(data)
        raised.append("append")
        appended = asyncio.ensure_future(real(data)) if behind else None

        async def fails() -> None:
            if appended is not None:
                await appended
            await asyncio.sleep(0)
            raise error

        return asyncio.ensure_future(fails())

    file.append = planted
    return raised


def of_engine(name: str, *, behind: bool) -> Plant:
    return lambda pair, error: in_call(site(pair, "a").parts.engine, name, error, behind=behind)


def _when(text: str, behind: bool) -> str:
    return f"{text}, behind its work" if behind else text


LOGGED: dict[str, Plant] = {}  # where a frame is on its way: the requests in it may be told that nobody knows
for _behind in (False, True):
    LOGGED[_when("the WAL", _behind)] = lambda pair, error, behind=_behind: in_wal(pair, error, behind=behind)
    LOGGED[_when("the remote log", _behind)] = lambda pair, error, behind=_behind: in_remote(pair, error, behind=behind)
    LOGGED[_when("the engine's apply", _behind)] = of_engine("apply", behind=_behind)
LOOKED_UP = {
    "the outcome of a request": "request_outcome",
    "the row of a condition": "get",
}


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("where", LOGGED)
async def test_no_request_is_stranded(tmp_path: Path, where: str, error: BaseException) -> None:
    async with open_pair(tmp_path, deadline_s=DEADLINE_S) as pair:
        raised = LOGGED[where](pair, error)
        await outcomes(pair)
        assert raised
        await serves_again(pair)
        assert site(pair, "a").rows.is_idle
        await pair.until(lambda: caught_up(pair, "a", "b"))
        assert await rows(pair, "a") == await rows(pair, "b")


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("where", LOOKED_UP)
async def test_a_lookup_that_fails_fails_its_own_request_and_no_other(tmp_path: Path, where: str, error: BaseException) -> None:
    async with open_pair(tmp_path, deadline_s=DEADLINE_S) as pair:
        await put(pair, "a", 1, "x")
        number = epoch(pair, "a").epoch
        raised = in_call(site(pair, "a").parts.engine, LOOKED_UP[where], error, behind=False)
        with pytest.raises(type(error)) as met:
            await put(pair, "a", 1, "y", op="update", request="r", deadline_s=DEADLINE_S)
        assert met.value is error
        assert raised
        await put(pair, "a", 1, "z", op="update", request="r", deadline_s=DEADLINE_S)
        assert site(pair, "a").rows.is_idle
        assert epoch(pair, "a").epoch == number
        assert (await rows(pair, "a"))[1] == "z"


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_the_remote_log_gets_its_new_segment_all_the_same(tmp_path: Path, error: BaseException) -> None:
    """The open segment fails, and then the making of the next one."""
    async with open_pair(tmp_path, deadline_s=DEADLINE_S) as pair:
        raised = in_call(site(pair, "a").parts.peer_dfs, "create", error, behind=False)
        in_remote(pair, DfsError("planted"), behind=False)
        await outcomes(pair)
        await serves_again(pair)
        assert raised
        assert (await put(pair, "a", 7, "x")).mode == "sync"


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
async def test_no_part_of_a_site_that_works_by_itself_ends_in_silence(tmp_path: Path, error: BaseException) -> None:
    """The shipper and what keeps the lease at the active, the look at the register and the housekeeping at both."""
    async with open_pair(tmp_path, deadline_s=DEADLINE_S) as pair:
        raised = [in_call(site(pair, "a").parts.peer_dfs, "list", error, behind=False)]
        for name in "ab":
            parts = site(pair, name).parts
            raised.append(in_call(parts.coordinator, "read", error, behind=False))
            raised.append(in_call(parts.engine, "flush", error, behind=False))
        raised.append(in_call(site(pair, "a").parts.transport, "call", error, behind=False))
        await pair.until(lambda: all(raised))
        for key in range(3):
            await put(pair, "a", key, "x")
        await pair.until(lambda: caught_up(pair, "a", "b"))
        tasks = [task for one in pair.running.values() for task in one.supervisor._tasks]
        tasks += epoch(pair, "a")._tasks.values()
        assert [task for task in tasks if task.cancelled()] == []
