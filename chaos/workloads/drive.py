"""Runs a workload: several clients at once, each asking one thing after the other, everything recorded.

What always holds: no wall clock and no randomness of its own; a client that lost an answer continues under a new process
name, for its old operation may still be under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from chaos.history.history import Operation, Outcome, Recorder
from chaos.workloads.workload import Client, Workload, creations
from storage.clock import Clock


async def create_tables(workload: Workload, client: Client, recorder: Recorder, clock: Clock, deadline_s: float) -> None:
    """Notes the tables, and makes them. Raises RuntimeError when one cannot be made."""
    for use, operation in zip(workload.tables, creations(workload), strict=True):
        recorder.note(use)
        outcome = await _ask(client, "setup", operation, recorder, clock, deadline_s)
        if outcome.result != "ok":
            raise RuntimeError(f"table {use.name} cannot be made: {outcome.result} {outcome.error}")


async def drive(
    workload: Workload, connect: Callable[[str], Client], recorder: Recorder, clock: Clock, *, clients: int, operations: int,
    deadline_s: float, pause_s: float = 0.0,
) -> None:
    """About `operations` in all, from `clients` clients; `pause_s` between two of the same client."""
    left = operations

    async def one(at: int) -> None:
        nonlocal left
        life, name = 0, f"c{at}"
        client = connect(name)
        while left > 0:
            left -= 1
            operation = workload.next(name)
            outcome = await _ask(client, name, operation, recorder, clock, deadline_s)
            workload.learn(name, operation, outcome)
            if outcome.result == "unknown":
                life += 1
                name = f"c{at}.{life}"
            if pause_s:
                await clock.sleep(pause_s)

    async with asyncio.TaskGroup() as group:
        for at in range(clients):
            group.create_task(one(at))


async def _ask(
    client: Client, process: str, operation: Operation, recorder: Recorder, clock: Clock, deadline_s: float
) -> Outcome:
    now_s = clock.monotonic_s()
    call = recorder.begin(process, operation, now_s, now_s + deadline_s)
    outcome = await client.execute(operation)
    recorder.end(call, outcome, clock.monotonic_s())
    return outcome
