"""The page of an audit: it needs nothing beside it, and shows what data says as text."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from spark_jobs.job import Chart, Series, TimelineBar
from spark_jobs.report.page import ROWS_MAX, render
from spark_jobs.report.plots import svg

EVIL = "<script>alert('x')</script> & \"$x^2$\" \u202e"
_VOID = {"meta", "br", "hr", "img", "link", "input"}


class Reader(HTMLParser):
    """Tags with their attributes, and all text. Fails at a tag that is closed wrongly."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(page)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def summary(**over: Any) -> dict[str, Any]:
    return {
        "id": "20261121T120000Z-compare", "job": "compare", "pair": "demo", "outcome": "bad", "findings": 1,
        "kinds": {"stale": 1}, "advice": {"stale": EVIL}, "counters": {"GOODROWS": 1234567}, "tables": [EVIL],
        "remarks": [EVIL], "barrier": {"name": "audit-1", "epoch": 3, "seq": 1000, "taken_at": ""},
        "sites": {"a": {"url": EVIL, "role": "active"}, "b": {"url": "http://b"}}, "by": EVIL,
        "files": [{"name": "findings.parquet", "rows": 1, "bytes": 2}], "spark": {"version": "4.2.1", "master": "local[2]"},
        "started_at": "2026-11-21T12:00:00.123Z", "finished_at": "2026-11-21T12:00:05.000Z", "took_s": 4.9, **over,
    }


def finding(**over: Any) -> dict[str, Any]:
    return {
        "table": EVIL, "key": b"\x01\xff", "key_text": EVIL, "kind": "stale", "source_version": 5, "peer_version": None,
        "source_row": json.dumps({"delay": 5, "note": EVIL}), "peer_row": json.dumps({"delay": 7, "note": EVIL}), **over,
    }


def charts() -> tuple[Chart, ...]:
    return (
        Chart(EVIL, "bars", EVIL, EVIL, (Series(EVIL, (1.0, 2.0), (3.0, 0.0)), Series("b", (1.0,), (1.0,))), note=EVIL),
        Chart("named", "bars", "", "", (Series("a", (EVIL, "y"), (3.0, 4.0)),)),
        Chart("time", "lines", "t", "s", (Series("a", (1.7952e12, 1.7953e12), (0.5, 0.1)),), x_is_time=True),
        Chart("points", "points", "t", "s", (Series("a", (1.0, 2.0), (0.5, 0.1)),)),
        Chart("line", "timeline", "seq", spans=(TimelineBar(EVIL, 0, 10, EVIL), TimelineBar("two", 3, 3, "thin", bad=True))),
    )


@pytest.fixture(scope="module")
def page() -> str:
    return render(summary(), [finding()], charts())


def test_it_is_well_formed_and_needs_nothing_beside_it(page: str) -> None:
    read = Reader(page)
    names = {tag for tag, _ in read.tags}
    assert not names & {"script", "link", "img", "iframe", "object"}
    for tag, attributes in read.tags:
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name in ("href", "xlink:href", "src"):
                assert (value or "").startswith("#"), (tag, name, value)
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)


def test_what_data_says_is_text(page: str) -> None:
    assert "<script>alert" not in page
    assert Reader(page).text.count("<script>alert('x')</script>") >= 10


def test_a_word_of_data_is_no_mathematics() -> None:
    for chart in (charts()[0], charts()[-1], Chart("", "bars", "", series=(Series("", ("$x^2$",), (1.0,)),))):
        assert "$x^2$" in Reader(svg(chart, 0)).text


def test_ids_of_two_charts_do_not_meet(page: str) -> None:
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids)) > 100
    assert {name.removeprefix("#") for name in re.findall(r'href="(#[^"]+)"', page)} <= set(ids)


def test_text_of_charts_has_the_pages_colour(page: str) -> None:
    assert "currentColor" in page
    assert "#010203" not in page


def test_columns_that_differ_are_marked(page: str) -> None:
    assert "<mark>delay 5</mark>" in page
    assert "<mark>delay 7</mark>" in page
    assert "<mark>note" not in page


def test_findings_are_cut_with_the_way_to_all() -> None:
    found = [finding(key_text=f"key-{n}") for n in range(ROWS_MAX + 5)]
    page = render(summary(findings=ROWS_MAX + 5), found, ())
    assert page.count("<td class=\"key\">key-") == ROWS_MAX
    assert f"The first {ROWS_MAX} of {ROWS_MAX + 5:,}; all of them are in <code>findings.parquet</code>" in page


def test_a_good_one_says_so() -> None:
    page = render(summary(outcome="good", findings=0, kinds={}, barrier=None, remarks=[]), [], ())
    read = Reader(page)
    assert "Both sites are equal" in read.text
    assert "no findings" in read.text
    assert "<table><thead>" not in page


def test_an_empty_chart_is_left_out() -> None:
    page = render(summary(), [], (Chart("Nothing there", "bars", "x", series=(Series("a", (), ()),)),))
    assert "Nothing there" not in page


def test_the_same_chart_is_the_same_text() -> None:
    assert svg(charts()[0], 1) == svg(charts()[0], 1)
