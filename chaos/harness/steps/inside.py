"""The steps of a gateway, from inside its process: its ports are wrapped where gateway/app.py opens them.

What always holds: the wrapper is the simulator's (chaos/simulate/twins/steps.py), so that a point means the same in both; a
trap that kills or stops does so in the step itself, before another line of the product runs; without a trap in force a step
costs one look at a counter in shared memory. A name that gateway/app.py does not have any more is an error, and no gateway
starts.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from chaos.harness.steps.points import THREAD
from chaos.harness.steps.table import Deed, TrapTable
from chaos.simulate.twins.process import Process
from chaos.simulate.twins.steps import Stepped, Steps, Trap
from gateway import app
from storage.failpoints import Failpoints

WAIT_POLL_S = 0.02
_PORTS = {  # what makes a port, and what the simulator calls that
    "OsFiles": "files", "SqlCoordinator": "coordinator", "DfsCoordinator": "coordinator", "SqlJournal": "journal",
    "HttpTransport": "transport",
}
_SIGNALS = {Deed.CRASH: signal.SIGKILL, Deed.PAUSE: signal.SIGSTOP}


class _Holding(Trap):
    """A call that waits until its trap is disarmed."""

    def __init__(self, point: str, number: int) -> None:
        super().__init__(point, 0)
        self.number = number


class RealSteps(Steps):
    """The steps of this process, with the traps of the table."""

    def __init__(self, table: TrapTable) -> None:
        super().__init__(note=lambda line: None)
        self._table = table

    def hit(self, point: str, process: Process) -> Trap | None:
        found = self._table.pass_by(point)
        if found is None:
            return None
        number, deed = found
        if deed in _SIGNALS:
            os.kill(os.getpid(), _SIGNALS[deed])
            return None
        if deed is Deed.STAND:
            while self._table.is_armed(number):
                time.sleep(WAIT_POLL_S)
            return None
        return _Holding(point, number) if deed is Deed.WAIT else Trap(point, 0, fails=True)

    async def strike(self, trap: Trap, process: Process) -> None:
        while isinstance(trap, _Holding) and self._table.is_armed(trap.number):  # noqa: ASYNC110 - another process sets it
            await asyncio.sleep(WAIT_POLL_S)
        await super().strike(trap, process)


def attach(path: Path) -> None:
    """Wraps the ports of every gateway that starts in this process."""
    steps, process, product = RealSteps(TrapTable(path)), Process("gateway"), vars(app)
    behind: dict[int, Any] = {}  # the port of each DFS: a directory is compared with another one

    def stepped(name: str, port: Any) -> Any:
        return Stepped(port, name, steps, process)

    def made(name: str, make: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **named: stepped(name, make(*args, **named))

    async def engine(*args: Any, opened: Callable[..., Any] = product["open_engine"]) -> Any:
        return stepped("engine", await opened(*args))

    def dfs(
        settings: Any, which: str, *args: Any, apart_from: Any = None, opened: Callable[..., Any] = product["open_dfs"],
        **named: Any,
    ) -> Any:
        port = opened(settings, which, *args, apart_from=behind.get(id(apart_from)), **named)
        wrapper = stepped(f"{which}_dfs", port)
        behind[id(wrapper)] = port
        return wrapper

    class StepFailpoints(Failpoints):
        def hit(self, name: str) -> None:
            steps.hit(name, process)

    start = threading.Thread.start

    def started(thread: threading.Thread) -> None:
        if steps.hit(THREAD, process) is not None:
            raise RuntimeError("can't start new thread")  # as the interpreter says it
        start(thread)

    setattr(threading.Thread, "start", started)  # noqa: B010 - a plain assignment has another type
    product.update({name: made(port, product[name]) for name, port in _PORTS.items()})
    product.update(open_engine=engine, open_dfs=dfs, Failpoints=StepFailpoints)
