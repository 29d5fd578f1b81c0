"""The job repair: what it refuses to begin with, what it looks at, what it writes and in which order it stops."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from spark_jobs.job import JobRequest, Outcome
from spark_jobs.repair import job as repair
from spark_jobs.report.folder import FINDINGS, SUMMARY
from tests.spark_jobs.audit.stub_sites import StubPair
from tests.spark_jobs.log_rig import Silent
from tests.twinlog.raw_site import FunctionHttp
from twinlog import Client, Patience
from twinlog.errors import InvalidInput, NotFound, Refused, Unavailable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMPARED = "20261121T120000Z-compare"
_TYPES = {"key": pa.binary(), "source_version": pa.int64(), "peer_version": pa.int64(), "range": pa.int32()}


def finding(number: int, kind: str, source: int | None, peer: int | None, table: str = "t") -> dict[str, Any]:
    return {
        "table": table, "key": bytes([128, number]), "key_text": str(number), "kind": kind, "source_version": source,
        "peer_version": peer, "source_row": None if source is None else json.dumps({"id": number, "of": "source"}),
        "peer_row": None if peer is None else json.dumps({"id": number, "of": "peer"}), "range": 0,
    }


ROWS = [
    finding(1, "missing", 5, None), finding(2, "stale", 9, 5), finding(3, "damaged", 7, 7), finding(4, "extra", None, 5, "u"),
]
SUMMARY_OF_COMPARE = {
    "id": COMPARED, "job": "compare", "outcome": "bad", "pair": "demo", "findings": len(ROWS),
    "sites": {"a": {"role": "active"}, "b": {"role": "standby"}},
}


CODES = {404: "not-found", 412: "precondition-failed", 421: "not-active", 503: "unavailable"}
QUICK = Patience(deadline_s=0.2, retry_first_s=0.001, retry_max_s=0.01)


def problem(status: int) -> httpx.Response:
    return httpx.Response(status, json={"type": f"urn:twinlog:problem:{CODES[status]}", "detail": "so it is"})


class Active:
    """The active's rows by key: versions. Writes are answered, and kept."""

    def __init__(self) -> None:
        self.versions = {"1": 5, "2": 9, "3": 7}
        self.requests: list[httpx.Request] = []
        self.answers: dict[str, int] = {}  # key -> status of the answer to a write of it

    def __call__(self, request: httpx.Request) -> httpx.Response:
        key = request.url.path.rpartition("/")[2]
        if request.method == "GET":
            version = self.versions.get(key)
            return problem(404) if version is None else httpx.Response(200, json={"row": {}, "version": version})
        self.requests.append(request)
        if key in self.answers:
            return problem(self.answers[key])
        return httpx.Response(200, json={"version": 100, "receipt": "R"})

    @property
    def written(self) -> list[tuple[str, str, str]]:
        """(method, path behind the tables, what the row's text says)."""
        return [
            (one.method, one.url.path.removeprefix("/v1/tables/"), json.loads(one.content)["of"] if one.content else "")
            for one in self.requests
        ]


@pytest.fixture
def active(monkeypatch: pytest.MonkeyPatch) -> Active:
    site = Active()
    monkeypatch.setattr(repair, "Client", lambda urls, patience, tls=None: Client(urls, QUICK, FunctionHttp(site)))
    return site


@pytest.fixture
def pair() -> Iterator[StubPair]:
    with StubPair() as opened:
        yield opened


def compared(folder: Path, rows: list[dict[str, Any]] = ROWS, **changes: Any) -> Path:
    """The folder of a comparison that found `rows`."""
    path = folder / COMPARED
    path.mkdir(exist_ok=True)
    schema = pa.schema([(name, _TYPES.get(name, pa.string())) for name in ROWS[0]])
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), path / FINDINGS)
    (path / SUMMARY).write_text(json.dumps({**SUMMARY_OF_COMPARE, **changes}))
    return path


def request(pair: StubPair, folder: Path, options: Mapping[str, str], tables: tuple[str, ...] = ()) -> JobRequest:
    sites = pair.sources
    return JobRequest("repair", "demo", sites["a"], sites["b"], folder / ".x-repair.part", tables, options=options)


def run(spark: SparkSession, asked: JobRequest) -> tuple[Outcome, dict[str, str]]:
    """And the state of each row."""
    outcome = repair.run(spark, asked, Silent())
    states = {row["key_text"]: row["state"] for row in outcome.frames["repairs"].collect()}
    left = {row["key_text"] for row in outcome.findings.collect()}
    assert left == {key for key, state in states.items() if state != "written"}
    assert outcome.good == (not left)
    return outcome, states


@pytest.mark.parametrize(("options", "said"), [
    ({"audit": COMPARED, "write": "true"}, "it is yes or no"),
    ({"audit": COMPARED, "truth": "c"}, "the sites of this pair are a and b"),
])
def test_a_wrong_setting_is_refused(pair: StubPair, active: Active, tmp_path: Path, options: dict[str, str], said: str) -> None:
    compared(tmp_path)
    with pytest.raises(InvalidInput, match=said):
        repair.run(None, request(pair, tmp_path, options), Silent())  # type: ignore[arg-type]
    assert active.requests == []


