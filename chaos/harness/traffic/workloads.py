"""The workloads of a run on real processes: those of the simulator, with more rows, since such a run has more operations, and
some that the simulator does not draw, because one more name would change the plan of every seed.

What always holds: one implementation serves both drivers; how many rows there are is all that differs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from types import MappingProxyType

from chaos.workloads import WORKLOADS as SIMULATED
from chaos.workloads.appends import Appends
from chaos.workloads.bank import Bank
from chaos.workloads.batches import Batches
from chaos.workloads.check_and_mutate import CheckAndMutate
from chaos.workloads.counters import Counters
from chaos.workloads.mixed import Mixed
from chaos.workloads.registers import Documents, Registers
from chaos.workloads.scanning import Scanning
from chaos.workloads.sets import Sets
from chaos.workloads.workload import Workload

WORKLOADS: Mapping[str, Callable[[Random], Workload]] = MappingProxyType({
    **SIMULATED,
    "bank": partial(Bank, banks=8),
    "appends": partial(Appends, lists=6),
    "registers": partial(Registers, rows=24),
    "documents": partial(Documents, rows=24),
    "counters": partial(Counters, rows=8),
    "check_and_mutate": partial(CheckAndMutate, rows=16),
    "batches": partial(Batches, groups=12),
    "scanning": partial(Scanning, rows=60),
    "sets": partial(Sets, scan_share=0.05, size_max=200),
    "mixed": partial(Mixed, rows=24),
})
