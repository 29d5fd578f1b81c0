"""The plan that lets a site go on behind a schema change that its database refuses: the change is applied, and not shown.

What always holds: only the change at which this site's storage stands is left out of sight, and only by its epoch and
sequence; the journal keeps what the database said. Nothing is left out of the log, and no row: both sites mean the same.
Source: storage/engines/unshown.py, docs/decisions/2026-11-22-a-change-that-a-database-refuses.md.
"""

from __future__ import annotations

from typing import Any

from storage.engine import RefusedChange, StorageEngine
from storage.engines.unshown import leave_unshown, standing_at
from switchover.operations.plan import Plan, Step
from twinlog.errors import Refused


def skip_plan(site: str, engine: StorageEngine, options: dict[str, Any]) -> Plan:
    """`options`: `epoch` and `seq` of the change."""

    def wanted() -> RefusedChange:
        change, asked = standing_at(engine), (options.get("epoch"), options.get("seq"))
        if change is None:
            raise Refused(f"site {site} stands at no schema change that its database refuses: there is nothing to skip")
        if (change.epoch, change.seq) != asked:
            raise Refused(
                f"site {site} stands at sequence {change.seq} of epoch {change.epoch}, not at {asked[1]} of {asked[0]}: "
                f"{change.problem}",
                epoch=change.epoch, seq=change.seq,
            )
        return change

    async def check() -> dict[str, Any]:
        return wanted()._asdict()

    async def leave() -> dict[str, Any]:
        change = wanted()
        await leave_unshown(engine, change)
        return change._asdict()

    return Plan("skip", [
        Step("check", check, "the database refuses exactly this schema change", abortable=True, dry=True),
        Step("leave", leave, "note that the change is applied and not shown in the database"),
    ])