@pytest.mark.parametrize(("changes", "said"), [
    ({"job": "log-audit"}, "is a log-audit with the outcome bad"),
    ({"outcome": "failed"}, "is a compare with the outcome failed"),
    ({"pair": "other"}, "is of the pair other, not demo"), ({"sites": {"a": {}, "c": {}}}, "is of the pair demo"),
])
def test_what_is_no_comparison_of_this_pair_is_refused(
    pair: StubPair, active: Active, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    compared(tmp_path, **changes)
    with pytest.raises(Refused, match=said):
        repair.run(None, request(pair, tmp_path, {"audit": COMPARED, "write": "yes"}), Silent())  # type: ignore[arg-type]
    assert active.requests == []


def test_an_audit_that_is_not_there_and_one_that_found_too_much(
    pair: StubPair, active: Active, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = request(pair, tmp_path, {"audit": COMPARED, "write": "yes"})
    with pytest.raises(NotFound, match="holds no audit"):
        repair.run(None, asked, Silent())  # type: ignore[arg-type]
    compared(tmp_path)
    monkeypatch.setattr(repair, "ROWS_MAX", len(ROWS) - 1)
    with pytest.raises(Refused, match="more than 3 are not repaired one by one"):
        repair.run(None, asked, Silent())  # type: ignore[arg-type]
    assert active.requests == []


def test_nobody_active_writes_nothing(pair: StubPair, active: Active, tmp_path: Path) -> None:
    compared(tmp_path)
    pair.active = "nobody"
    with pytest.raises(Unavailable, match="needs one active site"):
        repair.run(None, request(pair, tmp_path, {"audit": COMPARED, "write": "yes"}), Silent())  # type: ignore[arg-type]
    assert active.requests == []


def test_a_dry_run_looks_and_writes_nothing(spark: SparkSession, pair: StubPair, active: Active, tmp_path: Path) -> None:
    compared(tmp_path)
    active.versions["2"] = 10
    for write in ({}, {"write": "no"}):
        outcome, states = run(spark, request(pair, tmp_path, {"audit": COMPARED, **write}))
        assert states == {"1": "to write", "2": "changed since", "3": "refused", "4": "to write"}
        assert outcome.counters == {"ROWS": 4, "CHANGED_SINCE": 1, "REFUSED": 1, "TO_WRITE": 2}
        assert "a dry run" in outcome.remarks[1]
    assert active.requests == []


def test_it_writes_the_actives_rows_each_under_a_key_of_its_own(
    spark: SparkSession, pair: StubPair, active: Active, tmp_path: Path
) -> None:
    compared(tmp_path)
    outcome, states = run(spark, request(pair, tmp_path, {"audit": COMPARED[:11], "write": "yes"}))
    assert states == {"1": "written", "2": "written", "3": "refused", "4": "written"}
    assert active.written == [("PUT", "t/rows/1", "source"), ("PUT", "t/rows/2", "source"), ("DELETE", "u/rows/4", "")]
    assert [one.headers["Idempotency-Key"] for one in active.requests] == [f"x-repair.part-{number}" for number in (0, 1, 3)]
    assert (outcome.good, outcome.tables) == (False, ("t", "u"))
    one = outcome.frames["repairs"].collect()[0]
    assert (one["action"], one["version"], one["receipt"]) == ("write", 100, "R")


def test_the_other_sites_rows_are_written_where_they_are_the_truth(
    spark: SparkSession, pair: StubPair, active: Active, tmp_path: Path
) -> None:
    compared(tmp_path)
    outcome, _ = run(spark, request(pair, tmp_path, {"audit": COMPARED, "write": "yes", "truth": "b"}))
    assert active.written == [
        ("DELETE", "t/rows/1", ""), ("PUT", "t/rows/2", "peer"), ("PUT", "t/rows/3", "peer"), ("PUT", "u/rows/4", "peer"),
    ]
    assert outcome.good


def test_the_active_may_have_moved_since_the_comparison(
    spark: SparkSession, pair: StubPair, active: Active, tmp_path: Path
) -> None:
    """The former standby is written to now, and its versions are the condition; but somebody has to say who is right."""
    compared(tmp_path)
    pair.active = "b"
    _, states = run(spark, request(pair, tmp_path, {"audit": COMPARED, "write": "yes"}))
    assert set(states.values()) == {"refused"}
    run(spark, request(pair, tmp_path, {"audit": COMPARED, "write": "yes", "truth": "a"}))
    assert active.written[1] == ("PUT", "t/rows/2", "source")
    assert active.requests[1].headers["If-Match"] == '"5"'
    assert {one.url.host + f":{one.url.port}" for one in active.requests} == {pair.sites["b"].url.removeprefix("http://")}


def test_it_ends_where_the_active_does_and_says_what_was_not_tried(
    spark: SparkSession, pair: StubPair, active: Active, tmp_path: Path
) -> None:
    compared(tmp_path)
    active.answers = {"1": 412, "2": 421}
    outcome, states = run(spark, request(pair, tmp_path, {"audit": COMPARED, "write": "yes", "truth": "a"}))
    assert states == {"1": "changed since", "2": "to write", "3": "to write", "4": "to write"}
    assert [path for _, path, _ in active.written] == ["t/rows/1", "t/rows/2"]
    reasons = {row["key_text"]: row["reason"] for row in outcome.findings.collect()}
    assert reasons["3"].startswith("not tried: so it is")


def test_only_the_tables_that_are_named(spark: SparkSession, pair: StubPair, active: Active, tmp_path: Path) -> None:
    compared(tmp_path)
    outcome, states = run(spark, request(pair, tmp_path, {"audit": COMPARED, "write": "yes"}, ("u",)))
    assert (states, outcome.tables, outcome.good) == ({"4": "written"}, ("u",), True)
