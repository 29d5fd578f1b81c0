"""A view says who asked for a role change: a monitor, or somebody else."""

from __future__ import annotations

import pytest

from switchover.monitor.views import RoleChange


@pytest.mark.parametrize(("actor", "by_monitor"), [
    ("monitor (127.0.0.1)", True), ("token watch, as monitor (127.0.0.1)", True),
    ("certificate cn:watch, as monitor (::1)", True),
    ("token monitor-of-shop (127.0.0.1)", False), ("token ann, as ann@desk (127.0.0.1)", False), ("10.0.0.7", False),
])
def test_a_monitor_is_known_behind_its_identity(actor: str, by_monitor: bool) -> None:
    assert RoleChange("o-1", "failover", actor, 1.0).by_monitor is by_monitor
