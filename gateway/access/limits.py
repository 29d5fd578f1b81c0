"""The limits of one identity: requests and bytes a second, and requests at a time.

What always holds: a request is refused before a byte of its body is read; one request always fits an idle identity, however
long; what was taken beyond the rate is paid back by waiting, and `retry_after_s` says how long; no identity's use changes
another's.
This module is pure.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Annotated

from storage.settings import RUN_TIME, Within
from twinlog.errors import Overloaded

IDENTITIES_MAX = 10_000
BURST_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitSettings:
    """The limits of one identity; 0: none. A burst is what a second allows, and one request always fits."""

    requests_per_s: Annotated[float, Within(0, 1e9), RUN_TIME] = 0.0
    bytes_per_s: Annotated[float, Within(0, 1e12), RUN_TIME] = 0.0
    concurrent: Annotated[int, Within(0, 1_000_000), RUN_TIME] = 0


class Budget:
    """The rest that one identity has. Levels fall below zero by what could not be known before: a body in chunks, an answer."""

    __slots__ = ("_at_s", "_bytes", "_limits", "_requests", "is_unlimited", "running")

    def __init__(self, limits: LimitSettings, now_s: float) -> None:
        self.running = 0
        self.apply(limits, now_s)

    def apply(self, limits: LimitSettings, now_s: float) -> None:
        """These limits from now on, with a burst of theirs; requests under way stay counted."""
        self._limits = limits
        self.is_unlimited = not (limits.requests_per_s or limits.bytes_per_s or limits.concurrent)
        self._at_s = now_s
        self._requests = max(1.0, limits.requests_per_s * BURST_S)
        self._bytes = limits.bytes_per_s * BURST_S

    def wait_s(self, now_s: float) -> float:
        """Returns how long it is until the next request is let in, as far as rates decide; 0: now."""
        limits = self._limits
        if not limits.requests_per_s and not limits.bytes_per_s:
            return 0.0
        self._refill(now_s)
        wait_s = 0.0
        if limits.requests_per_s and self._requests < 1:
            wait_s = (1 - self._requests) / limits.requests_per_s
        if limits.bytes_per_s and self._bytes <= 0:
            wait_s = max(wait_s, -self._bytes / limits.bytes_per_s, 1e-3)
        return wait_s

    def is_full(self) -> bool:
        """True where no more requests at a time are let in."""
        return 0 < self._limits.concurrent <= self.running

    def enter(self, now_s: float, size_bytes: int) -> None:
        """Counts a request. Raises Overloaded, and counts nothing."""
        if self.is_full():
            raise Overloaded(
                f"{self.running} requests of this identity are under way, the limit here: wait for one, then send this again",
                retry_after_s=1,
            )
        if wait_s := self.wait_s(now_s):
            raise Overloaded(
                f"this identity has used up its requests or bytes a second: send this again in {wait_s:.3f} s",
                retry_after_s=wait_s,
            )
        self.count(size_bytes)

    def count(self, size_bytes: int) -> None:
        self.running += 1
        self._requests -= 1
        self._bytes -= size_bytes

    def spend(self, size_bytes: int) -> None:
        """Counts bytes that were not known when the request was let in."""
        self._bytes -= size_bytes

    def leave(self) -> None:
        self.running -= 1

    def _refill(self, now_s: float) -> None:
        passed_s, self._at_s = max(0.0, now_s - self._at_s), now_s
        limits = self._limits
        self._requests = min(max(1.0, limits.requests_per_s * BURST_S), self._requests + passed_s * limits.requests_per_s)
        self._bytes = min(limits.bytes_per_s * BURST_S, self._bytes + passed_s * limits.bytes_per_s)


class Budgets:
    """A budget for each identity, at most IDENTITIES_MAX: those that asked last, and those with requests under way."""

    def __init__(self, limits: LimitSettings) -> None:
        self._limits = limits
        self._budgets: OrderedDict[tuple[str, str], Budget] = OrderedDict()

    def of(self, kind: str, name: str, now_s: float) -> Budget:
        key = (kind, name)
        budget = self._budgets.get(key)
        if budget is None:
            budget = self._budgets[key] = Budget(self._limits, now_s)
            if len(self._budgets) > IDENTITIES_MAX:
                idle = next((key for key, other in self._budgets.items() if not other.running and other is not budget), None)
                if idle is not None:
                    del self._budgets[idle]
        else:
            self._budgets.move_to_end(key)
        return budget

    def apply(self, limits: LimitSettings, now_s: float) -> None:
        self._limits = limits
        for budget in self._budgets.values():
            budget.apply(limits, now_s)

    def __len__(self) -> int:
        return len(self._budgets)
