"""The end of a command that runs until somebody stops it: SIGINT and SIGTERM become an exception, once.

What always holds: a second signal does not cut short what the first one began; the handlers are put back afterwards.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(Exception):
    """Somebody asked for the end."""


@contextmanager
def stopping() -> Iterator[None]:
    """The first signal raises Stopped in the main thread, a later one is ignored."""
    def stop(number: int, frame: object) -> None:
        ignore_signals()
        raise Stopped

    before = {each: signal.signal(each, stop) for each in SIGNALS}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def ignore_signals() -> None:
    """From here on: what is being stopped is stopped in peace."""
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
