"""The places of a door: the connections that it serves, in all and from each address, and those refused ones that linger.

What always holds: a refused connection takes no place of those that are served, however long its client keeps it open; of
refused ones no more than LINGERING_MAX wait at a time for their clients to read the answer.
"""

from __future__ import annotations

from collections import Counter

from gateway.http.lingering import LINGERING_MAX


class Places:
    """Counts for all protocols of one door."""

    def __init__(self, connections_max: int, per_address_max: int) -> None:
        self._connections_max, self._per_address_max = connections_max, per_address_max
        self.served = 0
        self.by_address: Counter[str] = Counter()
        self.lingering = 0

    def enter(self, address: str) -> bool:
        """Takes a place, or returns False where there is none."""
        if self.served >= self._connections_max or self.by_address[address] >= self._per_address_max:
            return False
        self.served += 1
        self.by_address[address] += 1
        return True

    def leave(self, address: str) -> None:
        """Gives the place back."""
        self.served -= 1
        self.by_address[address] -= 1
        if not self.by_address[address]:
            del self.by_address[address]

    def linger(self) -> bool:
        """Counts a refused connection in, until `end_lingering`; False: too many of them wait already."""
        if self.lingering >= LINGERING_MAX:
            return False
        self.lingering += 1
        return True

    def end_lingering(self) -> None:
        self.lingering -= 1
