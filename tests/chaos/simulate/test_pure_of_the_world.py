"""A simulation asks nothing of the machine: no time, no randomness of the process, no thread.

Every call of a few hundred simulated seconds is looked at, so that it does not matter how a function was imported; and every
module that a simulation imports is read, for what those runs did not reach. What a library asks for itself (tenacity notes
when an attempt began, prometheus_client when a counter was made) is let through: nothing here is decided by it.
"""

from __future__ import annotations

import ast
import asyncio
import datetime
import importlib.util
import os
import random
import secrets
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import pytest

from chaos.simulate.draw import draw
from chaos.simulate.run import Run, collect
from gateway.site.site import Site
from tools.sources import ROOT

OURS = ("chaos", "gateway", "switchover", "remote_log", "storage")
BUILT_IN = {
    time.time, time.time_ns, time.monotonic, time.monotonic_ns, time.perf_counter, time.perf_counter_ns, time.process_time,
    time.clock_gettime, time.sleep, time.localtime, time.gmtime, datetime.datetime.now, datetime.datetime.utcnow,
    datetime.date.today, os.urandom, os.getpid, os.getrandom,
}
WRITTEN = {  # whoever calls them
    function.__code__: function.__qualname__
    for function in (
        secrets.token_bytes, secrets.token_hex, secrets.token_urlsafe, secrets.randbelow, uuid.uuid1, uuid.uuid4,
        threading.Thread.start, asyncio.to_thread, asyncio.new_event_loop,
    )
}
GLOBAL_RANDOM = random.random.__self__  # type: ignore[attr-defined]
MODULES = {"time", "secrets", "uuid", "threading", "random", "os", "socket", "subprocess", "concurrent", "multiprocessing"}
ALLOWED = {  # module -> why it may import one of these
    ("storage.clock", "time"): "the real clock stands beside the port",
    ("storage.disk.os_files", "os"): "files of a real engine, below the folder that the run is given",
    ("storage.disk.workers", "concurrent"): "a simulated worker takes the place of each",
    ("storage.disk.workers", "threading"): "a simulated worker takes the place of each",
    ("storage.engines.rocks.engine", "threading"): "its lock is asked for by one thread",
    ("storage.engines.rocks.engine", "time"): "the wait for a RocksDB that holds writes back: none is so full",
    ("storage.engines.rocks.opening", "os"): "files of a real engine, below the folder that the run is given",
    ("storage.engines.sql.engine", "threading"): "its lock is asked for by one thread",
    ("storage.engines.sql.opening", "time"): "the wait for a PostgreSQL, which none is",
    ("storage.engines.sql.kept_snapshots", "os"): "files of a real engine, below the folder that the run is given",
    ("storage.engines.kept_snapshots", "os"): "files of a real engine, below the folder that the run is given",
    ("chaos.simulate.plan", "random"): "each Random there has a seed",
    ("chaos.simulate.draw", "random"): "each Random there has a seed",
    ("chaos.simulate.aims", "random"): "each Random there has a seed",
}


@contextmanager
def watching(met: list[str]) -> Iterator[None]:
    """Every forbidden call goes to `met`: what, and where."""
    def look(frame: FrameType, event: str, argument: Any) -> None:
        what: str | None = None
        if event == "c_call" and _is_ours(frame):
            if getattr(argument, "__self__", None) is GLOBAL_RANDOM or argument in BUILT_IN:
                what = argument.__qualname__
        elif event == "call":
            what = WRITTEN.get(frame.f_code)
            if frame.f_code is random.Random.seed.__code__ and frame.f_locals["a"] is None:
                what = "Random without a seed"
            elif what is None and frame.f_locals.get("self") is GLOBAL_RANDOM:
                what = f"random.{frame.f_code.co_name}"
        if what is not None:
            by: FrameType | None = frame
            while by is not None and not _is_ours(by):
                by = by.f_back
            met.append(f"{what} in {by.f_globals['__name__']}, line {by.f_lineno}" if by is not None else what)

    sys.setprofile(look)
    try:
        yield
    finally:
        sys.setprofile(None)


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] in OURS


def asked_of_the_machine(seed: int, *, coordinator: bool, operations: int = 60) -> set[str]:
    plan = draw(seed)
    knobs = msgspec.structs.replace(plan.knobs, coordinator=coordinator)
    plan = msgspec.structs.replace(plan, operations=operations, knobs=knobs)
    met: list[str] = []
    with watching(met):
        Run(plan).execute()
    collect()
    return set(met)


@pytest.mark.parametrize(("seed", "coordinator"), [(1, True), (2, True), (3, False)])
def test_a_run_asks_the_machine_for_nothing(seed: int, coordinator: bool) -> None:
    assert asked_of_the_machine(seed, coordinator=coordinator) == set()


@pytest.mark.parametrize("call", [
    "time.time()", "monotonic()", "time.perf_counter()", "random.random()", "random.expovariate(1.0)", "random.Random()",
    "secrets.token_hex(6)", "os.urandom(1)", "uuid.uuid4()", "threading.Thread(target=int).start()", "datetime.datetime.now()",
])
def test_what_is_planted_is_found(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    space: dict[str, Any] = {"__name__": "gateway.planted", "install": Site.install}
    exec("import datetime, os, random, secrets, threading, time, uuid\nfrom time import monotonic\n"
         f"async def planted(*given, **more):\n    {call}\n    await install(*given, **more)", space)
    monkeypatch.setattr(Site, "install", space["planted"])
    assert "gateway.planted" in str(asked_of_the_machine(1, coordinator=True, operations=1))


def imported(name: str) -> Iterator[str]:
    """Every module that a module's own text imports, as written; a name of a module is one too."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    for node in ast.walk(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            if node.module != "random" or [alias.name for alias in node.names] != ["Random"]:  # that one has a seed
                yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_no_module_of_a_simulation_imports_what_asks_the_machine() -> None:
    seen, waiting, found = set[str](), ["chaos.simulate.run"], []
    while waiting:
        name = waiting.pop()
        if name in seen or name.partition(".")[0] not in OURS or not _is_module(name):
            continue
        seen.add(name)
        for other in imported(name):
            waiting.append(other)
            if other in MODULES and (name, other) not in ALLOWED:
                found.append((name, other))
    assert len(seen) > 100
    assert sorted(set(found)) == []


def _is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()
