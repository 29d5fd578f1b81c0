"""The plan that lets a site continue behind a schema change that its database refuses: the change is applied, and not shown.

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


def check_standing(site: str, engine: StorageEngine, options: dict[str, Any]) -> RefusedChange:
    """Returns the change at which the storage stands. Raises Refused when it is not the one of `options`: `epoch` and `seq`."""
    change, epoch, seq = standing_at(engine), options.get("epoch"), options.get("seq")
    if change is None:
        raise Refused(f"site {site} stands at no schema change that its database refuses: there is nothing to skip")
    if (change.epoch, change.seq) != (epoch, seq):
        raise Refused(
            f"site {site} stands at sequence {change.seq} of epoch {change.epoch}, not at {seq} of {epoch}: {change.problem}",
            epoch=change.epoch, seq=change.seq,
        )
    return change


def skip_plan(site: str, engine: StorageEngine, options: dict[str, Any]) -> Plan:
    """The steps for the change that `options` name."""

    async def check() -> dict[str, Any]:
        change = check_standing(site, engine, options)
        return {"epoch": change.epoch, "seq": change.seq, "problem": change.problem}

    async def leave() -> dict[str, Any]:
        await leave_unshown(engine, check_standing(site, engine, options))
        return {}

    return Plan("skip", [
        Step("check", check, "the database refuses exactly this schema change", abortable=True, dry=True),
        Step("leave", leave, "note that the change is applied and not shown in the database"),
    ])
