"""The result of a degrade, for a site that is open and for one that is closed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from switchover.plans.follow import degrade_plan
from switchover.roles.table import Role
from switchover.site_control import SiteControl


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
