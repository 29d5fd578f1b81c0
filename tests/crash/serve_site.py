"""One site as a process that dies (as by SIGKILL, nothing is closed) at the n-th hit of a named failpoint."""

from __future__ import annotations

import os
import threading
from multiprocessing import parent_process
from pathlib import Path

import uvloop

from gateway.app import serve
from gateway.config.loading import load_site_config
from storage.failpoints import Failpoints
from tests.armed_failpoints import ArmedFailpoints

DIED = 86


def main(config: str, log: str, failpoint: str, nth: int) -> None:
    """The process's whole life, which ends with the one that started it; what it says goes to `log`."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    armed = ArmedFailpoints(failpoint, nth, die=lambda _: os._exit(DIED)) if failpoint else Failpoints()
    uvloop.run(serve(load_site_config(Path(config)), armed, file=Path(config)))


def _end_with_parent() -> None:
    """A fork server lives as long as its children do: it would end nobody."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
