"""An exception that nobody foresaw, anywhere in the write path: each request is answered honestly, and the site serves on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storage.invariants import InvariantBroken
from tests.pair.pair import Pair
from tests.pair.pair_rig import epoch, open_pair, put, rows, site
from twinlog.errors import OutcomeUnknown, TwinlogError, Unavailable

DEADLINE_S = 3.0
ERRORS = (OverflowError("planted"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "planted"), InvariantBroken("planted"))


def once(
    owner: object, name: str, error: BaseException, *, before: bool = True, when: Callable[..., bool] | None = None
) -> None:
    """Plants `error` in the next call of `owner.name` (for which `when` holds), in place of its work or behind it."""
    real = getattr(owner, name)
    armed = [True]

    def planted(*args: Any, **kwargs: Any) -> Any:
        fires = armed[0] and (when is None or when(*args))
        if not fires:
            return real(*args, **kwargs)
        armed[0] = False
        if not before:
            real(*args, **kwargs)
        raise error

    setattr(owner, name, planted)


def plant_hit(moment: str) -> Callable[[Pair, BaseException], None]:
    return lambda pair, error: once(epoch(pair, "a").commit, "_hit", error, when=lambda name: name == moment)


def plant_core(name: str) -> Callable[[Pair, BaseException], None]:
    return lambda pair, error: once(epoch(pair, "a").core, name, error)


def plant_remote(pair: Pair, error: BaseException) -> None:
    remote = epoch(pair, "a").commit.remote
    assert remote is not None
    once(remote, "submit", error)


# where it is planted, and what the requests may then be told
NOTHING_DONE: dict[str, Callable[[Pair, BaseException], None]] = {
    "the timestamp": lambda pair, error: once(site(pair, "a").parts.hybrid, "reserve", error),
    "making the frame": plant_core("make"),
}
UNKNOWN: dict[str, Callable[[Pair, BaseException], None]] = {
    "behind the frame's making": lambda pair, error: once(epoch(pair, "a").core, "make", error, before=False),
    "handing it to the WAL": lambda pair, error: once(site(pair, "a").parts.wal, "append", error),
    "handing it to the remote log": plant_remote,
    "the commit rule, local": plant_core("local_synced"),
    "the commit rule, remote": plant_core("remote_synced"),
    "the engine": lambda pair, error: once(site(pair, "a").parts.engine, "apply", error),
    "the catalog": lambda pair, error: once(epoch(pair, "a").commit, "_on_applied", error),
    **{moment: plant_hit(f"commit.{moment}") for moment in ("framed", "local_synced", "remote_synced", "committed", "applied")},
}
AFTER_THE_ANSWER: dict[str, Callable[[Pair, BaseException], None]] = {
    "acknowledged": plant_hit("commit.acknowledged"),
    "the release of what a request held": lambda pair, error: once(site(pair, "a").admission, "leave", error, before=False),
}


async def outcomes(pair: Pair) -> list[str]:
    """Writes at once, under keys and conditions of all kinds; each is answered."""
    writes = [put(pair, "a", key, "x", request=f"request-{key}", deadline_s=DEADLINE_S) for key in range(3)]
    writes += [put(pair, "a", key, "x", op="insert", deadline_s=DEADLINE_S) for key in range(3, 6)]
    ended = await asyncio.wait_for(asyncio.gather(*writes, return_exceptions=True), 120)
    for one in ended:
        assert not isinstance(one, BaseException) or isinstance(one, OutcomeUnknown | Unavailable), repr(one)
    return [type(one).__name__ for one in ended]


async def serves_again(pair: Pair) -> None:
    """Nothing that the requests held is held any more: the same keys and idempotency keys can be written."""
    async with asyncio.timeout(120):
        for key in range(6):
            while True:
                try:
                    await put(pair, "a", key, "y", request=f"again-{key}", deadline_s=1)
                    break
                except TwinlogError:
                    await asyncio.sleep(0.02)
        for key in range(3):
            await put(pair, "a", key, "x", request=f"request-{key}", deadline_s=1)
    assert site(pair, "a").admission.requests == 0
    assert (await rows(pair, "a")).keys() == set(range(6))


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("where", [*NOTHING_DONE, *UNKNOWN, *AFTER_THE_ANSWER])
async def test_no_request_is_stranded(tmp_path: Path, where: str, error: BaseException) -> None:
    async with open_pair(tmp_path, deadline_s=DEADLINE_S) as pair:
        number = epoch(pair, "a").epoch
        {**NOTHING_DONE, **UNKNOWN, **AFTER_THE_ANSWER}[where](pair, error)
        told = await outcomes(pair)
        if where in NOTHING_DONE:
            assert "Unavailable" in told, told
            assert "OutcomeUnknown" not in told
        elif where in UNKNOWN:
            assert "OutcomeUnknown" in told, told
        await serves_again(pair)
        assert (epoch(pair, "a").epoch == number) == (where in NOTHING_DONE), "the epoch ends where the state is not known"


async def test_an_append_that_is_cancelled_has_failed(tmp_path: Path) -> None:
    """By nobody that the write path knows: the frame would hold up every later one for ever."""
    async with open_pair(tmp_path, deadline_s=DEADLINE_S) as pair:
        wal = site(pair, "a").parts.wal
        real = wal.append

        def cancelled(frame: Any) -> asyncio.Future[None]:
            wal.append = real  # type: ignore[method-assign]
            appended = real(frame)
            appended.cancel()
            return appended

        wal.append = cancelled  # type: ignore[method-assign]
        assert "OutcomeUnknown" in await outcomes(pair)
        await serves_again(pair)


async def test_frames_that_could_not_be_sent_stay_in_front_of_what_comes_later(tmp_path: Path) -> None:
    """A later frame in the remote log would prove one that is not in it, and have it acknowledged as sync."""
    async with open_pair(tmp_path, deadline_s=DEADLINE_S) as pair:
        remote = epoch(pair, "a").commit.remote
        assert remote is not None
        once(remote, "_send", ERRORS[0])
        first = asyncio.ensure_future(put(pair, "a", 1, "the first one", deadline_s=DEADLINE_S))
        await asyncio.sleep(0)
        await put(pair, "a", 2, "the second one", deadline_s=DEADLINE_S)
        assert (await first).mode == "sync"
        there = b"".join(path.read_bytes() for path in files_below(tmp_path) if "dfs" in str(path))
        assert b"the first one" in there


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]
