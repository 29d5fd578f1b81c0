"""False answers of the old active in a switchover: none makes the new active open too early, and none leaves a pair without
one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.pair.pair import Pair
from tests.pair.pair_rig import caught_up, holds, open_pair, put, site

Change = Callable[[dict[str, Any]], dict[str, Any]]


def answers_falsely(pair: Pair, name: str, method: str, change: Change) -> None:
    """From here on, site `name` answers `method` with what `change` makes of its answer."""
    peer_api = pair.running[name].peer_api
    honest = peer_api.call_bytes

    async def call_bytes(called: str, body: bytes) -> bytes:
        answer = await honest(called, body)
        if called != method:
            return answer
        said = msgspec.msgpack.decode(answer)
        return msgspec.msgpack.encode({**said, **change(said)})

    peer_api.call_bytes = call_bytes  # type: ignore[method-assign]


# The active may write an empty record before it is drained. So the first lie is one below what was shipped, not below the end.
DRAINED: dict[str, tuple[Callable[[dict[str, Any], int], dict[str, Any]], str]] = {
    "before what was shipped": (lambda said, shipped: {"last_seq": shipped - 1}, "cannot be true: its log ends at sequence"),
    "far ahead": (lambda said, shipped: {"last_seq": 1 << 62}, "cannot be true: its log ends at sequence"),
    "in an older epoch": (lambda said, shipped: {"epoch": said["epoch"] - 1}, "cannot be true: its log ends at sequence"),
    "in a later epoch": (lambda said, shipped: {"epoch": said["epoch"] + 1}, "one of the two does not hold this pair's log"),
}


@pytest.mark.parametrize("lie", DRAINED)
async def test_a_drain_that_cannot_be_true_ends_the_switchover_and_writes_continue(tmp_path: Path, lie: str) -> None:
    change, why = DRAINED[lie]
    async with open_pair(tmp_path) as pair:
        await put(pair, "a", 1, "x")
        await pair.until(lambda: caught_up(pair, "a", "b"))
        shipped = site(pair, "b").parts.engine.applied.seq
        answers_falsely(pair, "a", "drain", lambda said: change(said, shipped))
        ended = await pair.operate("b", "switchover", "b")
        assert (ended.state, ended.error is not None and why in ended.error.message) == ("failed", True), ended
        await pair.until(lambda: pair.role("a") == "ACTIVE" and pair.role("b") == "STANDBY")
        await put(pair, "a", 2, "y")
        await pair.until(lambda: caught_up(pair, "a", "b"))
        assert await holds(pair, "b", {1: "x", 2: "y"})


STOPPED: dict[str, Change] = {
    "far ahead": lambda said: {"durable_seq": 1 << 62},
    "in an older epoch": lambda said: {"epoch": said["epoch"] - 1},
    "in a later epoch": lambda said: {"epoch": said["epoch"] + 1},
}


@pytest.mark.parametrize("lie", STOPPED)
async def test_an_end_that_cannot_be_true_counts_as_none_and_its_lease_is_waited_out(tmp_path: Path, lie: str) -> None:
    async with open_pair(tmp_path) as pair:
        await put(pair, "a", 1, "x")
        await pair.until(lambda: caught_up(pair, "a", "b"))
        answers_falsely(pair, "a", "step_down", STOPPED[lie])
        ended = await pair.operate("b", "switchover", "b")
        assert ended.state == "succeeded", ended
        step = next(step for step in ended.steps if step.name == "step_down")
        assert step.detail["confirmed"] is False
        assert "cannot be true" in step.detail["why"]
        await put(pair, "b", 2, "y")
        await pair.until(lambda: caught_up(pair, "b", "a"))
        assert await holds(pair, "a", {1: "x", 2: "y"})
