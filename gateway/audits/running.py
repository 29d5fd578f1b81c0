"""The audits that run now, as they say themselves: in memory, so that a restart forgets them until they report again.

What always holds: how long one has been silent is by this site's own clock, which no report can set; there are RUNNING_MAX at
most, and the one that has been silent longest gives way; one whose end was noted is not there any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from msgspec import Struct

from storage.clock import Clock
from twinlog.wire.audit_report import AuditProgress

RUNNING_MAX = 8
SILENT_S = 15.0  # one that reports does so every few seconds
FORGOTTEN_S = 3600.0


@dataclass(frozen=True, slots=True)
class _Reported:
    progress: AuditProgress
    at_s: float


class RunningAudit(Struct, frozen=True):
    """`state`: silent when it has not reported for longer than one that runs ever is."""

    id: str
    progress: AuditProgress
    silent_s: float
    state: Literal["running", "silent", "stopped"]


class RunningAudits:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._reported: dict[str, _Reported] = {}

    def report(self, audit: str, progress: AuditProgress) -> None:
        self._reported[audit] = _Reported(progress, self._clock.monotonic_s())
        if len(self._reported) > RUNNING_MAX:
            del self._reported[min(self._reported, key=lambda one: self._reported[one].at_s)]

    def ended(self, audit: str) -> None:
        self._reported.pop(audit, None)

    def all(self) -> list[RunningAudit]:
        """The one that reported last is the first."""
        now_s = self._clock.monotonic_s()
        for audit, one in list(self._reported.items()):
            if now_s - one.at_s > FORGOTTEN_S:
                del self._reported[audit]
        found = sorted(self._reported.items(), key=lambda one: -one[1].at_s)
        return [_shown(audit, one, now_s - one.at_s) for audit, one in found]

    def get(self, audit: str) -> RunningAudit | None:
        return next((one for one in self.all() if one.id == audit), None)


def _shown(audit: str, one: _Reported, silent_s: float) -> RunningAudit:
    state: Literal["running", "silent", "stopped"] = "silent" if silent_s > SILENT_S else "running"
    return RunningAudit(audit, one.progress, round(silent_s, 1), "stopped" if one.progress.is_stopped else state)
