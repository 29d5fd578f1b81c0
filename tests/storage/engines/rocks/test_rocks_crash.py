"""RocksDB without its own log: whenever the process is killed, what is found is the end of some earlier apply, no less than
what was called durable, and never a part of an apply.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from storage.engines.rocks.engine import RocksEngine
from tests.storage.engines.engine_rig import value
from tests.storage.engines.rocks.apply_until_killed import KEPT, PER_FRAME, SETTINGS, SHARED, TABLE, frame_number
from tools.sources import ROOT


def run_and_kill(folder: Path, seed: int) -> tuple[int, int]:
    """The last frame number and durable sequence that the victim could say."""
    victim = subprocess.Popen(
        [sys.executable, "-m", "tests.storage.engines.rocks.apply_until_killed", str(folder), str(seed)],
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )
    assert victim.stdout is not None
    with victim, victim.stdout as lines:
        for _ in range(random.Random(seed).randint(1, 500)):
            told = next(lines).split()
        victim.kill()
        for line in lines:  # what it could still say before it died
            if line.endswith("\n"):
                told = line.split()
    return int(told[0]), int(told[1])


async def check(engine: RocksEngine) -> int:
    """The whole database is that of frame n, the last one applied."""
    n, rest = divmod(engine.applied.seq, PER_FRAME)
    assert rest == 0, "a part of a frame"
    assert engine.durable_seq == engine.applied.seq
    if n == 0:
        return 0
    frame = frame_number(n)
    assert engine.applied.timestamp == frame.timestamp + PER_FRAME - 1
    expected = {key: value(c1=n, c3="x" * 200, c2=-n) for key in SHARED}
    expected.update({b"row %d" % kept: value(c1=kept) for kept in range(max(1, n - KEPT + 1), n + 1)})
    rows = await engine.scan(TABLE, None, None, reverse=False, limit=1000)
    assert {row.key: row.value for row in rows} == expected
    assert all([await engine.get(TABLE, row.key) == row for row in rows])
    before = await engine.get_as_of(TABLE, SHARED[0], frame.timestamp)
    assert before is None if n == 1 else before is not None and before.value == value(c1=n - 1, c3="x" * 200, c2=1 - n)
    outcome = await engine.request_outcome(f"{n}")
    assert outcome is not None
    assert await engine.request_outcome(f"{n + 1}") is None
    assert engine.applied.schemas() == {TABLE: engine.applied.schemas()[TABLE]}
    return n


@pytest.mark.parametrize("life", [0, 1])
async def test_a_killed_process_leaves_a_prefix(tmp_path: Path, life: int) -> None:
    """Ten times in a row on one folder: the next life goes on where the last one was found."""
    reached = []
    for seed in range(life * 10, life * 10 + 10):
        told, durable = run_and_kill(tmp_path, seed)
        engine = await RocksEngine.open(tmp_path, SETTINGS)
        n = await check(engine)
        assert durable <= n * PER_FRAME <= (told + 5) * PER_FRAME  # it may have done one more than it could say
        reached.append((n, told))
        await engine.close()
    assert any(0 < n < told for n, told in reached), f"no kill lost anything, so nothing was tested: {reached}"
