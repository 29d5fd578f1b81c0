"""The look at who waits for whom at the gates of the keys: never two for each other.

What always holds: it reads where each task of a process stands, in the very lines of the gate, and touches nothing. A circle
never ends by itself: the requests in it end by their deadlines, and what they hold until then nobody can write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import CoroutineType
from typing import Any

from chaos.simulate.twins.process import Process
from gateway.service.key_gate import KeyGate, RowKey

DEPTH_MAX = 64


def circles(process: Process) -> list[str]:
    """Returns a sentence for each request that waits for one that waits for it, or for others in between."""
    owners: dict[tuple[int, RowKey], int] = {}
    waits: dict[int, tuple[int, RowKey]] = {}
    hold = KeyGate.hold.__code__
    for number, task in enumerate(process.tasks):
        for coroutine in _chain(task):
            if coroutine.cr_code is hold and (frame := coroutine.cr_frame) is not None:
                gate, owned, key = id(frame.f_locals["self"]), frame.f_locals.get("owned", []), frame.f_locals.get("key")
                owners |= {(gate, one): number for one in owned}
                if key is not None and key not in owned:
                    waits[number] = gate, key
    after = {number: owners[wanted] for number, wanted in waits.items() if wanted in owners}
    return [f"Requests in {process.name} wait for each other's keys." for number in after if _comes_back(number, after)][:1]


def _comes_back(number: int, after: dict[int, int]) -> bool:
    at, seen = after.get(number), set[int]()
    while at is not None and at not in seen:
        if at == number:
            return True
        seen.add(at)
        at = after.get(at)
    return False


def _chain(task: asyncio.Task[Any]) -> Iterator[CoroutineType[Any, Any, Any]]:
    """Yields the coroutines of a task that waits, the outermost first. Their frames are not asked for: each costs an object."""
    at: Any = None if task.done() else task.get_coro()
    for _ in range(DEPTH_MAX):
        if not isinstance(at, CoroutineType):
            return
        yield at
        at = at.cr_await
