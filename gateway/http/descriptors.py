"""File descriptors: how many connections a site may have so that its storage and logs can always open their files.

What always holds: what the storage and everything else may need is never given to connections, not even while the kernel hands
over all that wait to be accepted; the limit of the process is raised as far as it may be.
"""

from __future__ import annotations

import resource

import structlog

from gateway.http.lingering import LINGERING_MAX
from storage.engines.rocks.opening import RocksSettings
from twinlog.errors import ConfigError

# logs, the remote DFS, databases, the other site, event loop, what is open for a moment; refused connections that linger
OTHER_FILES = 128 + LINGERING_MAX
CONNECTIONS_MIN = 16
BACKLOG_MAX = 2048
log = structlog.get_logger("gateway.http.descriptors")


def fitting(connections_max: int, beside: int = 0) -> tuple[int, int]:
    """Returns how many connections fit, at most `connections_max`, and how many may wait to be accepted. `beside`: connections
    of another listener.

    Raises the limit of the process where it must and may; logs where fewer fit. Raises ConfigError where hardly any fits.
    """
    reserved = RocksSettings().open_files_max + OTHER_FILES + beside
    limit = _raised(reserved + connections_max + BACKLOG_MAX)
    free = limit - reserved
    connections = min(connections_max, free * 2 // 3)
    if connections < CONNECTIONS_MIN:
        wanted, least = reserved + connections_max + BACKLOG_MAX, reserved + CONNECTIONS_MIN * 3 // 2
        raise ConfigError(
            f"this process may open {limit} files, and a site needs {reserved} without any connection: raise the limit "
            f"(ulimit -n, LimitNOFILE) to {wanted}, or at least to {least}",
        )
    if connections < connections_max:
        log.warning(
            "fewer connections than configured: the limit of open files is low", connections_max=connections,
            configured=connections_max, open_files=limit, wanted=reserved + connections_max + BACKLOG_MAX,
        )
    return connections, min(BACKLOG_MAX, free - connections)


def _raised(wanted: int) -> int:
    """Raises the limit to `wanted` where that may be; returns what it is then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted if soft == resource.RLIM_INFINITY else soft
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if most > soft:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        except (OSError, ValueError):
            return soft
    return max(soft, most)
