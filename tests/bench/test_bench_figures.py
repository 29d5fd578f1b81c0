"""Requests are what the API takes, and figures are computed as they are named."""

from __future__ import annotations

import io
import itertools
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from rich.console import Console

from bench import report, run
from bench.load_generator import Result, _percentile_ms
from bench.measure import Sample, pauses, quantile_ms, spread, summary
from bench.requests import ARROW, BATCH_ROWS, JSON, MSGPACK, Workload, row


def split(request: bytes) -> tuple[list[str], bytes]:
    """Lines of the head, and the body, whose length the head must tell."""
    head, _, body = request.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert sum(line == f"content-length: {len(body)}" for line in lines) == (1 if body else 0)
    return lines, body


def test_a_put_is_about_a_hundred_bytes_and_leaves_the_key_to_the_path() -> None:
    lines, body = split(next(Workload("put", "t", keys=1).requests()))
    assert lines[0] == "PUT /v1/tables/t/rows/0 HTTP/1.1"
    assert 80 <= len(body) <= 120
    assert "id" not in msgspec.json.decode(body)


@pytest.mark.parametrize("content_type", [JSON, MSGPACK, ARROW])
def test_every_format_carries_the_same_rows(content_type: str) -> None:
    first, second = itertools.islice(Workload("batch", "t", content_type, first_key=5_000).requests(), 2)
    for start, request in ((5_000, first), (5_000 + BATCH_ROWS, second)):
        lines, body = split(request)
        assert lines[0] == "POST /v1/tables/t/rows:mutate HTTP/1.1"
        assert f"content-type: {content_type}" in lines
        assert decoded(content_type, body) == [row(key) for key in range(start, start + BATCH_ROWS)]


def decoded(content_type: str, body: bytes) -> list[dict[str, object]]:
    if content_type == ARROW:
        rows: list[dict[str, object]] = pa.ipc.open_stream(io.BytesIO(body)).read_all().to_pylist()
        return rows
    decode = msgspec.json.decode if content_type == JSON else msgspec.msgpack.decode
    mutations = decode(body)["mutations"]
    assert {mutation["op"] for mutation in mutations} == {"upsert"}
    return [mutation["row"] for mutation in mutations]


def test_an_unknown_workload_is_refused() -> None:
    with pytest.raises(ValueError, match="put, get or batch"):
        Workload("drop", "t").requests()


@pytest.mark.parametrize(("values", "share", "expected"), [
    ([0.001], 0.5, 1.0), ([0.001, 0.002], 0.5, 1.0), ([0.001, 0.002, 0.003], 0.5, 2.0),
    ([n / 1000 for n in range(1, 101)], 0.99, 99.0), ([n / 1000 for n in range(1, 101)], 1.0, 100.0), ([], 0.5, None),
])
def test_percentiles(values: list[float], share: float, expected: float | None) -> None:
    assert _percentile_ms(values, share) == (None if expected is None else pytest.approx(expected))


def sample(mode: str, number: int, per_second: float) -> Sample:
    result = Result(count=1, rows=1, seconds=1, per_second=per_second, rows_per_second=per_second, p50_ms=1.0, p99_ms=2.0,
                    max_ms=3.0, failures={"503": 1})
    return Sample("put", mode, number, result)


def test_the_ratio_is_taken_within_each_round() -> None:
    """The machine became twice as slow in the second round; the ratio does not see it."""
    samples = [sample("sync", 0, 80), sample("async", 0, 100), sample("async", 1, 50), sample("sync", 1, 40)]
    (line,) = summary(samples)
    assert line["sync_to_async"] == pytest.approx({"median": 0.8, "low": 0.8, "high": 0.8})
    assert line["sync"]["per_second"] == {"median": 60, "low": 40, "high": 80}
    assert line["async"]["failures"] == 2


def test_a_quantile_lies_between_the_bounds_of_its_bucket() -> None:
    """Eight appends up to 1 ms before; then two up to 1 ms, six up to 2 ms, two that took longer."""
    before = {0.001: 8.0, 0.002: 8.0, float("inf"): 8.0}
    after = {0.001: 10.0, 0.002: 16.0, float("inf"): 18.0}
    assert quantile_ms(before, after, 0.2) == pytest.approx(1.0)
    assert quantile_ms(before, after, 0.5) == pytest.approx(1.5)
    assert quantile_ms(before, after, 0.99) == pytest.approx(2.0)
    assert quantile_ms({}, after, 0.5) == pytest.approx(0.9)
    assert quantile_ms(after, after, 0.5) is None
    assert quantile_ms({}, {}, 0.5) is None


def test_the_spread_of_nothing_is_nothing() -> None:
    assert spread([]) is None


@pytest.mark.parametrize("given", [["--rounds", "0"], ["--seconds", "0"], ["--rows-max", "-1"], ["--only", "no such case"],
                                   ["--dfs", "tape"], ["--dfs-sync", "none"], ["--engine", "tape"]])
def test_wrong_arguments_are_refused(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run.arguments(given)
    assert ended.value.code == 2
    assert given[0] in capsys.readouterr().err


@pytest.mark.parametrize(("given", "said"), [
    ([], "rows in RocksDB, remote logs on a directory"),
    (["--dfs", "hdfs", "--engine", "postgresql"], "rows in PostgreSQL, remote logs on HDFS with hsync"),
    (["--dfs", "hdfs", "--dfs-sync", "hflush", "--engine", "sqlite"], "rows in SQLite, remote logs on HDFS with hflush"),
])
def test_the_demo_is_asked_for_what_the_report_names(
    given: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []

    class NoPair(Exception):
        pass

    def pair(folder: Path, options: tuple[str, ...]) -> None:
        asked.append(options)
        raise NoPair

    monkeypatch.setattr(run, "Pair", pair)
    chosen = run.arguments(given)
    with pytest.raises(NoPair):
        run.run(chosen, tmp_path, Console(quiet=True))
    demo = dict(zip(asked[0][::2], asked[0][1::2], strict=True))
    assert demo == {"--dfs": chosen.dfs, "--dfs-sync": chosen.dfs_sync, "--engine": chosen.engine}
    assert report.stack({"settings": run.settings(chosen)}) == said


def test_what_held_up_the_active_is_counted_by_its_cause() -> None:
    """Two collections of 60 ms and more, of which one came before; three short applies; nothing is known of snapshots."""
    before = {"collector": {0.05: 7.0, float("inf"): 8.0}}
    after = {"collector": {0.05: 9.0, float("inf"): 11.0}, "apply": {0.05: 3.0, float("inf"): 3.0}}
    assert pauses(before, after) == {"collector": 1, "apply": 0, "snapshot": 0}
    result = sample("sync", 0, 80).result
    lines = summary([Sample("put", mode, 0, result, pauses={"collector": 1}) for mode in ("sync", "async")])
    assert report.pauses(lines).endswith("put, sync: 1 of the collector; put, async: 1 of the collector")
    assert report.pauses([]).endswith(": none")
