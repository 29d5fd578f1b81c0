"""Guards that a wait for the end of tasks ends when they have, and hides nothing that they leave to others."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

from storage.cancellation import ended


async def test_it_waits_for_each_of_them_however_it_ends() -> None:
    async def slow_to_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ends.append("cancelled")

    async def fails() -> None:
        await asyncio.sleep(0)
        ends.append("failed")
        raise ValueError

    ends: list[str] = []
    never_retrieved: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: never_retrieved.append(context))
    tasks = [loop.create_task(slow_to_end()), loop.create_task(fails())]
    await asyncio.sleep(0)
    tasks[0].cancel()
    await ended(tasks)
    assert sorted(ends) == ["cancelled", "failed"]
    await ended(tasks)  # of tasks that have ended, too
    await ended([])
    del tasks
    gc.collect()
    assert never_retrieved == []
