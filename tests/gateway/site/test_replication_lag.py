"""The lag that screens and metrics show: never less than what the other site may lack by its newest word."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gateway.site.metrics import SAMPLE_OLD_S, replication_lag
from remote_log.replication.shipper import PeerView

NOW_S, COMMITTED, LOG_BEGINS_AFTER = 100.0, 50, 10


def a_site(view: PeerView) -> Any:
    clock, wal = SimpleNamespace(monotonic_s=lambda: NOW_S), SimpleNamespace(first_previous=LOG_BEGINS_AFTER)
    parts = SimpleNamespace(clock=clock, wal=wal)
    epoch = SimpleNamespace(core=SimpleNamespace(committed=COMMITTED), shipper=SimpleNamespace(view=view))
    return SimpleNamespace(parts=parts, active_epoch=epoch)


@pytest.mark.parametrize(("view", "lag"), [
    (PeerView("following", 47, 40, NOW_S - 1.0), 3),
    (PeerView("following", 47, 40, NOW_S - SAMPLE_OLD_S), 3),
    (PeerView("following", 47, 40, NOW_S - SAMPLE_OLD_S - 0.1), 10),  # it may have restarted since
    (PeerView("unreachable", 47, 40, NOW_S - 1.0), 10),
    (PeerView("refused", 47, 40, NOW_S - 1.0), 10),
    (PeerView("busy", 47, None, NOW_S - 1.0), None),  # what it holds may be of another log
    (PeerView("unreachable", 47, None, NOW_S - 1.0), None),
    (PeerView("diverged", None, None, NOW_S - 1.0), None),
    (PeerView("loading", 47, None, NOW_S - 1.0), None),
    (PeerView("following", LOG_BEGINS_AFTER - 1, 4, NOW_S - 1.0), None),  # no log leads on from there
    (PeerView("following", 47, None, NOW_S - 90.0), None),
    (PeerView(), None),
])
def test_what_counts_of_the_other_sites_newest_word(view: PeerView, lag: int | None) -> None:
    shown = replication_lag(a_site(view))
    assert (None if shown is None else shown.records) == lag


def test_a_site_without_an_epoch_knows_nothing() -> None:
    assert replication_lag(SimpleNamespace(active_epoch=None)) is None  # type: ignore[arg-type]


def test_the_age_of_the_word_is_shown() -> None:
    shown = replication_lag(a_site(PeerView("unreachable", 47, 40, NOW_S - 7.25)))
    assert shown is not None
    assert shown.sample_age_s == 7.25
