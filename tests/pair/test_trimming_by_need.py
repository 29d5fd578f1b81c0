"""The logs of a pair are trimmed behind what its storages flush by need, also when no age asks for a flush."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.pair.pair_rig import open_pair, put, site

ROWS = 400
ROW_BYTES = 1_000  # letters that zstd cannot halve twice: some six segments of 64 KiB
UNFLUSHED_MAX = 100


@pytest.mark.parametrize(("limit", "most"), [("RECORDS_MAX", UNFLUSHED_MAX), ("BYTES_MAX", UNFLUSHED_MAX * ROW_BYTES // 2)])
async def test_what_waits_is_flushed_by_its_amount_and_the_log_is_trimmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, most: int
) -> None:
    monkeypatch.setattr("gateway.site.supervisor.FLUSH_LOOK_S", 0.02)
    monkeypatch.setattr(f"storage.engines.flushing.{limit}", most)
    source = random.Random(1)
    async with open_pair(tmp_path, flush_interval_s=3600.0) as pair:
        for key in range(ROWS):
            await put(pair, "a", key, source.randbytes(ROW_BYTES // 2).hex())

        def trimmed() -> bool:
            engines = [site(pair, name).parts.engine for name in "ab"]
            first = site(pair, "a").parts.wal.first_previous
            return all(engine.durable_seq >= ROWS // 2 for engine in engines) and first is not None and first >= ROWS // 4

        await pair.until(trimmed)
