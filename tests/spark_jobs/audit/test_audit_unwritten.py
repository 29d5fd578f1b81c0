"""An audit whose folder cannot be written, or whose processes are killed: no exit code but 2, and no good one is made of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spark_jobs import run
from spark_jobs.audit import audit
from spark_jobs.audit.audit import JOBS, JobKind
from spark_jobs.report.folder import AuditFolder, history
from tests.needs import need_root, need_spark
from tests.spark_jobs.audit.pair_rig import given_session
from tests.spark_jobs.audit.stub_sites import StubPair
from tests.spark_jobs.audit.test_spark_cluster import operator_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.long

FINDINGS = 200_000  # more than the small disk holds
DEADLINE_S = 150.0
Audited = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def pair() -> Iterator[StubPair]:
    with StubPair() as opened:
        yield opened


@pytest.fixture
def audited(
    spark: SparkSession, pair: StubPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Audited:
    """The command with the job `probe`: exit code and document. `at`: what happens at which step."""
    monkeypatch.setitem(JOBS, "probe", JobKind("tests.spark_jobs.audit.probe_job", True, "a test", {"findings": ""}))
    (tmp_path / "audits").mkdir()

    def audited(at: dict[str, Callable[[], object]], *more: str) -> tuple[int, dict[str, Any]]:
        words = ["probe", "--config", str(operator_file(tmp_path, pair)), "--audits", str(tmp_path / "audits"), "--json", *more]
        with given_session(spark, at):
            code = run.main(words)
        assert not pair.held, "the barrier is released"
        return code, json.loads(capfd.readouterr().out)

    return audited


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mounts half a mebibyte for the audits."""
    need_root("mounting a small disk")
    folder = tmp_path / "audits"
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill(folder: Path) -> None:
    with (folder / "ballast").open("wb", buffering=0) as file:
        while True:
            try:
                file.write(bytes(4096))
            except OSError:
                return


def test_a_disk_that_is_full_while_findings_are_written(audited: Audited, small_disk: Path, pair: StubPair) -> None:
    """The findings go again, and their room is enough for the reason."""
    code, summary = audited({}, "--set", f"findings={FINDINGS}")
    assert (code, summary["outcome"], summary["findings"]) == (2, "failed", 0)
    assert "No space left on device" in summary["error"]["message"]
    ((one,), []) = history(small_disk)
    assert sorted(path.name for path in one.path.iterdir()) == ["spark.log", "summary.json"]
    assert [site.audits[0]["outcome"] for site in pair.sites.values()] == ["failed"] * 2


def test_a_disk_without_any_room(audited: Audited, small_disk: Path, pair: StubPair) -> None:
    code, document = audited({"probing": lambda: fill(small_disk)})
    assert code == 2
    assert "No space left on device" in document["error"]["message"]
    assert "give another --out or --audits" in document["error"]["message"]
    assert [path.name for path in small_disk.iterdir()] == ["ballast"]
    assert [site.audits[0]["outcome"] for site in pair.sites.values()] == ["failed"] * 2


@pytest.mark.parametrize("step", ["starting Spark", "probing", "writing what was found"])
def test_a_folder_that_vanishes(audited: Audited, tmp_path: Path, pair: StubPair, step: str) -> None:
    def vanish() -> None:
        shutil.rmtree(tmp_path / "audits")

    code, document = audited({step: vanish})
    assert code == 2
    assert "No such file or directory" in document["error"]["message"]
    assert not (tmp_path / "audits").exists()
    assert [site.audits[0]["outcome"] for site in pair.sites.values()] == ["failed"] * 2


def test_a_folder_that_somebody_made_meanwhile(audited: Audited, tmp_path: Path) -> None:
    other = tmp_path / "other"

    def come_before() -> None:
        other.mkdir()
        (other / "note").touch()

    code, document = audited({"probing": come_before}, "--out", str(other))
    assert (code, [path.name for path in other.iterdir()]) == (2, ["note"])
    assert "Directory not empty" in document["error"]["message"]
    assert list(tmp_path.glob(".*")) == []


def test_a_defect_is_no_finding(audited: Audited, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's own exit code for an error is 1, and here that means: differences."""
    monkeypatch.setattr(audit, "render", lambda *_: 1 // 0)
    code, document = audited({})
    assert code == 2
    assert document["error"]["message"].startswith("ZeroDivisionError: ")
    assert list((tmp_path / "audits").iterdir()) == []


class Command:
    """The command as a process of its own, waiting for a standby that never gets to the barrier."""

    def __init__(self, pair: StubPair, folder: Path) -> None:
        pair.sites["b"].asked_until_held = 1_000_000
        self.pair, self.audits = pair, folder / "audits"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "twinlog", "audit", "run", "compare", "--config", str(operator_file(folder, pair)),
             "--audits", str(self.audits), "--master", "local[1]", "--conf", "spark.driver.memory=512m",
             "--conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        self.until(lambda: bool(pair.held))
        (self.java,) = _children(self.process.pid, "java")

    def until(self, what: Callable[[], bool]) -> None:
        until_s = time.monotonic() + DEADLINE_S
        while not what():
            assert time.monotonic() < until_s
            time.sleep(0.05)


def _children(pid: int, name: str) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            parts = (entry / "stat").read_text().rpartition(")")
        except (OSError, ValueError):
            continue
        if parts[2].split()[1:2] == [str(pid)] and parts[0].endswith(f"({name}"):
            found.append(int(entry.name))
    return found


@pytest.fixture
def command(pair: StubPair, tmp_path: Path) -> Iterator[Command]:
    need_spark()
    made = Command(pair, tmp_path)
    yield made
    made.process.kill()
    made.process.communicate()


def test_one_whose_java_is_killed(command: Command, pair: StubPair) -> None:
    os.kill(command.java, signal.SIGKILL)
    pair.sites["b"].asked_until_held = 0
    _, said = command.process.communicate(timeout=DEADLINE_S)
    assert command.process.returncode == 2, said
    ((one,), []) = history(command.audits)
    assert one.summary["outcome"] == "failed"
    assert one.summary["error"]["message"]
    assert sorted(path.name for path in one.path.iterdir()) == ["spark.log", "summary.json"]
    assert not pair.held


def test_one_that_is_killed_leaves_no_java_and_no_audit(command: Command) -> None:
    """Its snapshots are left to the sites, which release them by themselves."""
    command.process.kill()
    command.process.wait()
    command.until(lambda: not Path(f"/proc/{command.java}").exists())
    (audits, (left,)) = history(command.audits)
    assert audits == []
    assert left.name.endswith(".part")
    AuditFolder(command.audits / "another").discard()
