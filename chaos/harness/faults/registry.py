"""All kinds of faults and commands, in the order in which `chaos list` shows them.

What always holds: a room that breaks something new adds its KINDS here, and nothing else knows of it by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from chaos.fault_lines import Fault
from chaos.harness.faults import (
    changed,
    clocks,
    commands,
    disks,
    limits,
    links,
    older,
    power,
    processes,
    rot,
    steps,
)
from chaos.harness.faults.kind import Effect, Kind, Stage

KINDS: tuple[Kind, ...] = (
    *links.KINDS, *processes.KINDS, *power.KINDS, *disks.KINDS, *older.KINDS, *rot.KINDS, *changed.KINDS, *steps.KINDS,
    *clocks.KINDS, *limits.KINDS, *commands.SECRETS, *commands.KINDS,
)
BY_NAME: Mapping[str, Kind] = {kind.name: kind for kind in KINDS}
_BREAK_FILES = frozenset(kind.name for kind in disks.KINDS)
_LOSE_POWER = frozenset(kind.name for kind in power.KINDS)
_OF_CLOCKS = frozenset(kind.name for kind in clocks.KINDS)
_AT_STEPS = frozenset((limits.NO_THREADS, *(kind.name for kind in steps.KINDS)))


def effect_of(fault: Fault, stage: Stage) -> Effect:
    """The object of a line of a plan."""
    return BY_NAME[fault.kind].effect(fault, stage)


def need_the_library(faults: Iterable[Fault]) -> bool:
    """Returns whether both gateways are to start with the library that breaks files."""
    return any(fault.kind in _BREAK_FILES for fault in faults)


def need_the_record(faults: Iterable[Fault]) -> bool:
    """Returns whether both gateways are to start with the library that records files."""
    return any(fault.kind in _LOSE_POWER for fault in faults)


def need_steps(faults: Iterable[Fault]) -> bool:
    """Returns whether both gateways are to start with traps at their steps."""
    return any(fault.kind in _AT_STEPS for fault in faults)


def need_clocks(faults: Iterable[Fault]) -> bool:
    """Returns whether both gateways are to start with the library that stands before their clocks."""
    return any(fault.kind in _OF_CLOCKS for fault in faults)
