"""The report of an audit as bytes: within its bounds nothing is lost, past them the member and its bound are named."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.errors import InvalidInput
from twinlog.wire.audit_report import (
    REPORT_BYTES_MAX,
    AuditProgress,
    Failure,
    FoundDifference,
    KeyShares,
    Pace,
    SentReport,
    Stage,
    TableCount,
    as_seen_by,
    decode_report,
    encoded_report,
)

counts = st.integers(0, (1 << 63) - 1)
seconds = st.floats(0, 1e9, allow_nan=False)
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
kinds = st.dictionaries(texts, counts, max_size=3)
versions = st.none() | st.integers(0, (1 << 64) - 1).map(str)
differences = st.builds(
    FoundDifference, kind=texts, table=texts, key=st.none() | texts, place=texts, source_version=versions, peer_version=versions
)
reports = st.builds(
    SentReport, version=st.integers(1, 1 << 40), source=texts, peer=texts, tables_count=counts,
    tables=st.lists(st.builds(TableCount, name=texts, compared=counts, equal=counts, kinds=kinds), max_size=3), kinds=kinds,
    advice=st.dictionaries(texts, texts, max_size=3), counters=kinds, differences_count=counts,
    differences=st.lists(differences, max_size=4),
    places=st.lists(st.builds(
        KeyShares, table=texts, kinds=st.dictionaries(texts, st.lists(counts, max_size=3), max_size=3)), max_size=3),
    stages=st.lists(st.builds(Stage, name=texts, took_s=seconds), max_size=3),
    pace=st.lists(st.builds(Pace, at_s=seconds, rows=counts), max_size=3), remarks=st.lists(texts, max_size=3),
    failure=st.none() | st.builds(Failure, code=texts, message=texts),
)


@given(reports, st.dictionaries(texts.map(lambda text: f"new_{text}"), texts, max_size=2))
def test_what_is_within_the_bounds_is_taken_and_what_a_newer_release_adds_is_left_out(
    report: SentReport, added: dict[str, str]
) -> None:
    document = encoded_report(report)
    assert decode_report(document) == report
    newer = {**msgspec.json.decode(document), **added, "version": report.version + 1}
    assert decode_report(msgspec.json.encode(newer)) == msgspec.structs.replace(report, version=report.version + 1)


@given(reports, st.frozensets(texts, max_size=3))
def test_a_key_is_seen_by_those_alone_who_may_read_its_table(report: SentReport, readable: frozenset[str]) -> None:
    shown, hidden = as_seen_by(report, readable.__contains__)
    assert [one.key for one in shown.differences] == [
        one.key if one.table in readable else None for one in report.differences
    ]
    assert hidden == sum(one.key is not None and one.table not in readable for one in report.differences)
    assert msgspec.structs.replace(shown, differences=[]) == msgspec.structs.replace(report, differences=[])


_DIFFERENCE = {"kind": "x", "table": "t", "key": None, "place": "", "source_version": None, "peer_version": None}


@pytest.mark.parametrize(("member", "value", "said"), [
    ("differences", [_DIFFERENCE] * 101, r"length <= 100 - at `\$.differences`"),
    ("differences", [{**_DIFFERENCE, "key": "k" * 301}], r"length <= 300 - at `\$.differences\[0\].key`"),
    ("differences", [{**_DIFFERENCE, "source_version": "-1"}], r"at `\$.differences\[0\].source_version`"),
    ("tables", [{"name": "t", "compared": 1, "equal": 1, "kinds": {}}] * 101, r"length <= 100 - at `\$.tables`"),
    ("tables", [{"name": "t", "compared": -1, "equal": 1, "kinds": {}}], r">= 0 - at `\$.tables\[0\].compared`"),
    ("places", [{"table": "t", "kinds": {"x": [1] * 51}}], r"length <= 50 - at `\$.places\[0\].kinds\[...\]`"),
    ("places", [{"table": "t", "kinds": {}}] * 9, r"length <= 8 - at `\$.places`"),
    ("stages", [{"name": "s", "took_s": 1}] * 33, r"length <= 32 - at `\$.stages`"),
    ("stages", [{"name": "s", "took_s": -1}], r"at `\$.stages\[0\].took_s`"),
    ("pace", [{"at_s": 1, "rows": 1}] * 61, r"length <= 60 - at `\$.pace`"),
    ("kinds", {str(number): 1 for number in range(25)}, r"length <= 24 - at `\$.kinds`"),
    ("remarks", ["r" * 301], r"length <= 300 - at `\$.remarks\[0\]`"),
    ("version", 0, r">= 1 - at `\$.version`"),
])
def test_a_member_past_its_bound_is_named_with_it(member: str, value: object, said: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=said):
        decode_report(msgspec.json.encode({"version": 1, member: value}))


def test_a_report_that_is_too_long_as_a_whole_says_how_long_one_may_be() -> None:
    long = [FoundDifference("x", "t", "\u1234" * 300, "", None, None)] * 100
    with pytest.raises(InvalidInput, match=f"a site keeps {REPORT_BYTES_MAX:,} of one"):
        encoded_report(SentReport(version=1, differences=long))


def test_a_progress_has_bounds_and_ignores_what_it_does_not_know() -> None:
    body = {"job": "compare", "phase": "digests of a", "elapsed_s": 1, "done": 3, "later": [1]}
    assert msgspec.convert(body, AuditProgress) == AuditProgress(job="compare", phase="digests of a", elapsed_s=1.0, done=3)
    for wrong in ({"phase": "x" * 101}, {"elapsed_s": -1}, {"done": -1}, {"unit": "miles"}, {"job": ""}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({**body, **wrong}, AuditProgress)
