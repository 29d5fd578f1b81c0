"""A simulated process: one life of a gateway, a client or an operator, from its start to its crash.

What always holds: everything that runs in a process carries it in its context, tasks that it makes inherit it, so that the
loop can stop a process between any two steps (SIGSTOP) or end it there (SIGKILL): a process that was killed never takes
another step, not even a `finally`. What it had sent may still arrive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context, ContextVar
from typing import Any

NEVER_S = -1e6  # a moment before the run, and a number in JSON
CURRENT: ContextVar[Process | None] = ContextVar("process", default=None)


class Process:
    """`killed` and `paused` are set by the loop, and when it was stopped and resumed last. `proved_s`: the twins of DFS and
    register set it to the moment at which the newest call was begun that proved, when it succeeded, that this process was
    not fenced."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.killed = False
        self.paused = False
        self.proved_s = self.stopped_s = self.resumed_s = NEVER_S
        self.context = Context()
        self.context.run(CURRENT.set, self)
        self.tasks: list[asyncio.Task[Any]] = []  # kept: what the collector takes away would run its `finally` blocks

    def __repr__(self) -> str:
        return f"<{self.name}{' killed' if self.killed else ' paused' if self.paused else ''}>"

    def decided_s(self, now_s: float) -> float:
        """Returns when what leaves the process at `now_s` was decided at the earliest: before it was stopped, if this is the
        moment at which it is resumed. What a stop holds up is as late as what the network does."""
        return self.stopped_s if now_s == self.resumed_s else now_s

    def spawn(self, work: Coroutine[Any, Any, Any], name: str | None = None) -> asyncio.Task[Any]:
        """A task of this process."""
        return asyncio.get_running_loop().create_task(work, name=name, context=self.context)

    def keep(self, task: asyncio.Task[Any]) -> None:
        self.tasks.append(task)
        if len(self.tasks) >= 512:
            self.forget_ended()

    def forget_ended(self) -> None:
        """Keeps the tasks that still wait, and one at least: a process that has begun is known by its tasks."""
        tasks = self.tasks
        self.tasks = [each for each in tasks if not each.done()] or tasks[-1:]
