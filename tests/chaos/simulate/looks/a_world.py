"""A simulated pair of which nothing runs yet, for a look to be told of what it would be told of in a run."""

from __future__ import annotations

import asyncio

from chaos.simulate.draw import plain
from chaos.simulate.twins.loop import VirtualLoop
from chaos.simulate.world import World
from switchover.operations.document import HistoryEntry, Operation, StepRecord


def a_world() -> World:
    return World(plain(1, ()), VirtualLoop())  # type: ignore[abstract]


def an_operation(kind: str = "failover", *steps: StepRecord, to: str = "b", **more: object) -> Operation:
    return Operation("b7", kind, to, {}, "operator", 0, steps, **more)  # type: ignore[arg-type]


def an_entry(event: str, step: str | None = None, *, actor: str = "operator", detail: object = None) -> HistoryEntry:
    return HistoryEntry(0, "b7", "failover", "b", actor, event, step, None, detail)  # type: ignore[arg-type]


def journaled(world: World, site: str, operation: Operation, entry: HistoryEntry | None = None) -> None:
    """The journal of `site` gets this, as of an operation that it has."""
    asyncio.run(world.machines[site].journal.save(operation, entry or an_entry("started")))
