"""Signals of a job's process: SIGINT and SIGTERM end the work once, and what is then put in order is left in peace."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stopping() -> Iterator[None]:
    """The first signal raises KeyboardInterrupt in the main thread, a later one is ignored. Of the main thread."""
    with _handled_by(_stop):
        yield


@contextmanager
def undisturbed() -> Iterator[None]:
    """Ignores signals around work that must be finished and takes seconds at most. Does nothing in another thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with _handled_by(signal.SIG_IGN):
        yield


@contextmanager
def _handled_by(handler: Any) -> Iterator[None]:
    before = {each: signal.signal(each, handler) for each in _SIGNALS}
    try:
        yield
    finally:
        for each, earlier in before.items():
            signal.signal(each, earlier)


def _stop(number: int, frame: object) -> None:
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt
