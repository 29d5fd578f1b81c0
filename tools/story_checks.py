"""The last checks of the story: every acknowledged row read back, both storages row by row, gaps, the remote log."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from gateway.demo.files import PAIR
from gateway.demo.servers import ROOT
from gateway.load.sources import open_source
from remote_log.layout import RemoteLayout
from spark_jobs.logs.files import LogFolder, list_log
from storage.engines.rocks.engine import RocksEngine
from storage.engines.rocks.opening import RocksSettings
from storage.log.segment import scan_segment
from storage.rows.schema import decode_schema
from twinlog import AsyncClient
from twinlog.errors import InvalidInput

SCAN_ROWS = 5_000
CLAIMS = "claims"  # the folder that holds no segments


@dataclass(frozen=True)
class Findings:
    acknowledged: int
    expected: int
    missing: int
    wrong: int
    stored: dict[str, int]
    different: int
    failover_gap_s: float
    switchover_gap_s: float
    remote_bytes: int
    remote_bytes_max: int
    memory_mb: dict[str, float]
    memory_mb_max: int
    modes: dict[str, int]

    def rows(self) -> Iterator[tuple[str, str, str, bool]]:
        """(what, measured, bound, good)."""
        yield "rows acknowledged", f"{self.acknowledged:,}", f"{self.expected:,}", self.acknowledged == self.expected
        yield "acknowledged rows missing at a", f"{self.missing:,}", "0", self.missing == 0
        yield "acknowledged rows wrong at a", f"{self.wrong:,}", "0", self.wrong == 0
        stored = " / ".join(f"{n:,}" for n in self.stored.values())
        yield "rows stored at a / b", stored, f"{self.expected:,}", set(self.stored.values()) == {self.expected}
        yield "rows different between the sites", f"{self.different:,}", "0", self.different == 0
        yield "seconds without writes, failover", f"{self.failover_gap_s:.2f}", "under 10", self.failover_gap_s < 10
        yield "seconds without writes, switchover", f"{self.switchover_gap_s:.2f}", "under 2", self.switchover_gap_s < 2
        yield "remote-log bytes at the end", f"{self.remote_bytes:,}", f"at most {self.remote_bytes_max:,}", (
            self.remote_bytes <= self.remote_bytes_max
        )
        for site, used in sorted(self.memory_mb.items()):
            small = used < self.memory_mb_max
            yield f"memory of site {site}, highest", f"{used:.0f} MB", f"under {self.memory_mb_max} MB", small
        yield "batches acknowledged sync / async", f"{self.modes['sync']:,} / {self.modes['async']:,}", "any", True

    @property
    def good(self) -> bool:
        return all(good for *_, good in self.rows())


def read_acks(path: Path) -> list[dict[str, Any]]:
    """Every whole line of the loader's acknowledgement file."""
    if not path.exists():
        return []
    data = path.read_bytes()
    return [json.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]


def longest_gap_s(acks: Sequence[dict[str, Any]], from_s: float, to_s: float) -> float:
    """The longest time between two acknowledgements, of those gaps that touch the time from `from_s` to `to_s`."""
    times = sorted(ack["monotonic_s"] for ack in acks)
    gaps = [b - a for a, b in pairwise(times) if b >= from_s and a <= to_s]
    return max(gaps, default=float("inf"))


def directory_log_bytes(dfs: Path) -> int:
    """Bytes of log in all remote segments on this DFS: headers and frames, without the zeros that a writer keeps ahead."""
    files = [path for path in dfs.rglob("*") if path.is_file() and path.parent.name != CLAIMS]
    return sum(scan_segment(path.read_bytes(), path.name).end for path in files if not path.name.startswith("."))


def hdfs_log_bytes(cluster: dict[str, Any]) -> int:
    """Returns the same of a site's HDFS, by its entry in hdfs.json."""
    place = LogFolder(f"{ROOT}{RemoteLayout(PAIR).folder}", cluster["web_url"], cluster["user"])
    store, found = place.store(), 0
    with suppress(InvalidInput):  # there is no log yet
        for segment in list_log(place).segments:
            with suppress(FileNotFoundError):  # trimmed since it was listed
                found += scan_segment(store.read(f"{place.folder}/{segment.name}"), segment.name.rpartition("/")[2]).end
    return found


async def read_back(urls: dict[str, str], acks: Sequence[dict[str, Any]], rows_max: int) -> tuple[int, int]:
    """Read everything from the active by scan: how many acknowledged rows are missing there, and how many differ."""
    source = open_source("flights", "", ())
    key = source.key
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    async with AsyncClient(urls) as client:
        async for row in client.scan(source.table, page_rows=SCAN_ROWS):
            found[_key(row, key)] = row
    missing = wrong = 0
    starts = {ack["first_row"]: ack["rows"] for ack in acks}
    for first, count in starts.items():
        for sent in source.rows.slice(first, count).to_pylist():
            stored = found.get(_key(sent, key))
            if stored is None:
                missing += 1
            elif not _same(sent, stored):
                wrong += 1
    return missing, wrong


def _key(row: dict[str, Any], key: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in key)


def _same(sent: dict[str, Any], stored: dict[str, Any]) -> bool:
    """Returns whether every value is there; NaN, which the source has for none, is null."""
    return all(stored[name] == (value if value == value else None) for name, value in sent.items())


async def compare_storages(directory: Path) -> tuple[dict[str, int], int]:
    """Open both engines (their sites have stopped): rows of each site, and how many keys, values or versions differ."""
    contents: dict[str, dict[tuple[str, bytes], tuple[bytes, int]]] = {}
    for site in ("a", "b"):
        engine = await RocksEngine.open(directory / site / "data" / "engine", RocksSettings())
        try:
            contents[site] = await _all_rows(engine)
        finally:
            await engine.close()
    a, b = contents["a"], contents["b"]
    different = sum(1 for key in a.keys() | b.keys() if a.get(key) != b.get(key))
    return {site: len(rows) for site, rows in contents.items()}, different


async def _all_rows(engine: RocksEngine) -> dict[tuple[str, bytes], tuple[bytes, int]]:
    rows: dict[tuple[str, bytes], tuple[bytes, int]] = {}
    for table, schema in engine.applied.schemas().items():
        name = decode_schema(schema).name
        start: bytes | None = None
        while True:
            page = await engine.scan(table, start, None, reverse=False, limit=SCAN_ROWS)
            rows.update({(name, row.key): (row.value, row.version) for row in page})
            if len(page) < SCAN_ROWS:
                break
            start = page[-1].key + b"\0"
    return rows
