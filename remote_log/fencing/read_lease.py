"""The read lease: how long a proof of "not fenced" lets an active serve, and how long its successor must wait.

A remote append that succeeded proves that the file was not yet closed by a fencer at the moment when the append was
*started*; nothing later is proven, for the answer may have been under way, or the process paused, for any time. So the
active serves and acknowledges at `now` only while `now - start of the newest proven append < lease_s`, by its own
monotonic clock, and it asks right before it answers.

A fencer starts to wait when the fence is complete. From then on no append succeeds, so every proof that the old active
can ever hold was started before that moment, and ends at most `lease_s` of the OLD active's seconds after it. If that
clock runs slower than the fencer's, these seconds last longer on the fencer's clock, by the relative drift of the two;
`drift_margin` bounds that drift. Hence `lease_s * (1 + drift_margin)`, on the fencer's monotonic clock. Waiting from the
claim instead would be wrong: between claim and lease recovery an append may still succeed and renew the lease.

A DFS may go back to an earlier state, and forget the claim and the lease recovery that fenced a writer: its appends succeed
again. By then its lease has run out, for its successor waited for that. So an append that was started after the lease had run
out proves nothing by itself: it stays aside (`aside_s`) until a look at the register that came later has shown that nobody
has taken over (`confirm`).

What always holds: the newest start only grows, however late or out of order proofs come in; without a proof nothing is
valid, and after `revoke` never again. Source: protocol.md section 5, "Read lease".
This module is pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Annotated

from storage.settings import RESTART, Within
from twinlog.errors import InvalidInput


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSettings:
    """Reads and acknowledgements only within `lease_s` of the start of the last append; an idle active appends a noop."""

    lease_s: Annotated[float, Within(0.05, 600), RESTART] = 1.0
    drift_margin: Annotated[float, Within(0.0, 1.0), RESTART] = 0.2  # share of lease_s that a fencer waits on top
    noop_interval_s: Annotated[float, Within(0.01, 300), RESTART] = 0.25


class ReadLease:
    """Pure arithmetic in seconds of one monotonic clock."""

    def __init__(self, lease_s: float, drift_margin: float) -> None:
        """`drift_margin` is relative: 0.05 means that no two clocks of the pair drift apart by more than 5 %."""
        if not (0 < lease_s < inf and 0 <= drift_margin < inf):
            raise InvalidInput(f"a lease of {lease_s} s with a drift margin of {drift_margin} makes no sense")
        self.lease_s = lease_s
        self.drift_margin = drift_margin
        self._start_s = -inf
        self._aside_s = -inf
        self._revoked = False

    def proof(self, start_s: float) -> None:
        """An append that was started at `start_s` has succeeded. It counts if the lease had not run out then, or was never
        proved before; otherwise it stays aside."""
        if self._start_s == -inf or start_s < self.expires_s:
            self._start_s = max(self._start_s, start_s)
        else:
            self._aside_s = max(self._aside_s, start_s)

    def confirm(self, start_s: float) -> None:
        """A look at the register, begun after the append of `start_s` had succeeded, showed that nobody had taken over."""
        self._start_s = max(self._start_s, start_s)
        if self._aside_s < self.expires_s:  # also what succeeded meanwhile
            self._start_s, self._aside_s = max(self._start_s, self._aside_s), -inf

    @property
    def aside_s(self) -> float | None:
        """Returns the start of the newest append that waits for a look at the register; None: there is none."""
        return None if self._aside_s == -inf else self._aside_s

    def revoke(self) -> None:
        """Ends it for good: its holder has stopped, and says so; nobody waits for it to run out."""
        self._revoked = True

    @property
    def expires_s(self) -> float:
        """The first moment at which nothing may be served any more; minus infinity before the first proof."""
        return self._start_s + self.lease_s

    def valid_at(self, now_s: float) -> bool:
        return now_s < self.expires_s and not self._revoked

    @property
    def fencer_wait_s(self) -> float:
        """The seconds that a fencer waits after its fence is complete, unless the old active confirmed that it stopped."""
        return self.lease_s * (1 + self.drift_margin)
