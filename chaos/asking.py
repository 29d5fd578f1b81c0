"""Operations as the calls of the client library, and its answers as outcomes: what the simulator's client and the one that
talks to real processes share.

What always holds: an error is an outcome, and only an error that leaves it open whether a write was applied makes it unknown.
This module is pure.
"""

from __future__ import annotations

from typing import Any

from chaos.history.history import Condition, Mutation, Operation, Outcome, Result, Row
from chaos.workloads.workload import KEY
from twinlog import calls
from twinlog.calls import TypedCall
from twinlog.errors import OutcomeUnknown, TwinlogError


def asked(operation: Operation, key: str) -> TypedCall[Any]:
    """The call of everything but a scan; `key` is the idempotency key of a write."""
    table = operation.table
    if operation.kind == "read":
        return calls.get(table, operation.key, None, operation.as_of)
    if operation.kind == "schema":
        if "name" in operation.body:
            return calls.create_table(operation.body, key)
        return calls.alter_table(table, operation.body, key)
    if operation.kind == "conditional":
        body = {
            "conditions": [_condition(each) for each in operation.conditions],
            "mutations": [_mutation(each) for each in operation.mutations],
        }
        return calls.check(table, operation.key, body, key)
    if operation.kind == "batch":
        return calls.mutate(table, [_mutation(each) for each in operation.mutations], key)
    version = operation.conditions[0].version if operation.conditions else None
    return _single(table, operation.mutations[0], key, version)


def asked_page(operation: Operation, limit: int, token: str | None) -> TypedCall[calls.Page]:
    """The call of the next page of a scan."""
    return calls.scan(
        operation.table, start=operation.start, end=operation.end, where=(), columns=None, limit=limit, as_of=operation.as_of,
        reverse=operation.reverse, snapshot=operation.snapshot, page_token=token,
    )


def shown(row: dict[str, Any], version: int) -> Row:
    return Row(row[KEY], {name: value for name, value in row.items() if name != KEY}, version)


def is_absence(operation: Operation, error: TwinlogError) -> bool:
    """The answer to a read: there is no such row."""
    return operation.kind == "read" and error.code == "not-found" and "key" in error.fields


def failed(operation: Operation, error: TwinlogError, site: str, epoch: int | None) -> Outcome:
    unknown = isinstance(error, OutcomeUnknown) or error.fields.get("outcome") == "unknown"
    is_read = operation.kind in ("read", "scan")
    result: Result = "unknown" if unknown and not is_read else "not_applied"
    return Outcome(result, error=error.code, site=site, epoch=epoch)


def _single(table: str, mutation: Mutation, key: str, version: int | None) -> TypedCall[Any]:
    if mutation.op == "delete":
        return calls.delete(table, mutation.key, key, calls.preconditions(version, False))
    if mutation.op == "update":
        return calls.update(table, mutation.key, mutation.row, key, {})
    return calls.put(table, mutation.key, mutation.row, key, calls.preconditions(version, mutation.op == "insert"))


def _mutation(mutation: Mutation) -> dict[str, Any]:
    key = {KEY: mutation.key}
    if mutation.op == "delete":
        return {"op": "delete", "key": key}
    return {"op": mutation.op, "row": {**key, **mutation.row}}


def _condition(condition: Condition) -> dict[str, Any]:
    """As in the body of a check-and-mutate."""
    if condition.version is not None:
        return {"version": condition.version}
    if condition.exists is not None:
        return {"exists": condition.exists}
    return {"column": condition.column, "op": condition.op, "value": condition.value}
