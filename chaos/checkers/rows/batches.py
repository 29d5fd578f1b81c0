"""All or nothing: at no moment is a part of a batch to be seen, and at the end none is in storage.

Looks at tables with unique values, where each row of a batch is known by its own. What always holds: a batch takes effect at
one moment, so once one of its rows was seen, whoever begins to look later finds all of them, or newer ones. Scans are no
snapshots: rows of one look are compared with each other only if it was made `as_of` one version, or of a snapshot.
"""

from __future__ import annotations

from typing import Any

from chaos.checkers.rows.facts import KeyFacts, TableFacts, Write, facts_of
from chaos.checkers.violation import Violation
from chaos.history.history import Call, Dump, DumpedRow, History

NAME = "batches"


def check(history: History) -> list[Violation]:
    found: list[Violation] = []
    for table in facts_of(history).tables.values():
        if NAME not in table.use.checks or not table.use.unique:
            continue
        batches: dict[int, list[Write]] = {}
        for facts in table.keys.values():
            for write in facts.writes:
                if len(write.call.operation.mutations) > 1 and write.value is not None and not write.lost:
                    batches.setdefault(write.call.id, []).append(write)
        for writes in batches.values():
            if len(writes) > 1:
                found += _seen_in_part(table, writes)
        for dump in history.dumps:
            found += [v for writes in batches.values() if (v := _stored_in_part(table, dump, writes)) is not None]
        found += [v for call in table.scans if _is_one_moment(call) for v in _snapshot(table, call, batches)]
    return found


def _seen_in_part(table: TableFacts, writes: list[Write]) -> list[Violation]:
    """The batch was there by `by_s`; whoever looks later must find each row at its version or a newer one."""
    by_s, witness = writes[0].end_s if writes[0].result == "ok" else float("inf"), writes[0].call
    for write in writes:
        for seen in table.keys[write.mutation.key].seen:
            if seen.returned_s < by_s and seen.row is not None and seen.value == write.value:
                by_s, witness = seen.returned_s, seen.call
    if by_s == float("inf"):
        return []
    for write in writes:
        facts = table.keys[write.mutation.key]
        for seen in facts.seen:
            if seen.invoked_s > by_s and _older(facts, write, seen.row.version if seen.row is not None else 0):
                sentence = (
                    f"Call {seen.last_call.id} did not see row {write.mutation.key} of {table.use.name} as batch"
                    f" {write.call.id} wrote it, although call {witness.id} had seen the batch before."
                )
                ids = tuple(dict.fromkeys((write.call.id, witness.id, seen.last_call.id)))
                return [Violation("P3", NAME, sentence, ids, (by_s, seen.invoked_s))]
    return []


def _stored_in_part(table: TableFacts, dump: Dump, writes: list[Write]) -> Violation | None:
    rows = dump.tables.get(table.use.name, {})
    here = [write for write in writes if (row := rows.get(write.mutation.key)) and table.value_of(row) == write.value]
    if not here or len(here) == len(writes):
        return None
    gone = [write for write in writes if _older(table.keys[write.mutation.key], write, _version(rows.get(write.mutation.key)))]
    if not gone:
        return None
    names = ", ".join(write.mutation.key for write in gone)
    sentence = (
        f"Site {dump.site} holds row {here[0].mutation.key} of {table.use.name} as batch {here[0].call.id} wrote it,"
        f" but not {names}, nor anything newer there."
    )
    return Violation("P5", NAME, sentence, (here[0].call.id,), (dump.at_s,))


def _snapshot(table: TableFacts, call: Call, batches: dict[int, list[Write]]) -> list[Violation]:
    """A complete look at one moment shows a batch whole, or what is newer."""
    outcome = call.outcome
    if outcome is None or not outcome.complete or call.operation.start is not None or call.operation.end is not None:
        return []
    rows: dict[str, Any] = {row.key: row for row in outcome.rows}
    for row in outcome.rows:
        shown = table.by_value.get(row.row.get(table.use.value))
        for write in batches.get(shown.call.id, ()) if shown is not None else ():
            if _older(table.keys[write.mutation.key], write, _version(rows.get(write.mutation.key))):
                sentence = (
                    f"The scan of call {call.id}, of one moment, shows row {row.key} of {table.use.name} as batch"
                    f" {write.call.id} wrote it, but not row {write.mutation.key}."
                )
                times = (call.invoked_s,) if call.returned_s is None else (call.invoked_s, call.returned_s)
                return [Violation("P3", NAME, sentence, (write.call.id, call.id), times)]
    return []


def _is_one_moment(call: Call) -> bool:
    return call.operation.as_of is not None or call.operation.snapshot


def _version(row: DumpedRow | None) -> int:
    return row.version if row is not None else 0


def _older(facts: KeyFacts, write: Write, version: int) -> bool:
    """`version` of the row (0: absent) is older than what `write` made of it; without a version, nothing is claimed."""
    if version == 0:
        return not facts.deletes
    return bool(write.version) and version < write.version
