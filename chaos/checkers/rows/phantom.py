"""P5, I2: nothing appears that nobody wrote; a definite reject never appears; an unknown write settles once.

What always holds: each value that a client or a site's storage showed was written by somebody, before it was seen, as a
whole; an unknown write that was seen counts from then on as there: at the end it or something newer stands on both sites.
Only tables with unique values are looked at; of others, only rows that nobody ever wrote are found. Of all of them: a read is
answered with the row that it asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from chaos.checkers.rows.facts import Seen, TableFacts, Write, facts_of
from chaos.checkers.violation import Violation
from chaos.history.history import Call, Dump, DumpedRow, History

NAME = "phantom"


def check(history: History) -> list[Violation]:
    found: list[Violation] = []
    for table in facts_of(history).tables.values():
        if NAME not in table.use.checks:
            continue
        found += _seen(table)
        for dump in history.dumps:
            found += _stored(table, dump)
            if table.use.unique:
                found += _gone(table, dump)
                found += _back(table, dump)
    return found + [violation for call in history.calls for violation in _another(call)]


def _another(call: Call) -> Iterator[Violation]:
    """A read of one row that was answered with another one: the value may be right, there."""
    if call.operation.kind == "read" and call.outcome is not None:
        for row in call.outcome.rows:
            if row.key != call.operation.key:
                asked = f"row {call.operation.key} of {call.operation.table}"
                sentence = f"Call {call.id} asked for {asked}, and was shown {row.key}."
                yield Violation("P5", NAME, sentence, (call.id,), (call.invoked_s, call.returned_s or call.invoked_s))


def _seen(table: TableFacts) -> Iterator[Violation]:
    told: set[Any] = set()  # one violation for each value
    for key, facts in table.keys.items():
        written = facts.writes if table.use.unique else None
        for seen in (*facts.seen, *facts.variants):
            if seen.row is None or seen.value in told:
                continue
            if written is None:
                problem = None if any(write.result != "not_applied" for write in facts.writes) else "which nobody wrote"
            else:
                problem = _problem(table, key, seen.value, seen.row.row, seen)
            if problem is not None:
                told.add(seen.value)
                sentence = f"Row {key} of {table.use.name} was read with value {seen.value!r}, {problem}."
                yield Violation("P5", NAME, sentence, (seen.call.id,), (seen.returned_s,))


def _stored(table: TableFacts, dump: Dump) -> Iterator[Violation]:
    for key, stored in dump.tables.get(table.use.name, {}).items():
        value = table.value_of(stored)
        if table.use.unique:
            problem = _problem(table, key, value, stored.row, None)
        else:
            facts = table.keys.get(key)
            written = facts is not None and any(write.result != "not_applied" for write in facts.writes)
            problem = None if written else "which nobody wrote"
        if problem is not None:
            sentence = f"Site {dump.site} holds row {key} of {table.use.name} with value {value!r}, {problem}."
            yield Violation("P5", NAME, sentence, (), (dump.at_s,))


def _problem(table: TableFacts, key: str, value: Any, row: dict[str, Any], seen: Seen | None) -> str | None:
    """Returns a sentence that names the fault of `row`, or None."""
    write = table.by_value.get(value)
    if write is None or write.mutation.key != key:
        return "which nobody wrote there"
    if write.result == "not_applied":
        return f"which by the answer to call {write.call.id} is not applied"
    if seen is not None and seen.returned_s < write.invoked_s:
        return f"which call {write.call.id} wrote only later"
    if write.mutation.op == "upsert":
        written = write.mutation.row
        for column, content in written.items():
            if column in row and row[column] != content and not _updated(table, key, column):
                return f"but with {column} = {row[column]!r} instead of the {content!r} that call {write.call.id} wrote with it"
        lacking = next((name for name in written if name not in row and name not in table.moved), None)
        if lacking is not None:
            return f"but without {lacking}, which call {write.call.id} wrote with it, and which nobody dropped or renamed"
    return None


def _updated(table: TableFacts, key: str, column: str) -> bool:
    return any(write.mutation.op == "update" and column in write.mutation.row for write in table.keys[key].writes)


def _gone(table: TableFacts, dump: Dump) -> Iterator[Violation]:
    """Unknown writes that were seen, and are not there any more."""
    rows = dump.tables.get(table.use.name, {})
    for key, facts in table.keys.items():
        versions = {seen.row.version: seen for seen in facts.seen if seen.row is not None}
        if not versions:
            continue
        version = max(versions)
        stored, seen = rows.get(key), versions[version]
        if (stored.version if stored is not None else 0) >= version or _deleted(facts.deletes, version, stored):
            continue
        write = table.by_value.get(seen.value)
        if write is not None and write.lost:
            continue
        held = "no row" if stored is None else f"version {stored.version}"
        sentence = (
            f"Row {key} of {table.use.name} was read at version {version} (value {seen.value!r}),"
            f" but at the end site {dump.site} holds {held}."
        )
        yield Violation("P5", NAME, sentence, (seen.call.id,), (seen.returned_s, dump.at_s))


def _back(table: TableFacts, dump: Dump) -> Iterator[Violation]:
    """Writes that are there at the end, although after their time somebody had seen that they were not."""
    for key, stored in dump.tables.get(table.use.name, {}).items():
        write = table.by_value.get(table.value_of(stored))
        if write is None or write.mutation.key != key:
            continue
        for seen in table.keys[key].seen:
            if seen.invoked_s > write.end_s and seen.value != write.value:
                sentence = (
                    f"Site {dump.site} holds row {key} of {table.use.name} as call {write.call.id} ({write.result}) wrote it,"
                    f" although call {seen.last_call.id} had seen something else there when that was settled."
                )
                ids = (write.call.id, seen.last_call.id)
                yield Violation("P5", NAME, sentence, ids, (write.end_s, seen.invoked_s, dump.at_s))
                break


def _deleted(deletes: list[Write], version: int, stored: DumpedRow | None) -> bool:
    return stored is None and any(write.version > version or not write.version for write in deletes)
