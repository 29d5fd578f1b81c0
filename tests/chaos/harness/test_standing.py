"""The harness notices when its own event loop stands, and nothing else."""

from __future__ import annotations

import asyncio
import contextlib

from chaos.harness import standing
from chaos.history.lines import Stood


async def kept(*slept_s: float) -> tuple[list[Stood], list[str]]:
    """Returns what is recorded while each sleep takes so long, by a clock of its own."""
    now_s, sleeps = [0.0], iter(slept_s)
    recorded: list[Stood] = []
    noted: list[str] = []

    async def sleep(asked_s: float) -> None:
        if (taken_s := next(sleeps, None)) is None:
            raise asyncio.CancelledError
        now_s[0] += taken_s

    with contextlib.suppress(asyncio.CancelledError):
        await standing.keep(lambda: now_s[0], recorded.append, noted.append, sleep)
    return recorded, noted


async def test_a_standstill_is_recorded_with_its_times_and_told() -> None:
    recorded, noted = await kept(0.1, 3.6, 0.1)
    assert [(round(one.from_s, 3), round(one.until_s, 3)) for one in recorded] == [(0.2, 3.7)]
    assert noted == ["the harness itself stood for 3.5 s: the machine does too much"]


async def test_a_short_one_is_not() -> None:
    assert await kept(0.1, 0.55, 0.3) == ([], [])
