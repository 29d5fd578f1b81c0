"""Sizes of tables in RocksDB: walks give up, and an estimate keeps to what files and memtables can hold."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from storage.engine import TableSize
from storage.engines.rocks import layout, sizes
from storage.engines.rocks.opening import RocksSettings
from storage.engines.sizes import sampling
from tests.storage.engines.engine_rig import Log, T, delete, put_table, upsert, value
from tests.storage.engines.rocks.rig import RocksRig
from tests.storage.engines.sizes.engine_contract_size import fill
from twinlog.errors import EngineFailed

ROWS = 2000


@pytest.fixture
async def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RocksRig]:
    """Holds the empty table T; a table with more than 100 rows is not counted."""
    monkeypatch.setattr(sampling, "COUNTED_ROWS", 100)
    made = await RocksRig.make(tmp_path, RocksSettings())
    yield made
    await made.engine.close()


async def test_behind_many_deleted_rows_nothing_is_known(rig: RocksRig, monkeypatch: pytest.MonkeyPatch) -> None:
    log, keys = Log(), [b"%05d" % number for number in range(ROWS)]
    await rig.engine.apply([log.frame(put_table())])
    await fill(rig, log, keys)
    await rig.engine.flush()
    await rig.engine.apply([log.frame(*map(delete, keys[: ROWS // 2]))])
    monkeypatch.setattr(sizes, "SKIPPED_MAX", 50)
    assert await rig.engine.table_size(T) == TableSize(None, False, None)
    monkeypatch.setattr(sizes, "SKIPPED_MAX", ROWS)
    found = await rig.engine.table_size(T)
    assert found is not None
    assert ROWS / 4 <= (found.rows or 0) <= ROWS


@pytest.mark.parametrize("sampled", [1.0, None, 1e12])
async def test_an_estimate_keeps_to_what_is_known_for_certain(
    rig: RocksRig, monkeypatch: pytest.MonkeyPatch, sampled: float | None
) -> None:
    """A sample that says far too little or too much, or that has no time."""
    log = Log()
    await rig.engine.apply([log.frame(put_table(), *(put_table(number, name=f"t{number}") for number in (T - 1, T + 1)))])
    for table in (T - 1, T, T + 1):
        await fill(rig, log, [b"%05d" % number for number in range(ROWS)], table)
    monkeypatch.setattr(sampling, "sampled", lambda *_: sampled)
    for _ in range(2):  # from memory, and from files
        found = await rig.engine.table_size(T)
        assert found is not None
        assert 100 < (found.rows or 0) <= 3 * ROWS + 200
        await rig.engine.flush()


class Files:
    """A database of three files, whose keys are those of tables T - 1 to T + 1, with 10 entries in memory."""

    def property_int_value(self, name: str) -> int:
        return 10 if "active" in name else 0

    def live_files(self) -> list[dict[str, Any]]:
        ends = [(T - 1, b"a", T, b"c", 100), (T, b"d", T, b"e", 1000), (T + 1, b"a", T + 1, b"b", 5000)]
        return [
            {
                "start_key": layout.row_prefix(low) + first, "end_key": layout.row_prefix(high) + last,
                "num_entries": count, "num_deletions": 200 if count == 1000 else 0,
            } for low, first, high, last, count in ends
        ]


def test_files_of_a_table_alone_say_how_many_there_are_at_least() -> None:
    database: Any = Files()
    assert sizes._held(database, layout.row_range(T)) == (600, 1110)
    assert sizes._held(database, layout.row_range(T + 1)) == (5000, 5010)
    assert sizes._held(database, layout.row_range(T + 2)) == (0, 10)


async def test_rows_in_files_of_their_own_are_found_whatever_a_sample_says(
    rig: RocksRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log()
    await rig.engine.apply([log.frame(put_table())])
    await fill(rig, log, [b"%05d" % number for number in range(ROWS)])
    monkeypatch.setattr(sizes, "_held", lambda *_: (ROWS, 2 * ROWS))
    monkeypatch.setattr(sampling, "sampled", lambda *_: 200.0)
    found = await rig.engine.table_size(T)
    assert found is not None
    assert ROWS / 2 <= (found.rows or 0) <= 2 * ROWS


async def test_a_size_during_a_reopen_is_refused_like_any_read(rig: RocksRig) -> None:
    log = Log()
    await rig.engine.apply([log.frame(put_table(), upsert(b"k", value(c1=1)))])
    rig.engine._reopening = True
    with pytest.raises(EngineFailed, match="begin the read again"):
        await rig.engine.table_size(T)
    rig.engine._reopening = False
