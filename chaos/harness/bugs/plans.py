"""A short plan for each planted bug, in which it must show: the same as in the scenario that it names, in less time.

What always holds: every bug has one (a test compares). A pair that a bug holds up for ever is given up after RECOVERY_S.
"""

from __future__ import annotations

from collections.abc import Mapping

RECOVERY_S = 40

FAILOVER = "workload sets\nseconds 8\nat 2 black-hole a>b for 2\nat 3 crash a\nat 3.2 failover b\n"
WOKEN = "workload registers\nseconds 12\nat 3 pause a for 7 how taken\nat 3.2 failover b\n"
SLOW = "workload registers\nseconds 10\nat 1 latency c-ab for 5 how 20/10\nat 7 reset a-b for 1\n"
SYNC = "workload sets\nseconds 8\nat 2 sync-fails a for 4 how wal/10\n"
ALONE = "workload sets\nseconds 9\nat 1 terminate b\nat 2 degrade active\nat 6 power-loss active for 1 how lost\n"
BOTH = "workload sets\nseconds 16\nat 3 power-loss both how lost\nat 4 site-lost a\nat 4.5 start b\nat 14 failover b\n"
STANDBY = "workload sets\nseconds 6\nat 3 power-loss standby for 1 how lost\n"
TURNED = "workload sets\nseconds 8\nat 3 crash a for 3\nat 3.2 rot a how wal/value\nat 3.5 failover b\n"
OLDER_WAL = "workload sets\nseconds 10\nat 2 disk-back a for 4\n"
OLDER_REGISTER = "workload registers\nseconds 20\nat 2 coordinator-back w for 6\nat 3 switchover b\nat 9 crash a for 1\n"
RESET = "workload registers\nseconds 6\nat 2 reset c-ab for 0.5\n"
LONG_LIVES = "workload registers\nseconds 130\nat 2 reset c-ab for 0.5\n"  # as memory is judged
SEALED = SYNC.replace("for 4", "for 2.5") + "at 5 sync-fails a for 2 how wal/10\nat 7.5 crash a for 0.5\n"
CUT_OFF = "workload sets\nseconds 12\nat 1 degrade active\nat 3 black-hole a-b for 8\n"
STUCK = "workload sets\nseconds 16\nat 2 disk-hangs standby for 13 how dfs\n"
BEHIND = "workload sets\nseconds 8\nat 2 black-hole a>b for 5\n"
DEGRADED = "workload sets\nseconds 6\nat 1 degrade active\n"
GIVEN_UP = (
    "workload sets\nseconds 20\nat 1 degrade active\nat 3 black-hole a-b for 3\nat 5 crash a\n"
    "at 7 failover b how accept-data-loss\nat 11 start a\n"
)
SET_BACK = (  # it wakes when it has lost its role, however long that takes, and must not learn so before it has answered
    "workload registers\nseconds 14\nat 2 pause a for 6 how taken\nat 2.2 failover b\nat 4 clock-jump a how -3600\n"
    "at 4 black-hole b>a for 18\n"
    + "".join(f"at 4 wait-at a for 18 how peer_dfs.list.before/{nth}\n" for nth in (1, 2, 3))
)
UNTOLD = "workload sets\nseconds 14\nat 2 terminate b for 9\nat 2.5 fail-at a for 3 how coordinator.force.before\n"
UNTOLD += "at 3 degrade active\n"
PLANS: Mapping[str, str] = {
    "ack-before-remote": FAILOVER, "serves-when-woken": WOKEN, "answer-of-another": SLOW, "syncs-again": SYNC,
    "wal-not-synced": ALONE, "segment-name-not-synced": ALONE, "remote-log-not-synced": BOTH, "remote-name-not-synced": BOTH,
    "note-not-synced": STANDBY,
    "ignore-crc": TURNED, "own-disk-alone": OLDER_WAL, "believes-an-older-register": OLDER_REGISTER,
    "leaks-a-descriptor": RESET, "leaks-memory": LONG_LIVES, "keeps-every-segment": SEALED,
    "nothing-at-risk": CUT_OFF, "always-well": STUCK, "always-fresh": BEHIND, "metric-of-before": DEGRADED,
    "names-another-row": GIVEN_UP, "wall-clock-lease": SET_BACK, "degrades-first": UNTOLD,
}


def plan_of(bug: str) -> str:
    """The text of its plan."""
    return f"recovery {RECOVERY_S}\n{PLANS[bug]}"
