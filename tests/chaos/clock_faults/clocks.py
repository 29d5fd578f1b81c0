"""A program that tells its clocks, and waits as it is asked to: a line in, a line of JSON out."""

from __future__ import annotations

import ctypes
import json
import sys
import time

libc = ctypes.CDLL(None, use_errno=True)


class Moment(ctypes.Structure):
    _fields_ = (("s", ctypes.c_long), ("ns", ctypes.c_long))


def wait_s(for_s: float) -> float:
    """Waits at a condition until the wall clock shows a moment; returns how long that took by a clock that is left alone."""
    condition, mutex, until = ctypes.create_string_buffer(64), ctypes.create_string_buffer(64), time.time() + for_s
    begun_s = time.monotonic()
    libc.pthread_mutex_lock(mutex)
    libc.pthread_cond_timedwait(condition, mutex, ctypes.byref(Moment(int(until), int(until % 1 * 1e9))))
    return time.monotonic() - begun_s


for line in sys.stdin:
    told = {
        "wall": time.time(), "boot": time.clock_gettime(time.CLOCK_BOOTTIME), "monotonic": time.monotonic(),
        "waited": wait_s(float(line)) if line.strip() else 0.0,
    }
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()
