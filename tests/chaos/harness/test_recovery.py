"""The way back to health knows only what is documented, and never accepts a loss."""

from __future__ import annotations

from typing import Any

import pytest

from chaos.harness.pair.recovery import _handbook, _named, _typeable, is_whole


def site(role: str, **members: Any) -> dict[str, Any]:
    return {"role": role, **members}


@pytest.mark.parametrize(("told", "typed"), [
    ("`twinlog failover --to b`, if a is lost", ["failover --to b"]),
    ("`twinlog resume 01AB-9`, or `twinlog abort 01AB-9`", ["resume 01AB-9", "abort 01AB-9"]),
    ("`twinlog resume OPERATION`", []),
    ("`twinlog failover --to` this same site", []),
    ("`twinlog failover --to b --accept-data-loss --count 7`", []),
    ("`twinlog advise`, `twinlog status`", []),
])
def test_only_whole_commands_that_lose_nothing_are_typed(told: str, typed: list[str]) -> None:
    assert _typeable(told) == typed


def test_a_resume_of_an_operation_with_an_upper_case_id_is_typed() -> None:
    assert _typeable("`twinlog resume op-01KX2ABCD`") == ["resume op-01KX2ABCD"]


def test_what_the_sites_say_comes_with_their_word() -> None:
    told = {"a": site("CLOSED", troubles=[{"do": "`twinlog rejoin a`"}], serving={"do": None}, waiting_for=None)}
    assert _named(told) == [("rejoin a", "the status of site a")]


def test_a_pair_that_is_asynchronous_by_choice_is_whole_and_a_degraded_one_is_not() -> None:
    pair = {"a": site("DOWNGRADE_ACTIVE", policy="performance"), "b": site("STANDBY", policy="performance")}
    assert is_whole(pair)
    assert not is_whole({**pair, "a": site("DOWNGRADE_ACTIVE", policy="protect")})
    assert not is_whole({**pair, "b": site("STANDBY", policy="performance", operation="op-1")})


@pytest.mark.parametrize(("a", "b", "typed"), [
    ("FENCED", "DOWNGRADE_ACTIVE", "rejoin a --wait"), ("STANDBY", "DOWNGRADE_ACTIVE", "resync"),
    ("CLOSED", "STANDBY", "failover --to b"),
])
def test_the_handbook_knows_what_helps(a: str, b: str, typed: str) -> None:
    assert [words for words, _ in _handbook({"a": site(a), "b": site(b)})] == [typed]


def test_a_pair_is_whole_with_one_active_one_standby_and_nothing_under_way() -> None:
    whole = {"a": site("ACTIVE"), "b": site("STANDBY")}
    assert is_whole(whole)
    assert not _handbook(whole)
    assert not is_whole({"a": site("ACTIVE", operation="7"), "b": site("STANDBY")})
    assert not is_whole({"a": site("DOWNGRADE_ACTIVE"), "b": site("STANDBY")})
    assert not is_whole({"a": site("ACTIVE")})
