"""The conditions of a write: what each says of a stored row, what a batch implies, and which refusals are remembered."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.service import conditions
from gateway.service.conditions import REFUSALS_BYTES_MAX, Refusals, checks_of
from gateway.service.port import Condition, Mutation, WriteRequest
from storage.engine import StoredRow
from storage.rows.codec import RowCodec
from storage.rows.schema import parse_table
from tests.suite.traced import in_own_process, traced
from twinlog.errors import Conflict, InvalidInput, NotFound, PreconditionFailed

TABLE = parse_table({
    "name": "t", "primary_key": ["id"], "columns": [{"name": "id", "type": "int64"}, {"name": "n", "type": "int64"}],
}, 1)
CODEC = RowCodec(TABLE)
(KEY, VALUE), (OTHER, _) = (CODEC.encode_json_row({"id": number, "n": 5}) for number in (1, 2))
AT_7 = StoredRow(KEY, VALUE, 7)


def _passes(row: StoredRow | None, **said: Any) -> bool:
    check, = checks_of(WriteRequest(TABLE, conditions=[Condition(KEY, **said)]))
    if check.holds(row):
        check.require(row)
        return True
    with pytest.raises(PreconditionFailed) as caught:
        check.require(row)
    assert caught.value.fields["version"] == (None if row is None else row.version)
    return False


@pytest.mark.parametrize(("said", "with_row", "without"), [
    ({"version": 7}, True, False), ({"version": 6}, False, False),
    ({"exists": True}, True, False), ({"exists": False}, False, True),
    ({"versions": (6, 7)}, True, False), ({"versions": (6, 8)}, False, False),
    ({"other_versions": (6, 7)}, False, True), ({"other_versions": (6, 8)}, True, True),
    ({"columns": ({"column": "n", "op": "=", "value": 5},)}, True, False),
    ({"columns": ({"column": "n", "op": "=", "value": 6},)}, False, False),
    ({"exists": True, "version": 6}, False, False), ({"version": 7, "other_versions": (7,)}, False, False),
    ({}, True, True),
])
def test_what_a_condition_says_of_a_row_and_of_none(said: dict[str, Any], with_row: bool, without: bool) -> None:
    assert (_passes(AT_7, **said), _passes(None, **said)) == (with_row, without)


def _batch(*ops: str) -> list[str]:
    """Returns the problems that the checks of mutations of one key would name."""
    return [check.problem for check in checks_of(WriteRequest(TABLE, [Mutation(op, KEY) for op in ops]))]


def test_only_the_first_mutation_of_a_key_depends_on_what_is_stored() -> None:
    absent, there = "a row with this key exists already", "there is no row with this key to update"
    assert _batch("upsert", "delete") == []
    assert _batch("insert") == _batch("insert", "update") == _batch("insert", "delete", "insert") == [absent]
    assert _batch("update") == _batch("update", "delete", "insert") == [there]
    assert _batch("upsert", "update") == _batch("delete", "insert") == []
    both = checks_of(WriteRequest(TABLE, [Mutation("insert", KEY), Mutation("update", OTHER)]))
    assert [(each.key, each.problem) for each in both] == [(KEY, absent), (OTHER, there)]


@pytest.mark.parametrize(("ops", "error"), [
    (("insert", "insert"), Conflict), (("upsert", "insert"), Conflict), (("update", "insert"), Conflict),
    (("delete", "update"), NotFound), (("insert", "delete", "update"), NotFound),
])
def test_a_mutation_that_an_earlier_one_contradicts_is_refused_at_once(ops: tuple[str, ...], error: type[Exception]) -> None:
    with pytest.raises(error, match="by an earlier mutation of this batch"):
        _batch(*ops)


def test_an_implied_check_raises_its_own_error() -> None:
    for op, row, error in (("insert", AT_7, Conflict), ("update", None, NotFound)):
        check, = checks_of(WriteRequest(TABLE, [Mutation(op, KEY)]))
        with pytest.raises(error):
            check.require(row)
        check.require(None if row else AT_7)


def test_a_refusal_is_repeated_for_the_same_request_and_no_other() -> None:
    refusals, error = Refusals(), Conflict("taken", key="1")
    refusals.note("k", b"digest", error)
    repeated = refusals.repeated("k", b"digest")
    assert isinstance(repeated, Conflict)
    assert repeated is not error
    assert (repeated.message, repeated.fields) == (error.message, error.fields)
    assert refusals.repeated("other", b"digest") is None
    with pytest.raises(InvalidInput, match="was used for a different request"):
        refusals.repeated("k", b"another")


def test_the_oldest_refusals_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conditions, "REFUSALS_MAX", 2)
    refusals = Refusals()
    for key in ("a", "b", "c"):
        refusals.note(key, b"", Conflict(key))
        refusals.note(key, b"", Conflict(key))
    assert refusals.size_bytes == 2 * (conditions._REFUSAL_BYTES + 2)
    assert [refusals.repeated(key, b"") is not None for key in ("a", "b", "c")] == [False, True, True]


def _refusals(length: int) -> tuple[int, int]:
    """Returns what 2,000 refusals with keys of `length` take, and what they believe that they take, in bytes."""
    refusals, digests = Refusals(), [bytes((number % 256,)) * 16 for number in range(2000)]
    with traced() as taken:
        for number, digest in enumerate(digests):
            error = PreconditionFailed(f"row x{number} has another version", key=f"x{number}", version=(1 << 60) + number)
            refusals.note(f"{number:0{length}}", digest, error)
        del error
    return taken.held_bytes, refusals.size_bytes


@pytest.mark.parametrize("length", [36, 128])
def test_refusals_know_what_they_take(length: int) -> None:
    taken, counted = in_own_process(_refusals, length)
    assert counted * 0.8 < taken < counted * 1.25


def test_refusals_of_long_keys_stay_within_their_bound() -> None:
    """`http.key_bytes_max` may be 64 KiB, and the text of such a key is three times as long."""
    refusals = Refusals()
    for number in range(400):
        refusals.note(str(number), b"", PreconditionFailed("it has another version", key="%FF" * (64 << 10), version=number))
    assert REFUSALS_BYTES_MAX / 2 < refusals.size_bytes <= REFUSALS_BYTES_MAX
    assert refusals.repeated("399", b"") is not None
    assert refusals.repeated("0", b"") is None
