"""The epoch that serves requests now. The site sets it in the same step as its role; requests only look.

What always holds: `writing` and `reading` name the open epoch or nothing; a request that took an epoch compares it by identity
right before the log, so that it comes neither behind a drain nor into another epoch. Source: protocol.md sections 4 and 5.
"""

from __future__ import annotations

from collections.abc import Callable

from gateway.epoch.active_epoch import ActiveEpoch
from switchover.roles.table import Role, permissions
from twinlog.errors import TwinlogError


class Serving:
    """`refusal(is_write)` makes the error for a request that this site does not serve now: NotActive or Unavailable.

    `is_prefix()` says whether the storage of a standby holds one moment of the active's log, and no mixture of two.
    """

    def __init__(self, refusal: Callable[[bool], TwinlogError], is_prefix: Callable[[], bool]) -> None:
        self._refusal, self._is_prefix = refusal, is_prefix
        self._follows = False
        self.writing: ActiveEpoch | None = None
        self.reading: ActiveEpoch | None = None  # also while it drains

    def set(self, role: Role, epoch: ActiveEpoch | None) -> None:
        allowed = permissions(role)
        self._follows = role is Role.STANDBY
        self.writing = epoch if allowed.writes else None
        self.reading = epoch if allowed.reads else None

    @property
    def reads_stale(self) -> bool:
        """A standby answers labelled reads of its prefix; one that is being filled or repaired holds no prefix of anything."""
        return self._follows and self._is_prefix()

    def for_writes(self) -> ActiveEpoch:
        """Returns the epoch that takes writes. Raises NotActive or Unavailable when there is none."""
        if self.writing is None:
            raise self._refusal(True)
        return self.writing

    def for_reads(self) -> ActiveEpoch:
        """Returns the epoch that answers reads. Raises NotActive or Unavailable when there is none."""
        if self.reading is None:
            raise self._refusal(False)
        return self.reading
