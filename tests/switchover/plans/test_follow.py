"""The result of a degrade, for a site that is open and for one that is closed; with whom a rejoin catches up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from remote_log.replication.messages import StatusReply
from switchover.plans.follow import Follow, degrade_plan
from switchover.roles.table import Role
from switchover.site_control import SiteControl
from twinlog.errors import Refused


@pytest.mark.parametrize(("role", "says"), [
    (Role.DOWNGRADE_ACTIVE, {"mode": "async"}),
    (Role.CLOSED, {"mode": "async", "writes": "not yet: site a is closed, and opens by itself after this"}),
])
async def test_a_degrade_of_a_closed_site_says_that_it_takes_no_writes_yet(role: Role, says: dict[str, Any]) -> None:
    async def degrade(automatic: bool) -> None:
        assert not automatic

    control = cast(SiteControl, SimpleNamespace(site="a", role=role, degrade=degrade))
    [step] = degrade_plan(control, {}).steps
    assert await step.run() == says


@pytest.mark.parametrize("role", [role for role in Role if role is not Role.SWITCHING])
async def test_a_rejoin_catches_up_with_an_active_and_with_nobody_else(role: Role) -> None:
    """The other site may have lost the pair since the rejoin began: what it has committed is no goal any more."""
    reply = StatusReply("b", role, 3, "sync", 90, 90, 0, "")

    async def status(timeout_s: float) -> StatusReply:
        return reply

    control = cast(SiteControl, SimpleNamespace(parts=SimpleNamespace(other_site=SimpleNamespace(status=status))))
    rejoin = Follow(control, {}, cast(Any, None), cast(Any, None))
    if role in (Role.ACTIVE, Role.DOWNGRADE_ACTIVE):
        assert await rejoin._active() is reply
    else:
        with pytest.raises(Refused, match=f"site b is {role}: there is no active to rejoin"):
            await rejoin._active()
