"""The harness looks whether its own event loop stands: a busy machine may hold up the clients for seconds.

What always holds: a standstill is recorded with its times, for the checkers, and reported in the run's notes; nothing else of
a run is judged by it. The loop is that of the clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from chaos.history.lines import Stood

LOOK_S = 0.1
SHORT_S = 0.5  # less is within every slack


async def keep(
    now_s: Callable[[], float], record: Callable[[Stood], None], note: Callable[[str], None],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Until it is cancelled."""
    while True:
        asked_s = now_s()
        await sleep(LOOK_S)
        stood_s = now_s() - asked_s - LOOK_S
        if stood_s > SHORT_S:
            record(Stood(asked_s + LOOK_S, now_s()))
            note(f"the harness itself stood for {stood_s:.1f} s: the machine does too much")
