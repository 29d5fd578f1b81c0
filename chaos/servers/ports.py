"""Ports of this machine for servers that are about to be started."""

from __future__ import annotations

import socket


def free_ports(count: int) -> list[int]:
    """Ports on 127.0.0.1 that were free a moment ago, all different."""
    opened = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports: list[int] = [one.getsockname()[1] for one in opened]
    for one in opened:
        one.close()
    return ports
