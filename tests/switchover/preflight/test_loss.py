"""An operator has to accept exactly the loss that the manifest shows, before a failover may lose acknowledged writes."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from switchover.preflight.loss import LossManifest, acceptance_problem, accepted_loss, loss_manifest
from switchover.register.port import Beat, PairState
from twinlog.errors import InvalidInput

ALONE = PairState(
    state_id=3, epoch=4, epoch_allocated=4, active="a", mode="async", async_since_seq=40,
    beat=Beat(committed_seq=60, wall_ms=0, lease_s=1.0),
)


def shown(*, applied_seq: int = 45, applied_epoch: int = 4, growing: bool = False, **change: Any) -> LossManifest | None:
    return loss_manifest(
        replace(ALONE, **change), "b", applied_seq=applied_seq, applied_epoch=applied_epoch, growing=growing
    )


def risk(manifest: LossManifest | None) -> int | None:
    assert manifest is not None
    return manifest.records_at_risk


def test_at_risk_is_what_the_active_committed_alone_and_this_site_lacks() -> None:
    assert risk(shown()) == 15
    assert risk(shown(applied_seq=30)) == 20  # below 40 both logs have everything
    assert risk(shown(applied_seq=70)) == 0
    assert risk(shown(applied_seq=55, applied_epoch=3)) == 20  # sequences of another epoch are other records
    assert risk(shown(beat=None)) is None
    assert risk(shown(growing=True)) is None
    assert shown(mode="sync", async_since_seq=None) is None
    assert shown(active="b") is None


@pytest.mark.parametrize(("accepted", "with_15", "with_unknown", "with_none"), [
    (15, "", "now shows unknown", "nothing acknowledged is known to be missing"),
    (14, "now shows 15", "now shows unknown", "nothing acknowledged is known to be missing"),
    (16, "now shows 15", "now shows unknown", "nothing acknowledged is known to be missing"),
    (0, "now shows 15", "now shows unknown", "nothing acknowledged is known to be missing"),
    ("unknown", "now shows 15", "", ""),
    (None, "at least 15 records", "was lost before it reported", ""),
])
def test_only_what_the_manifest_shows_is_accepted(accepted: object, with_15: str, with_unknown: str, with_none: str) -> None:
    for manifest, expected in ((shown(), with_15), (shown(beat=None), with_unknown), (None, with_none)):
        problem = acceptance_problem(manifest, accepted)
        if not expected:
            assert problem is None
        else:
            assert problem is not None
            assert expected in problem.seen
            assert ("--accept-data-loss" in problem.fix) == (accepted is None or manifest is None)


@pytest.mark.parametrize("given", [True, False, -1, 1.5, "some", "", [3]])
def test_what_is_no_count_is_no_accepted_loss(given: object) -> None:
    with pytest.raises(InvalidInput, match="it must be the count"):
        accepted_loss({"accept_data_loss": given})
    assert [accepted_loss({"accept_data_loss": each}) for each in (None, 0, 7, "unknown")] == [None, 0, 7, "unknown"]
