"""The Transport port: one site's calls of the other.

The real one is HTTP (gateway/http/peer_transport.py); the simulated twin delays, drops and repeats messages.

What always holds: a call ends by its `timeout_s`; an error that the peer raised arrives as the same class of
twinlog/errors.py; everything else (unreachable, timed out, nonsense) is a PeerError, whose outcome is unknown.
Messages are msgpack maps; the methods and their fields are listed in remote_log/replication/messages.py.
"""

from __future__ import annotations

from typing import Any, Protocol


class Transport(Protocol):
    async def call(self, method: str, message: dict[str, Any], timeout_s: float) -> dict[str, Any]: ...
