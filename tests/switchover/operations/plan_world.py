"""A small switchover for the executor's tests: steps that leave their effect in a world that outlives the process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from switchover.operations.document import OperationDocument
from switchover.operations.executor import Executor
from switchover.operations.plan import Plan, Step
from twinlog.errors import InvalidInput

Hook = Callable[[], Awaitable[Any]]
NAMES = ["preflight", "begin", "drain", "claim", "open"]
EVERY_POINT = ["created", *(f"{name}.{moment}" for name in NAMES for moment in ("before", "after", "journaled"))]

UNDO_POINTS = [f"{name}.undo.{moment}" for name in ("drain", "begin") for moment in ("before", "after", "journaled")]


class World:
    """The effects of a small switchover's steps on the two sites. It outlives a crash, as the sites do."""

    def __init__(self) -> None:
        self.flags: set[str] = set()
        self.calls: list[str] = []
        self.hooks: dict[str, Hook] = {}  # step, or "undo step": runs after the effect, before the step's end
        self.plans_made = 0
        self.renamed = False

    async def effect(self, name: str) -> dict[str, Any]:
        self.calls.append(name)
        if name != "preflight":
            self.flags.add(name)
        if name in self.hooks:
            await self.hooks[name]()
        return {"did": name}

    async def undo(self, name: str) -> None:
        self.calls.append(f"undo {name}")
        self.flags.discard(name)
        if f"undo {name}" in self.hooks:
            await self.hooks[f"undo {name}"]()

    def plan(self, kind: str, to: str | None, options: dict[str, Any]) -> Plan:
        if kind != "switchover":
            raise InvalidInput(f"there is no operation {kind}")
        self.plans_made += 1

        def step(name: str, **more: Any) -> Step:
            return Step(name, lambda: self.effect(name), f"to {name}", **more)

        return Plan(kind, [
            step("preflight", abortable=True, dry=True),
            step("begin", abortable=True, undo=lambda: self.undo("begin")),
            step("drain", abortable=True, undo=lambda: self.undo("drain"), progress=lambda: {"left": 3}),
            step("sealed" if self.renamed else "claim"),
            step("open"),
        ])


class Gate:
    """A step waits here until the test lets it go on."""

    def __init__(self) -> None:
        self.reached, self.open = asyncio.Event(), asyncio.Event()

    async def __call__(self) -> None:
        self.reached.set()
        await self.open.wait()


def failing(error: Exception) -> Hook:
    async def fail() -> None:
        raise error

    return fail


async def start(executor: Executor, operation_id: str = "op-1", **more: Any) -> OperationDocument:
    return await executor.start(operation_id, "switchover", "b", {"reason": "test"}, "ann", **more)


def states(document: OperationDocument) -> list[str]:
    return [step.state for step in document.steps]
