"""A scan of the past moves along the rows, not along all that they once were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from storage.engines.rocks.engine import RocksEngine
from storage.engines.rocks.opening import RocksSettings
from storage.engines.rocks.view import RocksView
from tests.storage.engines.engine_rig import Log, delete, put_table, scan, upsert, value

ROWS, VERSIONS = 5, 300
MOVES = ("seek", "seek_for_prev", "next", "prev")


@pytest.mark.parametrize("reverse", [False, True])
async def test_the_versions_that_a_row_has_had_cost_a_scan_of_the_past_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reverse: bool
) -> None:
    log, moves, cursor = Log(), [0], RocksView._cursor.fget  # type: ignore[attr-defined]

    class Counting:
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> Any:
            def counted(*arguments: Any) -> Any:
                moves[0] += name in MOVES
                return getattr(self._inner, name)(*arguments)

            return counted

    engine = await RocksEngine.open(tmp_path / "engine", RocksSettings())
    await engine.apply([log.frame(put_table(history_s=3600))])
    keys = [b"key%d" % number for number in range(ROWS)]
    moments = []
    for version in range(VERSIONS):
        frame = log.frame(*(upsert(key, value(c1=version)) for key in keys))
        await engine.apply([frame])
        moments.append(frame.timestamp + ROWS - 1)
    await engine.apply([log.frame(*(delete(key) for key in keys))])
    monkeypatch.setattr(RocksView, "_cursor", property(lambda view: Counting(cursor(view))))
    for version in (0, 1, VERSIONS // 2, VERSIONS - 2, VERSIONS - 1):
        moves[0] = 0
        expected = {key: value(c1=version) for key in (keys[::-1] if reverse else keys)}
        assert await scan(engine, as_of=moments[version], reverse=reverse) == expected
        assert moves[0] < 5 * ROWS
    await engine.close()
