"""The handshakes of each address: so many at once, so many a second, and those beyond that wait for their turn.

What always holds: an address takes no more of the event loop by whole handshakes than `per_s` of them; a newcomer waits HELD_S
at most, and is refused where its turn would come later; no address's handshakes delay another's; the number of addresses kept
is bounded, and one that is forgotten has its whole burst again.
This module is pure.
"""

from __future__ import annotations

from collections import OrderedDict

BURST_S = 1.0  # what a second allows may come at once
HELD_S = 5.0  # half of what a handshake may take in all
ADDRESSES_MAX = 10_000


class HandshakeRates:
    """`per_s`: of one address."""

    def __init__(self, per_s: float) -> None:
        self._each_s = 1 / per_s
        self._until_s: OrderedDict[str, float] = OrderedDict()  # address -> when what it has taken will be paid back

    def wait_s(self, address: str, now_s: float) -> float | None:
        """Counts a handshake, and returns how long it has to wait for its turn. None: it is refused, and is not counted."""
        until_s = max(self._until_s.get(address, now_s), now_s)
        wait_s = max(0.0, until_s + self._each_s - BURST_S - now_s)
        if wait_s > HELD_S:
            return None
        self._until_s[address] = until_s + self._each_s
        self._until_s.move_to_end(address)
        if len(self._until_s) > ADDRESSES_MAX:
            self._until_s.popitem(last=False)
        return wait_s
