"""The journals and structured logs of both sites, as events in the order of their times.

What always holds: nothing is written where they are (a journal is read from a copy); each event names its place, so that every
line of a plan can; a line of a log that is no event of a gateway is left out, and counted.
Source: gateway/logs.py (the log), switchover/operations/sql_journal.py (the journal).
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from chaos.harness.incident.record import Asked, Event, Record
from switchover.operations.document import Operation
from switchover.operations.sql_journal import SqlJournal
from twinlog.errors import InvalidInput, TwinlogError, words

SAID_MAX = 110  # letters of an event in a comment
ENTRIES_MAX = 100_000
OPERATIONS_MAX = 10_000
_SQLITE = b"SQLite format 3\0"
_STARTED = "Started server process"
_TRAIL = "trail"  # the audit trail says what other lines say, too; begins the names of its events
_OWN_WORDS = ("serving", "role", "serves")  # of which `site` names the writer


def read(given: Sequence[tuple[str, Path]]) -> Record:
    """Reads pairs of a site and a folder or file. Raises InvalidInput where there is nothing to read."""
    events: list[Event] = []
    asked: list[Asked] = []
    unread = 0
    for site, path in given:
        files = _files(path) if path.is_dir() else [path]
        if not files:
            raise InvalidInput(f"{path} has no journal.db and no log (*.log): name another folder of site {site}, or a file")
        for file in files:
            try:
                data = file.read_bytes()
            except OSError as error:
                raise InvalidInput(f"{file} cannot be read: {words(error)}") from error
            if data.startswith(_SQLITE):
                asked += _journal(site, file)
            else:
                found, others = _log(site, file, data)
                events += found
                unread += others
    if not events and not asked:
        raise InvalidInput("no event and no operation was found: are these the logs and journals of gateways?")
    return Record(sorted(events, key=lambda each: each.at_s), sorted(asked, key=lambda each: each.at_s), unread)


def _files(folder: Path) -> list[Path]:
    found = [path for path in (folder / "journal.db", folder / "data" / "journal.db") if path.is_file()]
    return found + sorted(folder.glob("*.log"))


# ---- the log
def _log(site: str, path: Path, data: bytes) -> tuple[list[Event], int]:
    """Events, and how many lines are none. Raises InvalidInput where the log is that of another site."""
    events, unread = [], 0
    for number, line in enumerate(data.splitlines(), 1):
        try:
            fields = msgspec.json.decode(line)
            name, moment = str(fields.pop("event")), str(fields["timestamp"])
            at_s = datetime.fromisoformat(moment).astimezone(UTC).timestamp()
        except (msgspec.DecodeError, KeyError, ValueError, AttributeError, TypeError):
            unread += bool(line.strip())
            continue
        if name.startswith(_TRAIL):
            continue
        if name in _OWN_WORDS and fields.get("site") not in (None, site):
            raise InvalidInput(f"{path} is the log of site {fields['site']}, not of site {site}")
        name = "started" if name.startswith(_STARTED) else name
        source = f"{site}: {path.name} line {number}, {moment[:23]}: {_said(name, fields)}"
        events.append(Event(at_s, site, name, fields, source))
    return events, unread


def _said(name: str, fields: Mapping[str, Any]) -> str:
    """The event in a few words."""
    shown = [fields.get(each) for each in ("about", "role", "code", "error", "detail", "why")]
    return " ".join(" ".join(str(each) for each in (name, *shown) if each).split())[:SAID_MAX]


# ---- the journal
def _journal(site: str, path: Path) -> list[Asked]:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "journal.db"
        for end in ("", "-wal"):  # what the gateway wrote last is beside the file
            beside = path.with_name(path.name + end)
            if beside.exists():
                shutil.copyfile(beside, copy.with_name(copy.name + end))
        try:
            return asyncio.run(_asked(site, copy))
        except TwinlogError as error:
            raise InvalidInput(f"{path} cannot be read as the journal of a site: {error.message}") from error


async def _asked(site: str, copy: Path) -> list[Asked]:
    journal = SqlJournal(f"sqlite:///{copy}")
    try:
        operations = {each.id: each for each in await journal.operations(OPERATIONS_MAX)}
        history = await journal.history(ENTRIES_MAX)
    finally:
        await journal.close()
    found = []
    for entry in reversed(history):
        operation = operations.get(entry.operation)
        if operation is None or operation.dry_run or entry.step is not None:
            continue
        if entry.event in ("started", "resumed", "abort asked"):
            moment = datetime.fromtimestamp(entry.wall_ms / 1000, UTC).isoformat(timespec="milliseconds")[:23]
            found.append(Asked(
                entry.wall_ms / 1000, site, entry.kind, entry.to, entry.actor, entry.event, _ended(operation),
                operation.options.get("accept_data_loss") is not None,
                f"{site}: journal, operation {entry.operation}, {moment}: {entry.kind} {entry.event} by {entry.actor}",
            ))
    return found


def _ended(operation: Operation) -> str:
    if operation.error is None:
        return operation.state
    return f"{operation.state}: {operation.error.code}" + (f" at step {operation.error.step}" if operation.error.step else "")
