"""All or nothing: at no moment is a part of a batch to be seen, and at the end none is in storage.

Looks at tables with unique values, where each row of a batch is known by its own. What always holds: a batch takes effect at
one moment, so once one of its rows was seen, whoever begins to look later finds all of them, or newer ones. Scans are no
snapshots: rows of one look are compared with each other only if it was made `as_of` one version, or of a snapshot.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from itertools import accumulate
from math import inf
from typing import Any

from chaos.checkers.rows.facts import KeyFacts, Seen, TableFacts, Write, facts_of
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
        whole = [writes for writes in batches.values() if len(writes) > 1]
        looks = {key: _Looks(table.keys[key]) for key in {write.mutation.key for writes in whole for write in writes}}
        for writes in whole:
            found += _seen_in_part(table, writes, looks)
        for dump in history.dumps:
            found += [v for writes in batches.values() if (v := _stored_in_part(table, dump, writes)) is not None]
        found += [v for call in table.scans if _is_one_moment(call) for v in _snapshot(table, call, batches)]
    return found


class _Looks:
    """The looks at one row, so that most batches need not go through all of them. `first`: by value, the one that returned
    first."""

    def __init__(self, facts: KeyFacts) -> None:
        self.first: dict[Any, Seen] = {}
        present: list[tuple[float, int]] = []
        self._absent_s = -inf  # the last absence that tells something
        for seen in facts.seen:
            if seen.row is None:
                self._absent_s = self._absent_s if facts.deletes else max(self._absent_s, seen.invoked_s)
                continue
            present.append((seen.invoked_s, seen.row.version))
            known = self.first.get(seen.value)
            if known is None or seen.returned_s < known.returned_s:
                self.first[seen.value] = seen
        present.sort()
        self._times_s = [invoked_s for invoked_s, _ in present]
        self._lowest = list(accumulate((version for _, version in reversed(present)), min))[::-1]

    def may_show_older(self, write: Write, after_s: float) -> bool:
        """Says whether one that began after that found no row, or an older version."""
        if self._absent_s > after_s:
            return True
        at = bisect_right(self._times_s, after_s)
        return at < len(self._lowest) and bool(write.version) and self._lowest[at] < write.version


def _seen_in_part(table: TableFacts, writes: list[Write], looks: Mapping[str, _Looks]) -> list[Violation]:
    """The batch was there by `by_s`; whoever looks later must find each row at its version or a newer one."""
    by_s, witness = writes[0].end_s if writes[0].result == "ok" else inf, writes[0].call
    for write in writes:
        first = looks[write.mutation.key].first.get(write.value)
        if first is not None and first.returned_s < by_s:
            by_s, witness = first.returned_s, first.call
    if by_s == inf:
        return []
    for write in writes:
        if not looks[write.mutation.key].may_show_older(write, by_s):
            continue
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
