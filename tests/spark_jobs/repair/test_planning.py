"""The writes that a repair plans, from the findings of a compare."""

from __future__ import annotations

from typing import Any

import pytest

from spark_jobs.repair.planning import Left, Write, plan_write

SOURCE, PEER = '{"id": 7, "n": 1}', '{"id": 7, "n": 2}'


def finding(kind: str, source: int | None, peer: int | None) -> dict[str, Any]:
    return {
        "table": "t", "key": b"\x80\x07", "key_text": "7", "kind": kind, "source_version": source, "peer_version": peer,
        "source_row": None if source is None else SOURCE, "peer_row": None if peer is None else PEER, "range": 0,
    }


MATCH_5, MATCH_9, NONE = ("If-Match", '"5"'), ("If-Match", '"9"'), ("If-None-Match", "*")
CASES = [
    # kind, versions, active, truth -> method, body, condition: it is always about the ACTIVE's row
    ("missing", 5, None, "source", None, "PUT", SOURCE, MATCH_5),
    ("missing", 5, None, "source", "peer", "DELETE", None, MATCH_5),
    ("missing", 5, None, "peer", "source", "PUT", SOURCE, NONE),
    ("missing", 5, None, "peer", "peer", "DELETE", None, NONE),
    ("extra", None, 9, "source", None, "DELETE", None, NONE),
    ("extra", None, 9, "source", "peer", "PUT", PEER, NONE),
    ("extra", None, 9, "peer", "source", "DELETE", None, MATCH_9),
    ("stale", 9, 5, "source", None, "PUT", SOURCE, MATCH_9),
    ("stale", 9, 5, "source", "peer", "PUT", PEER, MATCH_9),
    ("stale", 9, 5, "peer", "source", "PUT", SOURCE, MATCH_5),
    ("damaged", 5, 5, "source", "source", "PUT", SOURCE, MATCH_5),
    ("damaged", 5, 5, "source", "peer", "PUT", PEER, MATCH_5),
]


@pytest.mark.parametrize(("kind", "source", "peer", "active", "truth", "method", "body", "condition"), CASES)
def test_the_right_row_is_written_over_what_the_active_had(
    kind: str, source: int | None, peer: int | None, active: str, truth: str | None, method: str, body: str | None,
    condition: tuple[str, str],
) -> None:
    plan = plan_write(finding(kind, source, peer), active=active, truth=truth)
    expected = source if active == "source" else peer
    assert plan == Write(method, "t", "7", body, condition, expected)  # type: ignore[arg-type]


def test_a_damaged_row_needs_somebody_to_say_which_site_is_right() -> None:
    plan = plan_write(finding("damaged", 5, 5), active="source", truth=None)
    assert isinstance(plan, Left)
    assert "truth=SITE" in plan.reason


@pytest.mark.parametrize(("kind", "source", "peer"), [("missing", 5, None), ("extra", None, 9), ("stale", 9, 5)])
def test_a_standby_that_has_become_the_active_is_not_taken_for_right(kind: str, source: int | None, peer: int | None) -> None:
    """Its missing rows would be deleted at the site that has them."""
    plan = plan_write(finding(kind, source, peer), active="peer", truth=None)
    assert isinstance(plan, Left)
    assert "truth=SITE" in plan.reason


def test_a_version_above_2_to_the_63_is_named_as_the_gateway_names_it() -> None:
    plan = plan_write(finding("missing", -1, None), active="source", truth=None)
    assert isinstance(plan, Write)
    assert plan.condition == ("If-Match", '"18446744073709551615"')


@pytest.mark.parametrize("changes", [
    {"source_row": '{"damaged_bytes": "c1"}'}, {"key_text": "0x8007"}, {"kind": "missing table"}, {"kind": "extra table"},
])
def test_what_no_request_can_write_is_left_and_told(changes: dict[str, Any]) -> None:
    assert isinstance(plan_write({**finding("stale", 9, 5), **changes}, active="source", truth="source"), Left)


def test_a_key_that_looks_like_hex_is_a_key() -> None:
    found = {**finding("missing", 5, None), "key": b"0x12\0", "key_text": "0x12"}
    assert isinstance(plan_write(found, active="source", truth=None), Write)
