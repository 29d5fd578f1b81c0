"""The figures that a run is held to: how long a site may be behind the register, by the faults of the plan."""

from __future__ import annotations

import pytest

from chaos.fault_lines import Fault
from chaos.harness.limits import MODE_SLACK_S, limits_of


@pytest.mark.parametrize(("kind", "target", "how", "more_s"), [
    ("crash", "pg-w", "", 5.0), ("pause", "pg-w", "", 5.0), ("black-hole", "a>pg-w", "", 5.0),
    ("terminate", "toxiproxy", "", 5.0), ("pause", "a", "", 5.0), ("disk-hangs", "a", "disk", 5.0),
    ("disk-hangs", "a", "wal", 0.0), ("crash", "a", "", 0.0), ("crash", "pg-a", "", 0.0), ("pause", "m1", "", 0.0),
    ("latency", "a-b", "", 0.0),
])
def test_what_holds_up_a_change_of_the_register_gives_time_for_it(kind: str, target: str, how: str, more_s: float) -> None:
    assert limits_of([Fault(1.0, kind, target, 5.0, how)]).mode_slack_s == MODE_SLACK_S + more_s
