"""A trickle into a large table must not make RocksDB write the table again and again."""

from __future__ import annotations

from pathlib import Path

from bench.write_cost import engine_alone
from storage.engines.settings import EngineSettings


async def test_a_trickle_is_written_few_times(tmp_path: Path) -> None:
    """A twentieth of a million rows at a twentieth of 200 PUT/s, with a site's setting. With a flush every second it is 66."""
    cost = await engine_alone(50_000, 30_000, 10, EngineSettings().flush_interval_s, tmp_path / "engine")
    assert cost.flushes in (9, 10)
    assert 1 < cost.written < 10
