"""`traced` measures what a piece of work takes of Python's memory, in a process of its own.

Until Python 3.12.9 and 3.13.2, `tracemalloc.stop` crashes a process in which threads of another runtime call Python just then
(python/cpython#128679), and one worker of pytest has the Java of HDFS. So the work has a process without one: the same for all
tests of a worker, in which tracing begins once and is never stopped. `tools/laws/suite_law.py` forbids tracemalloc elsewhere.
"""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
DEADLINE_S = 300.0


@dataclass(slots=True)
class Taken:
    """Bytes beyond those held before: `held_bytes` at the end, `peak_bytes` at the worst moment. 0 as long as the work runs."""

    held_bytes: int = 0
    peak_bytes: int = 0


def in_own_process(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Returns what `work`, a function of a module, returns (or raises) in the process that is traced."""
    return _process().submit(work, *args, **kwargs).result(timeout=DEADLINE_S)


def run_in_own_process(work: Callable[P, Coroutine[None, None, T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Returns as `in_own_process` does; `work` is a coroutine function."""
    return in_own_process(_run, work, *args, **kwargs)


def _run(work: Callable[P, Coroutine[None, None, T]], *args: P.args, **kwargs: P.kwargs) -> T:
    return asyncio.run(work(*args, **kwargs))


@contextmanager
def traced(*, collector: bool = True) -> Iterator[Taken]:
    """Yields what is filled when the block ends. `collector`: whether cycles are freed meanwhile; before it, all are."""
    assert tracemalloc.is_tracing(), "only in a process of its own: in_own_process"
    gc.collect()
    if not collector:
        gc.disable()
    taken = Taken()
    tracemalloc.reset_peak()
    before, _ = tracemalloc.get_traced_memory()
    try:
        yield taken
    finally:
        now, peak = tracemalloc.get_traced_memory()
        taken.held_bytes, taken.peak_bytes = now - before, peak - before
        gc.enable()


@cache
def _process() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=tracemalloc.start)
