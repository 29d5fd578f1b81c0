"""Grants: what a text of them allows, and that nothing else is."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.access.caller import NOBODY, Caller
from gateway.access.grants import EVERYTHING, OF_TABLES, OF_THE_PAIR, parse_grants
from gateway.access.needs import NEEDS
from twinlog.errors import InvalidInput

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)
PATTERNS = st.text("ab_*", min_size=1, max_size=8)


@pytest.mark.parametrize(("text", "said"), [
    ("reader", "write reader:TABLE"), ("reader:", "no table fits"), ("reader:a-b", "no table fits"),
    ("reader:[a]", "no table fits"),
    ("reader:?", "no table fits"), ("writer:a b", "no table fits"), ("operator:x", "is no grant"), ("", "is no grant"),
    ("replicator", "certificate alone proves"), ("replicator:*", "certificate alone proves"), ("Reader:*", "is no grant"),
    ("reader:*\n", "no table fits"), ("root", "is no grant"), ("*", "is no grant"),
])
def test_what_is_no_grant_is_named(text: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(said)):
        parse_grants(["operator", text])


@given(PATTERNS, st.text("ab_c", min_size=1, max_size=10))
def test_a_pattern_fits_what_its_regular_expression_fits(pattern: str, name: str) -> None:
    """The other way to judge it: every text between the stars, in order, from the first to the last character."""
    wanted = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name, re.DOTALL) is not None
    assert parse_grants([f"reader:{pattern}"]).on("reader", name) == wanted


@given(st.sampled_from(OF_TABLES), NAMES, st.sampled_from(OF_TABLES), NAMES)
def test_a_grant_on_one_table_is_none_on_another_and_no_other_role(role: str, table: str, other: str, name: str) -> None:
    assert parse_grants([f"{role}:{table}"]).on(other, name) == ((role, table) == (other, name))


@given(st.lists(st.one_of(
    st.sampled_from(OF_THE_PAIR), st.builds(lambda role, pattern: f"{role}:{pattern}", st.sampled_from(OF_TABLES), PATTERNS)
)))
def test_grants_come_back_from_their_texts(texts: list[str]) -> None:
    grants = parse_grants(texts)
    assert parse_grants(grants.texts()) == grants
    assert grants.texts() == sorted(set(texts))


def test_nobody_may_do_anything_but_what_is_open_and_everything_is_all() -> None:
    anybody = Caller("x", "token", EVERYTHING)
    for route, need in NEEDS.items():
        if need.scope not in ("open", "identity"):
            assert need.missing(NOBODY, "t") is not None, route
        assert (need.missing(anybody, "t") is None) == (need.scope != "peer"), route


def test_a_long_pattern_is_judged_at_once() -> None:
    """A pattern of many stars on a name that nearly fits: a regular expression that tries every way would not end."""
    assert not parse_grants(["reader:" + "*a" * 60]).on("reader", "a" * 59 + "b" * 60)
