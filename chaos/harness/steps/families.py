"""Families of short runs: one for each step of a course, in which the gateway that takes the step dies there and starts again.

What always holds: the steps are those that the simulator aims at; a run does nothing else, so that what it shows is of that
step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from chaos.fault_lines import Fault
from chaos.simulate.aims import points

ARMED_S, BEGUN_S, DEAD_S = 1.0, 1.3, 4.0
SECONDS = 7.0
RATE = 60.0
_WRITES = {  # what a write and the upkeep of the logs pass: at the active, and at the standby
    "active": (
        *points("write"), "peer_dfs.create.before", "peer_dfs.create.after", "files.create_log.before",
        "files.create_log.after", "files.delete.before", "files.delete.after", "engine.flush.before", "engine.flush.after",
        "engine.apply.before", "engine.apply.after", "transport.replicate.before", "transport.replicate.after",
    ),
    "standby": (
        "engine.apply.before", "engine.apply.after", "engine.flush.before", "engine.flush.after", "files.create_log.before",
        "files.create_log.after", "files.write_new.before", "files.write_new.after", "files.delete.before",
        "files.delete.after",
    ),
}


@dataclass(frozen=True, slots=True)
class Short:
    """A run: its name, and its faults in `SECONDS`."""

    name: str
    faults: tuple[Fault, ...]


def _of_a_role_change(course: str, begin: tuple[Fault, ...]) -> Iterator[Short]:
    """The gateway of the site that is to be the active dies, at each step but those of the way back."""
    for point in points(course):
        if ".undo" not in point:
            yield Short(point, (Fault(ARMED_S, "crash-at", "b", DEAD_S, point), *begin))


def _of_writes() -> Iterator[Short]:
    for target, chosen in _WRITES.items():
        for point in chosen:
            yield Short(f"{target}-{point}", (Fault(ARMED_S, "crash-at", target, DEAD_S, point),))


FAMILIES: Mapping[str, tuple[str, Callable[[], Iterator[Short]]]] = {
    "switchover-steps": (
        "The new active dies at one step of a switchover, and is started again.",
        lambda: _of_a_role_change("switchover", (Fault(BEGUN_S, "switchover", "b"),)),
    ),
    "failover-steps": (
        "The active is killed, and the site that takes over dies at one step of the failover. Both are started again.",
        lambda: _of_a_role_change("failover", (Fault(ARMED_S, "crash", "a", DEAD_S), Fault(BEGUN_S, "failover", "b"))),
    ),
    "write-steps": ("A gateway dies at one step of the way of a write or of the upkeep of its logs.", _of_writes),
}
