"""P1, I1: what was acknowledged is there on both sites, or something newer is; asynchronous writes may be in quarantine.

What always holds: of the acknowledged writes of a row only the newest is looked for, for the others are superseded by it;
a row is newer if its version is, and if whoever wrote it did not end before the acknowledged write was begun.
"""

from __future__ import annotations

from typing import Any

from chaos.checkers.rows.facts import KEEP, TableFacts, Write, facts_of
from chaos.checkers.violation import Violation
from chaos.history.history import Dump, DumpedRow, History

NAME = "acknowledged"


def check(history: History) -> list[Violation]:
    """Silent about a run whose storage was not dumped, and about tables that are not there to be judged."""
    found: list[Violation] = []
    for table in facts_of(history).tables.values():
        if NAME not in table.use.checks:
            continue
        newest = _newest(table)
        for dump in history.dumps:
            rows = dump.tables.get(table.use.name, {})
            found += [v for key, write in newest.items() if (v := _missing(table, dump, key, write, rows.get(key))) is not None]
    return found


def _newest(table: TableFacts) -> dict[str, Write]:
    """Returns the acknowledged write with the largest version of each row."""
    newest: dict[str, Write] = {}
    for key, facts in table.keys.items():
        best: Write | None = None
        for write in facts.writes:
            if write.result == "ok" and not write.lost and write.version and (best is None or write.version > best.version):
                best = write
        if best is not None:
            newest[key] = best
    return newest


def _missing(table: TableFacts, dump: Dump, key: str, write: Write, stored: DumpedRow | None) -> Violation | None:
    if stored is None:
        if write.value is None or any(other.version > write.version or not other.version for other in table.keys[key].deletes):
            return None
        what = "no row is there"
    elif stored.version == write.version:
        value = table.value_of(stored)
        if write.value is KEEP or value == write.value:
            return None
        what = f"under its version stands value {value!r}"
    elif stored.version < write.version:
        what = f"version {stored.version} is there, which is older"
    elif (older := _written_before(table, table.value_of(stored), write)) is not None:
        what = f"version {stored.version} is there with what call {older.call.id} had written before"
    else:
        return None
    ack = write.call.outcome.ack if write.call.outcome is not None else None
    mode = ack.mode if ack is not None else "sync"
    sentence = (
        f"Row {key} of {table.use.name}: call {write.call.id} was acknowledged ({mode}) with version {write.version},"
        f" but at site {dump.site} {what}" + (", and no manifest names it." if mode == "async" else ".")
    )
    promise = "P1" if mode == "sync" else "P6"
    return Violation(promise, NAME, sentence, (write.call.id,), (write.invoked_s, write.end_s, dump.at_s))


def _written_before(table: TableFacts, value: Any, write: Write) -> Write | None:
    """The write that put `value` there, if it ended before `write` began: then it cannot be the newer one."""
    other = table.by_value.get(value) if table.use.unique else None
    return other if other is not None and other.result == "ok" and other.end_s < write.invoked_s else None
