"""A pair of real gateways, audited by the command: `twinlog audit run` as `spark_jobs.run` has it, on the Spark of tests."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from gateway.config.loading import load_site_config
from gateway.demo.files import client_address, write_files
from gateway.demo.servers import HdfsRoot
from spark_jobs import run
from spark_jobs.audit.audit import perform
from spark_jobs.audit.progress import Steps
from spark_jobs.report.folder import first_findings
from storage.engine import StoredRow
from storage.engines.opening import open_engine
from storage.rows.codec import RowCodec
from storage.rows.schema import decode_schema
from tests.crash.processes import Processes
from twinlog import Client

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ITEMS = "items"
TABLE = {
    "name": ITEMS, "primary_key": ["id"],
    "columns": [{"name": "id", "type": "int64"}, {"name": "n", "type": "int64"}, {"name": "text", "type": "string"}],
}
ROCKS = '[engine]\nkind = "rocksdb"\n'
START_S = 300.0
Planted = dict[str, str]  # key -> kind


class _Steps(Steps):
    """Does what is planned `at` a step, once, when the step is said: just before its work begins."""

    def __init__(self, console: Console, at: dict[str, Callable[[], object]]) -> None:
        super().__init__(console)
        self._at = at

    def step(self, what: str) -> None:
        super().step(what)
        for planned in [planned for planned in self._at if what.startswith(planned)]:
            self._at.pop(planned)()


@contextlib.contextmanager
def given_session(spark: SparkSession, at: dict[str, Callable[[], object]] | None = None) -> Iterator[None]:
    """The command takes the session of the tests, and leaves it as it is. `at`: what happens at which step."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "perform", partial(perform, session=lambda *_: contextlib.nullcontext(spark)))
        patch.setattr(run, "Steps", partial(_Steps, at={} if at is None else at))
        yield


class AuditedPair(Processes):
    """Sites a and b; a begins as the active. `databases`: site -> address of its PostgreSQL; the others have RocksDB.
    `hdfs`: of each site; None: directories."""

    def __init__(
        self, directory: Path, databases: Mapping[str, str] | None = None, hdfs: Mapping[str, HdfsRoot] | None = None
    ) -> None:
        super().__init__(directory)
        self.configs = write_files(directory, self.ports, engine="rocksdb", hdfs=hdfs)
        for site, url in (databases or {}).items():
            (directory / site / "database").write_text(url)
            self.reconfigure(site, ROCKS, '[engine]\nkind = "postgresql"\nurl = "file:database"\n')
        self.audits = directory / "audits"
        self._audits = 0
        self.at: dict[str, Callable[[], object]] = {}  # the beginning of a step of an audit -> what happens there
        self.address = client_address(self.urls)

    def reconfigure(self, site: str, old: str, new: str) -> None:
        """Changes the site's file; a running process keeps the settings that it has read."""
        text = self.configs[site].read_text()
        assert old in text
        self.configs[site].write_text(text.replace(old, new))

    def open(self) -> None:
        """Both sites, and the table."""
        self.start("a")
        self.start("b")
        self.until("the pair opens", lambda: (self.role("a"), self.role("b")) == ("ACTIVE", "STANDBY"), START_S)
        with Client(self.address) as client:
            client.create_table(TABLE)

    def put(self, rows: Sequence[Mapping[str, Any]]) -> None:
        with Client(self.address) as client:
            client.mutate(ITEMS, [{"op": "upsert", "row": row} for row in rows])

    def drain(self) -> None:
        """Until b holds what a has committed."""
        def is_even() -> bool:
            a, b = (self.cluster(site) for site in "ab")
            return bool(a["applied_seq"] == b["applied_seq"] >= a["committed_seq"])

        self.until("b has caught up", is_even, START_S)

    def stop(self, site: str) -> None:
        """As an operator does."""
        process = self.running.pop(site)
        process.terminate()
        process.join(30)

    def back(self, site: str, role: str) -> None:
        self.start(site)
        self.until(f"{site} is {role}", lambda: self.role(site) == role, START_S)

    def audit(self, job: str, *more: str, expected: int) -> dict[str, Any]:
        """The summary that the command prints; it must end with the exit code `expected`."""
        self._audits += 1  # several may begin in one second
        out = self.audits / f"{self._audits}-{job}"
        words = ["--config", str(self.configs["a"]), "--peer-config", str(self.configs["b"]), "--out", str(out)]
        with contextlib.redirect_stdout(io.StringIO()) as said:
            code = run.main([job, *words, "--json", *more])
        assert code == expected, said.getvalue()
        summary: dict[str, Any] = json.loads(said.getvalue())
        return summary

    def found(self, summary: Mapping[str, Any]) -> Planted:
        rows = first_findings(Path(summary["path"]), 1000)
        assert len(rows) == summary["findings"]
        return {row["key_text"]: row["kind"] for row in rows}

    def held(self) -> list[str]:
        """Barriers at the sites that answer."""
        return [
            barrier["name"] for site in self.running
            for barrier in self.http.get(f"{self.urls[site]}/v1/barriers").json()["barriers"]
        ]

    def plant(self, site: str, first: int = 0) -> Planted:
        """One fault of each kind in the rows `first` to `first` + 2 (by key) of a site that is stopped, and a row too many."""
        return asyncio.run(self._plant(site, first))

    async def _plant(self, site: str, first: int) -> Planted:
        config = load_site_config(self.configs[site], {})
        engine = await open_engine(config.engine, config.data_dir, config.pair, site)
        try:
            ((number, schema),) = [(number, decode_schema(each)) for number, each in engine.applied.schemas().items()]
            codec = RowCodec(schema)
            rows = await engine.scan(number, codec.encode_key({"id": first}), None, reverse=False, limit=3)
            (gone, old, bad), extra = rows, codec.encode_json_row({"id": -1, "n": 0, "text": "too many"})
            flipped = bytes((*bad.value[:-1], bad.value[-1] ^ 1))
            await engine.replace_rows(
                [
                    (number, gone.key, None), (number, old.key, StoredRow(old.key, old.value, old.version - 1)),
                    (number, bad.key, StoredRow(bad.key, flipped, bad.version)), (number, extra[0], StoredRow(*extra, 1)),
                ],
                engine.applied.seq, engine.applied.epoch, engine.applied.timestamp,
            )
        finally:
            await engine.close()
        return {str(first): "missing", str(first + 1): "stale", str(first + 2): "damaged", "-1": "extra"}


@contextlib.contextmanager
def audited_pair(spark: SparkSession, directory: Path, **settings: Any) -> Iterator[AuditedPair]:
    """Open; ended at the end."""
    pair = AuditedPair(directory, **settings)
    try:
        with given_session(spark, pair.at):
            pair.open()
            yield pair
    finally:
        pair.close()
