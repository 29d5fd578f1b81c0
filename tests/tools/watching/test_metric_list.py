"""docs/metrics.md has every metric of the catalogue, with its text."""

from __future__ import annotations

from gateway.metrics.catalogue import CATALOGUE, SECTIONS
from tools.watching.metric_list import PAGE, page


def test_the_page_is_drawn_from_the_catalogue() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: python -m tools.watching.metric_list"


def test_no_name_is_there_twice() -> None:
    assert len(CATALOGUE) == sum(map(len, SECTIONS.values()))
