"""Runs small programs over the worker threads under every schedule, with the product's own code or with a mistake in it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from chaos.threads.explore import Explored, explore
from chaos.threads.schedule import ScheduledLoop, Scheduler, scheduled
from storage.disk import workers
from tests.planting import planted

WATCHED = [f"<planted in {workers.__name__}>"]
NOTHING = ("from __future__ import annotations\n", "from __future__ import annotations\n")
Program = Callable[[Any, Scheduler], Awaitable[None]]  # with the module workers.py


def every_schedule(
    program: Program, *, switches_max: int = 2, mistake: tuple[str, str] = NOTHING, watched: list[str] | None = None
) -> Explored:
    def run(scheduler: Scheduler) -> None:
        module = planted(workers, *mistake)
        scheduled(module, scheduler)
        run_on_loop(scheduler, lambda: program(module, scheduler))

    return explore(run, WATCHED if watched is None else watched, switches_max)


def run_on_loop(scheduler: Scheduler, program: Callable[[], Awaitable[None]]) -> None:
    """Raises what `program` raises, or what went wrong on the loop beside it."""
    loop, wrong = ScheduledLoop(scheduler), []
    loop.set_exception_handler(lambda _, context: wrong.append(context))
    tasks: set[asyncio.Task[Any]] = set()

    async def main() -> None:
        await program()

    try:
        scheduler.run(lambda: loop.run_until_complete(main()))
        assert not wrong, wrong
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            task.get_coro().close()
        loop.close()
