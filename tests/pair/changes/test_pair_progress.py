"""A long failover shows how far it is: segments proven closed and read, frames logged and applied, of how many."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.cli.screens import step_cells
from gateway.epoch.commit_rule import CommitSettings
from switchover.operations import attempt
from tests.pair.pair_rig import open_pair, put

FRAMES = 3_000
AT_ONCE = 50


async def test_a_failover_over_thousands_of_frames_shows_its_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempt, "PROGRESS_INTERVAL_S", 0.001)
    commit = CommitSettings(frame_bytes_max=1, frames_in_flight_max=AT_ONCE)  # a frame for each write
    async with open_pair(tmp_path, commit=commit) as pair:
        pair.cut = True  # nothing is shipped: the other site has all of it from the remote log
        for first in range(0, FRAMES, AT_ONCE):
            await asyncio.gather(*(put(pair, "a", key, "v") for key in range(first, first + AT_ONCE)))
        await pair.crash("a")

        operations = pair.running["b"].operations
        started = await operations.start("failover", "b", {}, False, "test")
        seen: dict[str, list[dict[str, Any]]] = {}
        async for shown in operations.follow(started.id):
            for step in shown.steps:
                if step.state == "running" and step.detail:
                    seen.setdefault(step.detail["unit"], []).append(msgspec.to_builtins(step))
        assert shown.state == "succeeded", shown.error
        replay = next(step.detail for step in shown.steps if step.name == "replay")
        assert replay is not None
        assert replay["replayed_frames"] >= FRAMES
        for unit, least in {"segments read": 4, "frames logged": FRAMES, "frames applied": FRAMES}.items():
            details = [step["detail"] for step in seen[unit]]
            assert details[-1]["total"] >= least, details[-1]
            reached = [detail["done"] for detail in details]
            assert reached == sorted(reached)
        applied = [step for step in seen["frames applied"] if "eta_s" in step["detail"]]
        assert {step["name"] for step in applied} == {"open"}
        said = step_cells(applied[0])[-1]
        assert "frames applied (" in said, said
        assert "/s, ETA " in said, said
