"""A pair comes to rest: it holds no more than at the beginning, and names no trouble."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from chaos.harness import run
from chaos.harness.pair.files.footprint import OTHER
from chaos.harness.pair.samples import Sample
from tests.chaos.harness.test_resources import HELD

A = Sample("a", 1.0, "ACTIVE", lag_records=0, at_risk=0, at_risk_exact=True, reads=True, writes=True, held=HELD)
B = Sample("b", 1.0, "STANDBY", follows=True, held=HELD)
LAGS = replace(A, lag_records=1)
HOLDS = replace(B, held=replace(HELD, open_files={**HELD.open_files, OTHER: 30}))


async def broken_after(looks: Sequence[list[Sample]], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns the promises that these looks break, one after the other; the time is over with the last one."""
    monkeypatch.setattr(run, "REST_POLL_S", 0.0)
    left, found = list(looks), []

    async def look() -> list[Sample]:
        return left.pop(0)

    harness: Any = SimpleNamespace(
        sites=SimpleNamespace(direct=SimpleNamespace(close=lambda: None)), plan=SimpleNamespace(faults=()), rest=[[A, B]],
        now_s=lambda: 0.0 if left else run.REST_S, broken=lambda promise, checker, sentence: found.append(promise), _looks=look,
    )
    await run.Harness._come_to_rest(harness)
    return found


@pytest.mark.parametrize(("looks", "broken"), [
    ([[A, B]], []),
    ([[LAGS, B], [A, B]], []),
    ([[A, HOLDS], [LAGS, B]], []),  # it had no lag before
    ([[A, HOLDS], [LAGS, HOLDS]], ["I6"]),
    ([[LAGS, B], [LAGS, B]], ["P8"]),
    ([[LAGS, HOLDS], [LAGS, HOLDS]], ["I6", "P8"]),
])
async def test_each_comes_to_rest_by_itself(
    looks: list[list[Sample]], broken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await broken_after(looks, monkeypatch) == broken
