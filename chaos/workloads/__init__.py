"""The workloads of a run: pure generators of operations, each with its tables, its checkers and its own last check."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from types import MappingProxyType

from chaos.workloads.batches import Batches
from chaos.workloads.check_and_mutate import CheckAndMutate
from chaos.workloads.counters import Counters
from chaos.workloads.linked_list import LinkedList
from chaos.workloads.mixed import Mixed
from chaos.workloads.registers import Registers
from chaos.workloads.scanning import Scanning
from chaos.workloads.schema_changes import SchemaChanges
from chaos.workloads.sets import Sets
from chaos.workloads.workload import Workload

WORKLOADS: MappingProxyType[str, Callable[[Random], Workload]] = MappingProxyType({
    each.name: each
    for each in (Registers, Sets, Counters, CheckAndMutate, LinkedList, Batches, Scanning, SchemaChanges, Mixed)
})
