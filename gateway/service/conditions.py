"""Conditions of a write as checks on stored rows: those that a request states, and those that insert and update imply.

What a check refused under an idempotency key is remembered, as far as this process remembers: the same request gets it again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from gateway.service.port import Condition, Mutation, WriteRequest
from storage.engine import StoredRow
from storage.rows.codec import RowCodec
from storage.rows.predicates import Predicate, compile_predicates
from storage.rows.readable import readable_key
from storage.rows.schema import TableSchema
from twinlog.errors import Conflict, InvalidInput, NotFound, PreconditionFailed, TwinlogError

REFUSALS_MAX, REFUSALS_BYTES_MAX = 10_000, 32 << 20
_REFUSAL_BYTES = 750  # one of them, besides its texts: measured


class Refusals:
    """The last requests with an idempotency key that a check refused, and how. The oldest go first.

    They are not in the log: nothing was written, and a check that does not hold costs no write. So the other site does not know
    them after a failover, nor does this one after a restart, and judges the request anew. That is honest: a refusal says that
    nothing was applied up to then, and the log, which is asked first, has each request once. `size_bytes` is about what they
    take, at most REFUSALS_BYTES_MAX: a key of a row may be long.
    """

    def __init__(self) -> None:
        self._refused: OrderedDict[str, tuple[bytes, TwinlogError]] = OrderedDict()
        self.size_bytes = 0

    def note(self, key: str, digest: bytes, error: TwinlogError) -> None:
        before = self._refused.get(key)
        self._refused[key] = digest, type(error)(error.message, **error.fields)
        self.size_bytes += _size(key, error) - (0 if before is None else _size(key, before[1]))
        while len(self._refused) > REFUSALS_MAX or self.size_bytes > REFUSALS_BYTES_MAX:
            oldest, (_, gone) = self._refused.popitem(last=False)
            self.size_bytes -= _size(oldest, gone)

    def repeated(self, key: str, digest: bytes) -> TwinlogError | None:
        """Returns what the request under `key` was refused with. Raises InvalidInput when it was a different request."""
        found = self._refused.get(key)
        if found is None:
            return None
        check_same_request(key, found[0], digest)
        return type(found[1])(found[1].message, **found[1].fields)


def _size(key: str, error: TwinlogError) -> int:
    return _REFUSAL_BYTES + len(key) + len(error.message) + sum(len(str(value)) for value in error.fields.values())


def check_same_request(key: str, known: bytes, digest: bytes) -> None:
    if known != digest:
        raise InvalidInput(f"the idempotency key {key!r} was used for a different request: use a new key", key=key)


class RowCheck(NamedTuple):
    """`holds(row)` says whether the stored row, or None, may be written; `error` with `problem` is raised where it may not."""

    table: TableSchema
    key: bytes
    holds: Callable[[StoredRow | None], bool]
    problem: str
    error: type[TwinlogError] = PreconditionFailed

    def require(self, row: StoredRow | None) -> None:
        """Raises the check's error when it does not hold for `row`."""
        if not self.holds(row):
            version = row.version if row is not None else None
            raise self.error(self.problem, key=readable_key(self.table, self.key), version=version)


def checks_of(request: WriteRequest) -> list[RowCheck]:
    """Returns the stated conditions, and the implied ones of a key's first mutation in the request.

    Raises InvalidInput for a predicate that does not fit the table, Conflict or NotFound when a later mutation of the same
    request contradicts an earlier one.
    """
    codec: RowCodec | None = None
    checks: list[RowCheck] = []
    for condition in request.conditions:
        if condition.columns and codec is None:
            codec = RowCodec(request.table)
        checks.append(RowCheck(request.table, condition.key, _holds(condition, codec), condition.problem))
    if all(mutation.op in ("upsert", "delete") for mutation in request.mutations):
        return checks
    exists_after: dict[bytes, bool] = {}
    for mutation in request.mutations:
        if mutation.op in ("insert", "update"):
            known = exists_after.get(mutation.key)
            if known is None:
                checks.append(_implied(request.table, mutation))
            elif known is (mutation.op == "insert"):
                check = _implied(request.table, mutation)
                raise check.error(
                    check.problem + " (by an earlier mutation of this batch)", key=readable_key(request.table, mutation.key)
                )
        exists_after[mutation.key] = mutation.op != "delete"
    return checks


def _implied(table: TableSchema, mutation: Mutation) -> RowCheck:
    if mutation.op == "insert":
        return RowCheck(table, mutation.key, _is_absent, "a row with this key exists already", Conflict)
    return RowCheck(table, mutation.key, _is_there, "there is no row with this key to update", NotFound)


def _is_absent(row: StoredRow | None) -> bool:
    return row is None


def _is_there(row: StoredRow | None) -> bool:
    return row is not None


def _holds(condition: Condition, codec: RowCodec | None) -> Callable[[StoredRow | None], bool]:
    predicate: Predicate | None = None
    if condition.columns and codec is not None:
        predicate = compile_predicates(codec, list(condition.columns), native=condition.native)

    def holds(row: StoredRow | None) -> bool:
        version = None if row is None else row.version
        return (
            (condition.exists is None or (row is not None) == condition.exists)
            and (condition.version is None or version == condition.version)
            and (condition.versions is None or version in condition.versions)
            and (condition.other_versions is None or version not in condition.other_versions)
            and (predicate is None or predicate(row))
        )

    return holds
