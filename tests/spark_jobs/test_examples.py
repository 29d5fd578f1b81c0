"""The Python of the pages of audits and of encryption is run as it stands, on logs and a snapshot that the product wrote.

Their paths, below /srv and /etc, lie below a folder of the test.
"""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from storage.rows.codec import RowCodec
from tests.spark_jobs.log_writers import written
from tests.spark_jobs.snapshots.snapshot_rig import frames, storage, table
from tests.storage.log.keys import log_key, ring
from tests.tools.docs_site.test_examples import blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FRAMES, FIRST = 20, 4700
FLIGHTS = table(1, "flights")
KEY_ID = "2026-11"  # of the page


async def _kept(site: Path) -> None:
    encode = RowCodec(FLIGHTS).encode_json_row
    rows = dict(encode({"id": number, "text": f"row {number}"}) for number in range(FIRST, FIRST + 20))
    async with storage("rocksdb", "engine", site, frames([FLIGHTS], {1: rows})) as engine:
        place = (await engine.keep()).place.removeprefix("rocksdb:")
        assert Path(place).relative_to(site) == Path("engine", "kept", "audit", "rocksdb"), "as the page has it"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """/srv and /etc of the pages."""
    root = tmp_path_factory.mktemp("machine")
    for folder in ("srv/a", "srv/b", "srv/twinlog/data", "etc/twinlog/keys"):
        (root / folder).mkdir(parents=True)
    asyncio.run(_kept(root / "srv" / "a"))
    asyncio.run(written(root / "logs", FRAMES, (ring("plain"), ring(KEY_ID))))
    (root / "etc/twinlog/keys" / f"{KEY_ID}.key").write_text(base64.b64encode(log_key(KEY_ID).secret).decode())
    for place, what in {"srv/a/wal": "wal", "srv/twinlog/data/wal": "wal", "srv/b/dfs": "dfs"}.items():
        (root / place).symlink_to(root / "logs" / what)
    (root / "logs/dfs/orders").symlink_to(root / "logs/dfs/pair")
    return root


def run(code: str, machine: Path, spark: SparkSession) -> dict[str, Any]:
    """Returns what the names of a block of a page are behind it."""
    names: dict[str, Any] = {"spark": spark}
    exec(code.replace("/srv/", f"{machine}/srv/").replace("/etc/", f"{machine}/etc/"), names)
    return names


def blocks_of(page: str, words: str) -> str:
    (found,) = [block for block in blocks(Path("docs", page), "python") if words in block]
    return found


def test_a_look_at_one_row(spark: SparkSession, machine: Path, capfd: pytest.CaptureFixture[str]) -> None:
    names = run(blocks_of("audits.md", "a look at one row"), machine, spark)
    assert [row.key for row in names["rows"].collect()] == [RowCodec(FLIGHTS).encode_key({"id": 4711})]
    (pushed,) = [line for line in capfd.readouterr().out.splitlines() if line.startswith("PushedFilters: ")]
    assert "EqualTo(key,[B@" in pushed


def test_follow_a_log(spark: SparkSession, machine: Path) -> None:
    query = run(blocks_of("audits.md", "readStream"), machine, spark)["query"]
    query.processAllAvailable()
    query.stop()
    stored, read = spark.read.parquet(f"{machine}/srv/records"), spark.read.format("twinlog").option("view", "log")
    assert stored.count() == read.option("path", f"{machine}/srv/a/wal").load().count() > FRAMES


def test_a_notebook(spark: SparkSession, machine: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run(blocks_of("audits.md", "notebook"), machine, spark)
    assert "operation|count|" in capfd.readouterr().out


def test_an_encrypted_log(spark: SparkSession, machine: Path) -> None:
    code = blocks_of("encryption-at-rest.md", "encryption_keys")
    found = run(f"found = {code}", machine, spark)["found"]
    assert found.count() > FRAMES
