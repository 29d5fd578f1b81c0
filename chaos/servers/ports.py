"""Ports of this machine for servers that are about to be started.

What always holds: they lie below those that the system gives to outgoing connections, so that no connection takes one while its
server is away, as after a kill; and a port that one process has been given is given to no other one while that process lives,
although nobody listens on it yet. Else two tests that run side by side start their servers at the same port now and then.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
import threading
from collections import deque
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST, _USUAL = 10_000, 32_768
KEPT = 2_000  # of the ports that this process was given last, none is given again
_given: deque[int] = deque()
_claims: list[int] = []  # the open file of which each process that was given a port locks the byte of that number
_one_at_a_time = threading.Lock()


def free_ports(count: int) -> list[int]:
    """Ports on 127.0.0.1 on which nobody listens, all different, and for this process alone. Raises RuntimeError."""
    found: list[int] = []
    with _one_at_a_time:
        for port in _candidates():
            if len(found) == count:
                return found
            if port not in _given and _is_free(port) and _claim(port):
                found.append(port)
                _given.append(port)
        raise RuntimeError(f"this machine has no {count} free ports below {_end()}")


def _candidates() -> list[int]:
    return random.SystemRandom().sample(range(_LOWEST, _end()), k=_end() - _LOWEST)


def _end() -> int:
    return max(int(_RANGE.read_text().split()[0]) if _RANGE.exists() else _USUAL, _LOWEST + 10_000)


def _claim(port: int) -> bool:
    """False: another process has it. The system gives a lock back when its process ends, however that ends."""
    if not _claims:
        file = Path(tempfile.gettempdir(), f"twinlog-ports-{os.getuid()}")
        _claims.append(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    while len(_given) >= KEPT:
        fcntl.lockf(_claims[0], fcntl.LOCK_UN, 1, _given.popleft())
    try:
        fcntl.lockf(_claims[0], fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        if not probe.connect_ex(("127.0.0.1", port)):
            return False
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
