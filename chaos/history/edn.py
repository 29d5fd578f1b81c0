"""A history in the form that Jepsen's checkers read: EDN, an invocation and a completion for each call.

What always holds: a completion is `:ok`, `:fail` (definitely not applied) or `:info` (unknown), and a process whose outcome is
unknown never asks again: its client continues under a new number. Appends are transactions as Elle takes them; reads and
whole-row writes of one row are `[key value]`; everything else shows its rows.
This module is pure.
"""

from __future__ import annotations

import json
from typing import Any

from chaos.history.history import Call, History

_TYPES = {"ok": ":ok", "not_applied": ":fail", "unknown": ":info"}
_KIND_OF_TABLE = {"appends": "txn"}


def edn(history: History) -> str:
    """One map a line, in the order of time."""
    calls = [call for call in history.calls if call.operation.kind != "schema"]
    processes = _processes(calls)
    events: list[tuple[float, int, str]] = []
    for call in calls:
        function, asked, answered = _shown(call)
        process = processes[call.id]
        events.append((call.invoked_s, 0, _event(":invoke", process, function, asked, call.invoked_s)))
        if call.outcome is not None and call.returned_s is not None:
            kind = _TYPES[call.outcome.result]
            events.append((call.returned_s, 1, _event(kind, process, function, answered, call.returned_s)))
    events.sort(key=lambda event: event[:2])
    return "".join(f"{{:index {index}, {event}}}\n" for index, (_, _, event) in enumerate(events))


def _processes(calls: list[Call]) -> dict[int, int]:
    """Call -> number of its process."""
    numbers: dict[str, int] = {}
    found: dict[int, int] = {}
    used = 0
    for call in sorted(calls, key=lambda call: call.invoked_s):
        if call.process not in numbers:
            numbers[call.process] = used
            used += 1
        found[call.id] = numbers[call.process]
        if call.outcome is None or call.outcome.result == "unknown":
            del numbers[call.process]
    return found


def _event(kind: str, process: int, function: str, value: str, at_s: float) -> str:
    return f":type {kind}, :process {process}, :f :{function}, :value {value}, :time {round(at_s * 1e9)}"


def _shown(call: Call) -> tuple[str, str, str]:
    """The function, its value when it is invoked, and when it is completed."""
    operation, outcome = call.operation, call.outcome
    rows = outcome.rows if outcome is not None else ()
    if _KIND_OF_TABLE.get(operation.table) == "txn" and operation.kind in ("read", "conditional"):
        return _transaction(call)
    if operation.kind == "read":
        return "read", f"[{_text(operation.key)} nil]", f"[{_text(operation.key)} {_value(rows[0].row) if rows else 'nil'}]"
    if operation.kind == "scan":
        return "scan", "nil", "{" + ", ".join(f"{_text(row.key)} {_value(row.row)}" for row in rows) + "}"
    changes = [f"[{_text(each.key)} {_value(each.row) if each.op != 'delete' else 'nil'}]" for each in operation.mutations]
    value = changes[0] if len(changes) == 1 else f"[{' '.join(changes)}]"
    return operation.kind, value, value


def _transaction(call: Call) -> tuple[str, str, str]:
    operation, key = call.operation, _text(call.operation.key)
    if operation.kind == "read":
        rows = call.outcome.rows if call.outcome is not None else ()
        seen = rows[0].row["value"].split() if rows else []
        return "txn", f"[[:r {key} nil]]", f"[[:r {key} [{' '.join(map(_text, seen))}]]]"
    append = f"[[:append {key} {_text(operation.mutations[0].row['value'].split()[-1])}]]"
    return "txn", append, append


def _value(row: dict[str, Any]) -> str:
    """The value column, or the whole row where there is more to see."""
    return _text(row["value"]) if set(row) <= {"value", "copy"} and "value" in row else _text(row)


def _text(value: Any) -> str:
    if value is None:
        return "nil"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_text(key)} {_text(each)}" for key, each in sorted(value.items())) + "}"
    return json.dumps(value)
