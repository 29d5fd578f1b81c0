"""Encrypted logs in Spark: read by references to keys, which no plan, error or result shows; a missing key is no damage."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from spark_jobs.job import JobRequest, SiteSource
from spark_jobs.log_audit import job as log_audit
from spark_jobs.logs.files import LogFolder, list_log, place_of, whole_log
from spark_jobs.logs.standing import placed_frames, standing_frames
from spark_jobs.logs.walk import DAMAGED, walk
from storage.log.segment import parse_header
from tests.spark_jobs.log_rig import Silent, flip
from tests.spark_jobs.log_writers import written
from tests.storage.log.keys import log_key, ring
from tests.storage.log.test_encryption import places, put, with_crc
from twinlog.errors import InvalidInput, KeyUnavailable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FRAMES = 60
NOBODY = "http://127.0.0.1:1"
SECRET = base64.b64encode(log_key("k1").secret).decode()


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A WAL in the clear, and an encrypted remote log of the same frames."""
    root = tmp_path_factory.mktemp("encrypted") / "logs"
    root.mkdir()
    asyncio.run(written(root, FRAMES, (ring("plain"), ring("k1"))))
    (root / "k1.key").write_text(SECRET + "\n")
    (root / "k2.key").write_text(base64.b64encode(log_key("k2").secret).decode())
    return root


def remote(logs: Path) -> Path:
    return logs / "dfs" / "pair" / "0"


def view(spark: SparkSession, folder: Path, name: str, keys: str = "") -> DataFrame:
    reader = spark.read.format("twinlog").option("view", name).option("path", str(folder))
    return (reader.option("encryption_keys", keys) if keys else reader).load()


def test_it_is_read_as_the_other_log_is_and_nothing_shows_the_key(
    spark: SparkSession, logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = f"k2=file:{logs / 'k2.key'}, k1=file:{logs / 'k1.key'}"
    records = "epoch", "seq", "previous", "timestamp", "operation", "key", "row"
    found = view(spark, remote(logs), "log", keys)
    assert found.select(*records).orderBy("seq").collect() == \
        view(spark, logs / "wal", "log").select(*records).orderBy("seq").collect()
    headers = "seq", "last_seq", "previous", "committed", "flags", "crc"
    frames = view(spark, remote(logs), "frames", keys).where("entry = 'frame'").select(*headers).orderBy("seq").collect()
    assert frames == view(spark, logs / "wal", "frames").where("entry = 'frame'").select(*headers).orderBy("seq").collect()
    found.explain("extended")
    assert SECRET not in capsys.readouterr().out


def test_frames_of_it_stand_beside_plain_ones_of_the_same_log(spark: SparkSession, logs: Path) -> None:
    """As in a log whose encryption was just begun: the same frame may lie in segments of both kinds, with two lengths."""
    keys = f"k1=file:{logs / 'k1.key'}"
    both = [
        frame for place in (LogFolder(str(remote(logs)), keys=keys), LogFolder(str(logs / "wal")))
        for frame in placed_frames(spark, place)
    ]
    assert [frame.first_seq for frame in standing_frames(both)] == sorted({frame.first_seq for frame in both})


@pytest.mark.parametrize(("keys", "said"), [
    ("", "encrypted with the key 'k1', which the option encryption_keys"),
    ("k2=file:{logs}/k2.key", "encrypted with the key 'k1', which the option encryption_keys"),
    ("k1=file:{logs}/k2.key", "does not open it"),
])
def test_a_missing_or_wrong_key_is_said_at_once_and_is_no_finding(
    spark: SparkSession, logs: Path, keys: str, said: str
) -> None:
    given = keys.format(logs=logs)
    with pytest.raises(KeyUnavailable, match=said):
        whole_log(LogFolder(str(remote(logs)), keys=given))
    with pytest.raises(PySparkException, match=said):
        view(spark, remote(logs), "runs", given).collect()
    with pytest.raises(KeyUnavailable, match=said):
        audit(spark, logs, given)


@pytest.mark.parametrize(("keys", "said"), [
    (SECRET, "has no reference at place 1"), (f"k1={SECRET}", "has no reference at place 1"),
    ("k1=file:/nowhere/k1", "/nowhere/k1, which cannot be read"), ("k1=env:NOBODY_SET_IT", "NOBODY_SET_IT, which is not set"),
])
def test_a_key_in_plain_text_is_refused_and_not_repeated(keys: str, said: str) -> None:
    with pytest.raises(InvalidInput, match=said) as raised:
        place_of({"path": "/wal", "encryption_keys": keys}).keyring()
    assert SECRET not in str(raised.value)


def audit(spark: SparkSession, logs: Path, keys: str) -> log_audit.Outcome:
    a = SiteSource("a", NOBODY, wal=str(logs / "wal"))
    b = SiteSource("b", NOBODY, remote_log=str(remote(logs)), remote_log_keys=keys)
    return log_audit.run(spark, JobRequest("log-audit", "pair", a, b, logs), Silent())


def test_the_log_audit_compares_it_with_the_wal(spark: SparkSession, logs: Path) -> None:
    outcome = audit(spark, logs, f"k1=file:{logs / 'k1.key'}")
    assert outcome.good, outcome.findings.collect()
    assert outcome.counters["FRAMES"] > FRAMES


def test_a_frame_that_was_changed_is_a_finding_whoever_mended_its_crc(logs: Path, tmp_path: Path) -> None:
    segment = list_log(LogFolder(str(remote(logs)))).segments[0]
    whole = (remote(logs) / segment.name).read_bytes()
    place = places(whole)[1]
    frame = bytearray(whole[slice(*place)])
    frame[70] ^= 1
    found = walk(put(whole, place[0], with_crc(bytes(frame))), segment.name, segment, ring("k1"))
    assert [(mark.kind, mark.offset) for mark in found.marks if mark.kind == DAMAGED] == [(DAMAGED, place[0])]
    assert place[0] not in found.offsets
    (tmp_path / "torn").write_bytes(whole)
    flip(tmp_path / "torn", 100)  # the key's id: nobody can open what follows
    found = walk((tmp_path / "torn").read_bytes(), segment.name, segment, ring("k1"))
    assert {mark.kind for mark in found.marks} == {DAMAGED}
    assert not len(found.frames)
    assert parse_header(whole).key_id == "k1"
