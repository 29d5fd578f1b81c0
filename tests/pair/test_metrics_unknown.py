"""A figure that a site does not know is left out of its metrics, and never shown as 0."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.metrics.catalogue import Figures
from tests.pair.pair import Pair
from tests.pair.pair_rig import open_pair, put, site
from twinlog.errors import TwinlogError

LAG = {f"replication_lag_{unit}" for unit in ("records", "bytes", "seconds")} | {"replication_sample_age_seconds"}
RISK = {f"at_risk_{unit}" for unit in ("records", "bytes", "seconds")}


def figures(pair: Pair, name: str) -> Figures:
    return pair.running[name].service.cluster.figures()


async def test_the_lag_of_a_site_that_was_never_heard_is_not_there(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    try:
        await pair.start("a")
        await pair.until(lambda: pair.role("a") == "ACTIVE")
        await pair.until(lambda: figures(pair, "a").get("serves_writes") == 1)
        shown = figures(pair, "a")
        assert not LAG & set(shown)
        assert shown["at_risk_records"] == 0  # the remote log has everything
        assert {"audit_good", "last_good_audit_age_seconds", "active_heard_age_seconds"} & set(shown) == set()
    finally:
        for name in list(pair.running):
            await pair.stop(name)


async def test_what_is_at_risk_grows_while_the_standby_is_away(tmp_path: Path) -> None:
    """The mode is asynchronous, and b has what it had; when it is back, nothing is at risk."""
    async with open_pair(tmp_path, degrade_after_s=0.5) as pair:
        await put(pair, "a", 1, "x")
        written = figures(pair, "a")["committed_seq"]
        epoch = site(pair, "a").active_epoch
        assert epoch is not None
        await pair.until(lambda: (epoch.shipper.view.durable_seq or 0) >= written)  # type: ignore[operator]
        pair.cut = pair.faults["a"].remote_down = True
        with pytest.raises(TwinlogError):
            await site(pair, "b").parts.other_site.status(1.0)
        await pair.until(lambda: figures(pair, "a").get("mode_sync") == 0)
        await put(pair, "a", 2, "y")
        await put(pair, "a", 3, "z" * 1000)
        shown = figures(pair, "a")
        assert shown["at_risk_records"] >= 2
        assert shown["at_risk_bytes"] > 1000
        assert shown["at_risk_seconds"] > 0
        assert shown["dependency_ok"][("peer",)] == 0  # type: ignore[index]
        pair.cut = pair.faults["a"].remote_down = False
        await pair.until(lambda: figures(pair, "a").get("mode_sync") == 1)
        await pair.until(lambda: all(figures(pair, "a").get(name) == 0 for name in RISK))


async def test_an_old_active_that_writes_on_is_counted_where_it_is_rejected(tmp_path: Path) -> None:
    """Site b takes over while the two do not hear each other, and a, which does not know, ships again."""
    async with open_pair(tmp_path) as pair:
        await put(pair, "a", 1, "x")
        assert figures(pair, "b")["fence_rejections_total"] == 0
        epoch = site(pair, "a").epoch
        await site(pair, "b").sink.set_followed_epoch(epoch + 1)
        await pair.until(lambda: figures(pair, "b")["fence_rejections_total"] >= 1)  # type: ignore[operator]
        await pair.until(lambda: figures(pair, "a")["epochs_ended_total"][("fenced",)] == 1)  # type: ignore[index]
