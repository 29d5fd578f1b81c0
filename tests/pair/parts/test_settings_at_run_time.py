"""Settings that change while a pair runs: each reader goes by the new value, and nothing that was let in is thrown out."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.epoch.active_epoch import AvailableSettings
from gateway.epoch.commit_rule import CommitSettings
from gateway.service.admission import Admission
from tests.pair.pair_rig import epoch, open_pair, put, site
from twinlog.errors import Overloaded


async def test_a_policy_that_changes_degrades_by_itself_and_stops_to(tmp_path: Path) -> None:
    async with open_pair(tmp_path, resync_after_s=None) as pair:
        active = site(pair, "a")
        protect = active.settings
        available = replace(protect, policy="available", available=AvailableSettings(degrade_after_s=0.3, resync_after_s=3600))
        active.apply(available)
        pair.faults["a"].remote_down = True
        await pair.until(lambda: pair.role("a") == "DOWNGRADE_ACTIVE")
        assert (await put(pair, "a", 1, "x")).mode == "async"
        pair.faults["a"].remote_down = False
        active.apply(replace(available, available=AvailableSettings(degrade_after_s=0.3, resync_after_s=0.0)))
        await pair.until(lambda: pair.role("a") == "ACTIVE")
        active.apply(protect)
        await pair.until(epoch(pair, "a")._tasks["degrade"].done)
        active.apply(replace(protect, policy="performance"))
        await pair.until(lambda: pair.role("a") == "DOWNGRADE_ACTIVE")


async def test_other_bounds_are_those_of_the_next_request_frame_and_batch(tmp_path: Path) -> None:
    async with open_pair(tmp_path) as pair:
        active = site(pair, "a")
        commit = replace(active.settings.commit, requests_max=1, frames_in_flight_max=1)
        active.apply(replace(
            active.settings, commit=commit, replication=replace(active.settings.replication, batch_bytes_max=4096)
        ))
        pair.faults["a"].hold_remote.clear()
        first = asyncio.create_task(put(pair, "a", 1, "x"))
        await pair.until(lambda: active.admission.requests == 1)
        with pytest.raises(Overloaded):
            await put(pair, "a", 2, "y")
        pair.faults["a"].hold_remote.set()
        await first
        assert epoch(pair, "a").shipper._settings.batch_bytes_max == 4096
        assert epoch(pair, "a").commit._settings is commit


def test_what_was_let_in_may_stay_and_nothing_more_comes_above_the_new_bound() -> None:
    admission = Admission(CommitSettings())
    for _ in range(5):
        admission.enter(1000)
    admission.apply(replace(CommitSettings(), requests_max=2, queue_bytes_max=65_536))
    admission.check()
    with pytest.raises(Overloaded):
        admission.enter(1000)
    for _ in range(4):
        admission.leave(1000)
    admission.enter(1000)
    with pytest.raises(Overloaded):
        admission.enter(1000)
