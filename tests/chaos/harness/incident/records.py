"""Journals and logs of incidents for tests: kept ones of real runs, and lines that a test writes."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from switchover.operations.attempt import history_entry
from switchover.operations.document import Operation, OperationError
from switchover.operations.sql_journal import SqlJournal

KEPT = Path(__file__).parent / "kept"


async def write_journal(path: Path, asked: list[dict[str, Any]]) -> None:
    """A journal with these operations, in their order."""
    path.parent.mkdir(parents=True, exist_ok=True)
    journal = SqlJournal(f"sqlite:///{path}")
    for each in asked:
        error = None if each["state"] == "succeeded" else OperationError("refused", "it is refused", {}, "preflight")
        operation = Operation(
            each["id"], each["kind"], each["to"], each.get("options", {}), each["actor"], each["wall_ms"], (),
            dry_run=each.get("dry_run", False), state=each["state"], error=error,
        )
        await journal.create(operation, history_entry(operation, each["wall_ms"], "started", each["actor"]))
        for event in each.get("events", ()):
            await journal.save(operation, history_entry(operation, each["wall_ms"] + 1000, event, each["actor"]))
    await journal.close()


async def kept(name: str, folder: Path) -> list[tuple[str, Path]]:
    """The places of a kept incident, its journals made anew in `folder`."""
    asked = json.loads((KEPT / name / "asked.json").read_bytes())
    places = []
    for site in "ab":
        await write_journal(folder / site / "journal.db", [each for each in asked if each["site"] == site])
        (folder / site / "site.log").write_bytes((KEPT / name / f"{site}.log").read_bytes())
        places.append((site, folder / site))
    return places


def log_line(at_s: float, site: str, event: str, **fields: Any) -> str:
    moment = datetime.fromtimestamp(1_790_000_000 + at_s, UTC).isoformat().replace("+00:00", "Z")
    return json.dumps({**fields, "event": event, "site": site, "pair": "p", "timestamp": moment}) + "\n"
