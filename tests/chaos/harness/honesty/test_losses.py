"""Manifests of what is lost, beside what was acknowledged and what is there at the end."""

from __future__ import annotations

from typing import Any

from chaos.checkers import CHECKERS
from chaos.harness.honesty.losses import check, named_count, with_what_went_with_a_site
from chaos.harness.nemesis import Span
from chaos.harness.pair.commands import Accepted
from chaos.history.history import History, Quarantine, QuarantinedRow
from tests.chaos.plots import Plot, sentences

MANIFEST = {
    "active": "a", "epoch": 1, "asynchronous_since_seq": 10, "this_site_holds_seq": 20, "records_at_risk": 20,
    "active_committed_seq": 40, "told_at_ms": 95_000, "more_within_s": 3.0, "statement": "",
}
ACCEPTED = Accepted("b", MANIFEST, "20", at_s=10.0, wall_ms=100_000)  # the report is of 5 s, and more may follow up to 8 s
LOST = Span("site-lost", "active", "", 9.0, 9.5, "site a")


def accepted(**more: Any) -> Accepted:
    return Accepted("b", {**MANIFEST, **more}, "20", 10.0, 100_000)


def written() -> Plot:
    """Versions are sequences. Two rows are there at the end, the second of which is as the active alone wrote it."""
    return (
        Plot().write("sync", "x", 0, 1, version=9).write("held", "x", 1, 2, version=20, mode="async")
        .write("lost", "x", 3, 4, version=30, mode="async").write("perhaps", "x", 5, 6, "unknown")
        .batch({"one": "x", "two": "x"}, 7, 8, version=40).dump({"sync": ("x", 9), "held": ("x", 20)})
    )


def quarantined(plot: Plot, *rows: tuple[str, int], last: int = 60) -> History:
    named = tuple(QuarantinedRow("t", key, version, version) for key, version in rows)
    return plot.add(Quarantine("a", 1, 21, last, 20.0, True, named)).history()


def test_a_manifest_that_names_what_is_lost_is_true() -> None:
    history = quarantined(written(), ("lost", 30), ("perhaps", 35))
    assert not check(history, [ACCEPTED])
    assert named_count(history) == 2


def test_a_manifest_must_not_name_what_is_there_or_nobody_wrote_or_was_acknowledged_as_sync() -> None:
    told = sentences(check(quarantined(written(), ("held", 20), ("never", 50), ("sync", 9), ("two", 40), ("one", 39)), []))
    assert "names row held of t, version 20, as lost with epoch 1 of site a, which both sites hold." in told
    assert "names row never of t, version 50, as lost with epoch 1 of site a, which nobody wrote." in told
    assert told.count("which was acknowledged as sync.") == 3, "both rows of a batch are known"


def test_the_count_of_a_manifest_is_a_lower_bound_of_what_was_cut_off() -> None:
    assert "at least 20 records are lost, and 19 were put into the quarantine of site a." in sentences(
        check(quarantined(written(), ("lost", 30), last=39), [ACCEPTED])
    )
    assert not check(quarantined(written(), ("lost", 30), last=40), [ACCEPTED])
    assert not check(quarantined(written(), ("lost", 30), last=39), [accepted(records_at_risk=None)])


def test_nothing_is_acknowledged_once_the_time_of_the_manifest_is_over() -> None:
    late = Plot().write("k", "x", 8.6, 9.0, version=41, mode="async").history()
    assert "nothing followed after 8.500 s, and call 1, begun at 8.600 s" in sentences(check(late, [ACCEPTED]))
    assert not check(Plot().write("k", "x", 8.4, 9.0, version=41, mode="async").history(), [ACCEPTED])
    assert not check(Plot().write("k", "x", 8.6, 9.0, version=40, mode="async").history(), [ACCEPTED])


def test_of_a_site_that_is_gone_exactly_what_the_failover_names_may_be_missing() -> None:
    history = written().write("early", "x", 2, 3, version=15, mode="async").history()
    judged = with_what_went_with_a_site(history, [ACCEPTED], [LOST])
    assert [(each.site, each.epoch, [row.key for row in each.rows]) for each in judged.quarantines] == [("a", 1, ["lost"])]
    missing = sentences(CHECKERS["acknowledged"](judged))
    assert "Row early" in missing, "the manifest says that it had arrived"
    assert "Row one" in missing, "it was acknowledged as sync"
    assert "Row lost" not in missing
    assert "Row lost" in sentences(CHECKERS["acknowledged"](history))


def test_a_site_that_kept_its_disk_names_its_losses_itself() -> None:
    history = written().history()
    for spans in ([], [Span("site-lost", "b", "", 9.0, 9.5)], [Span("site-lost", "a", "", 11.0, 12.0)]):
        assert with_what_went_with_a_site(history, [ACCEPTED], spans).quarantines == ()
