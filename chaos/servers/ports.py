"""Ports of this machine for servers that are about to be started.

What always holds: they lie below those that the system gives to outgoing connections, so that no connection takes one while its
server is away, as after a kill.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Collection
from pathlib import Path

_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST, _USUAL = 10_000, 32_768


def free_ports(count: int, but: Collection[int] = ()) -> list[int]:
    """Ports on 127.0.0.1 that were free a moment ago, all different, and none of `but`, which others are about to take."""
    end = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else _USUAL
    found: list[int] = []
    for port in random.SystemRandom().sample(range(_LOWEST, max(end, _LOWEST + 10_000)), k=5_000):
        if len(found) == count:
            break
        with socket.socket() as probe:
            if port not in but and probe.connect_ex(("127.0.0.1", port)) and _can_bind(port):
                found.append(port)
    return found


def _can_bind(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
