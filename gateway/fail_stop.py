"""The fail-stop of a gateway: a process that cannot continue, and would not end by itself, ends at once with a documented exit
code, so that whoever supervises it starts it again.

What always holds: a gateway ends whose event loop stands, one of whose threads ended by an error of its own machinery or
failed at its birth, or whose event loop got no memory for a callback: of each of these somebody would wait for ever. The end
takes no lock, closes nothing, and has made all that it needs beforehand; where standard error takes no words, the process ends
with exit code SIGALRM, LAST_WORDS_S later. To the other site and to clients it is a kill, and every promise is made for those.
Source: docs/decisions/2026-11-24-a-gateway-that-would-hang.md.
"""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NoReturn

from gateway.watchdog import TICK_S, TICKS_MAX, watched
from twinlog.terminal import Exit

LAST_WORDS_S = 5.0
_CODE = int(Exit.FAIL_STOP)
STANDS = "its event loop stands, and nothing was answered any more"
DIED = "one of its threads ended by an error, and whoever waits for it would wait for ever"
UNBORN = "one of its threads failed at its birth or its end, mostly for want of memory"
LOST = "its event loop got no memory for a callback, and whoever waits for it would wait for ever"
REASONS = (STANDS, DIED, UNBORN, LOST)
_OF_A_THREAD = "Exception ignored in thread started by"  # how the interpreter begins its words on a thread without a run
_OF_THE_LOOP = {"message", "exception", "handle", "source_traceback"}  # other members name a task or a connection, which ended
End = Callable[[str, "BaseException | None"], object]


def last_words(name: str) -> dict[str, bytes]:
    """The line for each reason. `name`: of the site."""
    return {
        reason: f"twinlog: the gateway of {name} ends itself with exit code {Exit.FAIL_STOP:d}: {reason}. Start it again;"
                " nothing that was acknowledged is lost. The stacks of its threads follow.\n".encode()
        for reason in REASONS
    }


def fail_stop(lines: dict[str, bytes], reason: str, error: BaseException | None = None) -> NoReturn:
    """Ends this process now. `lines`: of `last_words`."""
    try:
        signal.setitimer(signal.ITIMER_REAL, LAST_WORDS_S)
        os.write(2, lines[reason])
        faulthandler.dump_traceback(2)
        if error is not None:
            sys.__excepthook__(type(error), error, error.__traceback__)  # needs memory, and is therefore the last
    finally:
        os._exit(_CODE)


class _Executors(logging.Handler):
    """The standard library's executors log what their own threads meet, and nobody else hears of it."""

    def __init__(self, end: End) -> None:
        super().__init__(logging.ERROR)
        self._end = end

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if record.levelno >= logging.CRITICAL or isinstance(error, MemoryError):
            self._end(DIED, error)


@contextmanager
def hooked(end: End) -> Iterator[None]:
    """Inside the block `end` hears of threads, and of callbacks of the running event loop, that end as none may."""
    loop = asyncio.get_running_loop()
    before, executors = (threading.excepthook, sys.unraisablehook), _Executors(end)
    log = logging.getLogger("concurrent.futures")

    def died(args: threading.ExceptHookArgs) -> None:
        if args.exc_type is not SystemExit:
            end(DIED, args.exc_value)

    def unraisable(args: sys.UnraisableHookArgs) -> None:
        if (args.err_msg or "").startswith(_OF_A_THREAD):
            end(UNBORN, args.exc_value)
        before[1](args)

    def callback_failed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        try:
            loop.default_exception_handler(context)
        finally:
            if isinstance(context.get("exception"), MemoryError) and context.keys() <= _OF_THE_LOOP:
                end(LOST, None)

    threading.excepthook, sys.unraisablehook = died, unraisable
    log.addHandler(executors)
    loop.set_exception_handler(callback_failed)
    try:
        yield
    finally:
        loop.set_exception_handler(None)
        log.removeHandler(executors)
        threading.excepthook, sys.unraisablehook = before


def _end_at_alarm() -> None:
    """Makes `_exit` of libc the handler of SIGALRM, which is then the exit code. The signal alone does not end process 1 of a
    container, and a handler in Python would wait for the interpreter's lock, which whoever writes the last words may hold."""
    libc = ctypes.CDLL(None)
    libc.signal.argtypes, libc.signal.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    libc.signal(signal.SIGALRM, ctypes.cast(libc._exit, ctypes.c_void_p))


async def guarded(
    work: Coroutine[Any, Any, None], name: str, *, tick_s: float = TICK_S, ticks_max: int = TICKS_MAX
) -> None:
    """`work`, in a process that ends when it cannot continue. `name`: of the site."""
    _end_at_alarm()
    end = partial(fail_stop, last_words(name))
    try:
        with hooked(end), watched(partial(end, STANDS), tick_s=tick_s, ticks_max=ticks_max):
            await work
    finally:
        work.close()
