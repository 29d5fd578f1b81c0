"""The tables of the page's benches say what the rounds were."""

from __future__ import annotations

from bench.ui import streams, views
from bench.ui.streams import Round
from bench.ui.views import Taken


def test_what_open_pages_cost_is_compared_within_a_round() -> None:
    none = [Round(cpu, 0.1, rate, 9.0, 0.0, 0.0) for cpu, rate in ((100.0, 1000.0), (50.0, 2000.0), (80.0, 1200.0))]
    many = [Round(cpu, 0.11, rate, 9.0, 200.0, 2800.0) for cpu, rate in ((125.0, 900.0), (62.5, 1900.0), (100.0, 1200.0))]
    first, last = streams.table({0: none, 200: many}).splitlines()[2:]
    assert first == "| 0 | 80.0 (50.0 to 100.0) | 1,200 (1,000 to 2,000) | 9.0 (9.0 to 9.0) | 0, 0 |  |  |"
    assert last.endswith("| 200, 2800 | 20.0 (20.0 to 20.0) % | 5.0 (0.0 to 10.0) % |")
    trickled = streams.trickle_table({0: none, 200: many}).splitlines()[-1]
    assert trickled == "| 200 | 11.00 (11.00 to 11.00) % | 1.00 (1.00 to 1.00) % | 200, 2800 |"


def test_a_view_has_its_medians_and_the_time_while_the_other_site_hangs() -> None:
    rounds = [Taken(1000, answer, 1.0, 50.0, 60.0) for answer in (3.0, 1.0, 2.0)]
    last = views.table({"Now": rounds}, {"Now": Taken(900, 1234.0, 1.0, 50.0, 60.0)}).splitlines()[-1]
    assert last == "| Now | 1,000 | 2 (1 to 3) | 1 (1 to 1) | 50 (50 to 50) | 60 (60 to 60) | 1,234 |"
