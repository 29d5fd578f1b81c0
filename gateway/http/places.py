"""The places of a door: the connections that it serves, in all and from each address, and those refused ones that linger.

What always holds: an address holds no more connections than `per_address_max`, nor took one when it held as many as were free,
so that no few addresses take them all. Where a newcomer finds no place, the connection that waits longest for its client gives
way: one of the address that holds most, if that is more than the newcomer's, else one of its own. A connection that is being
served never gives way. A refused connection takes no place of those that are served, however long its client keeps it open; of
refused ones no more than LINGERING_MAX wait at a time for their clients to read the answer.
"""

from __future__ import annotations

from typing import Protocol

from gateway.http.lingering import LINGERING_MAX


class Guest(Protocol):
    """A connection that has a place."""

    def waits_since(self) -> float | None:
        """The moment in seconds, of one clock for all, since when nothing but its client can bring it forward; None: it is
        being served."""

    def give_way(self) -> None:
        """Leaves its place at once, and closes."""


class Front(Guest, Protocol):
    """A connection that is still coming in, and hands its place to the protocol behind it (gateway/tls/handshake.py)."""

    address: str


class Places:
    """Counts for all protocols of one door."""

    def __init__(self, connections_max: int, per_address_max: int) -> None:
        self._connections_max, self._per_address_max = connections_max, per_address_max
        self._by_address: dict[str, set[Guest]] = {}
        self.served = 0
        self.refused = 0  # newcomers without a place, and those who gave way to one
        self.lingering = 0

    def held(self) -> dict[str, int]:
        """The number of connections of each address that has any."""
        return {address: len(guests) for address, guests in self._by_address.items()}

    def enter(self, address: str, guest: Guest, instead_of: Guest | None = None) -> bool:
        """Takes a place, if need be that of one who waits, or returns False where there is none. `instead_of`: who hands its
        own place to `guest`."""
        if instead_of is not None:
            guests = self._by_address[address]
            guests.remove(instead_of)
            guests.add(guest)
            return True
        own = len(self._by_address.get(address, ()))
        free = self._connections_max - self.served
        if own >= min(self._per_address_max, free) and not self._make_room(address, own):
            self.refused += 1
            return False
        self._by_address.setdefault(address, set()).add(guest)
        self.served += 1
        return True

    def leave(self, address: str, guest: Guest) -> None:
        """Gives the place back."""
        guests = self._by_address[address]
        guests.remove(guest)
        self.served -= 1
        if not guests:
            del self._by_address[address]

    def linger(self) -> bool:
        """Counts a refused connection in, until `end_lingering`; False: too many of them wait already."""
        if self.lingering >= LINGERING_MAX:
            return False
        self.lingering += 1
        return True

    def end_lingering(self) -> None:
        self.lingering -= 1

    def _make_room(self, address: str, own: int) -> bool:
        """Looks at each connection: that costs a newcomer time, and no request."""
        others = [held for held in self._by_address.values() if len(held) > own] if own < self._per_address_max else []
        others.sort(key=len, reverse=True)
        for held in (*others, self._by_address.get(address, ())):
            waiting = [(since, guest) for guest in held if (since := guest.waits_since()) is not None]
            if waiting:
                self.refused += 1
                min(waiting, key=lambda one: one[0])[1].give_way()
                return True
        return False
