"""A local Spark session serves nobody else: what it listens on is loopback, and its connections are authenticated."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import need_spark

PROGRAM = """
import os, sys
from pathlib import Path
from spark_jobs.audit.session import own_session

def listening():
    inodes = set()
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and int(process.name) in family(os.getpid()):
            for descriptor in entries(process / "fd"):
                try:
                    target = os.readlink(descriptor)
                except OSError:
                    continue
                if target.startswith("socket:["):
                    inodes.add(target[8:-1])
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            parts = line.split()
            if parts[3] == "0A" and parts[9] in inodes:
                yield parts[1].rpartition(":")[0]

def entries(folder):
    try:
        return list(folder.iterdir())
    except FileNotFoundError:  # a process that has ended meanwhile
        return []

def children(task):
    try:
        return [int(child) for child in (task / "children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):  # a thread that has ended meanwhile
        return []

def family(pid):
    found = [child for task in entries(Path(f"/proc/{pid}/task")) for child in children(task)]
    return {pid}.union(*(family(child) for child in found))

with own_session("local[2]", "probe", {}) as spark:
    assert spark.range(5).rdd.map(lambda row: row.id).collect() == [0, 1, 2, 3, 4]
    print("AUTHENTICATE", spark.sparkContext.getConf().get("spark.authenticate"))
    print("LISTENS", *sorted(set(listening())))
"""


@pytest.mark.long
def test_a_local_session_listens_on_loopback_only(tmp_path: Path) -> None:
    need_spark()
    program = tmp_path / "probe.py"
    program.write_text(PROGRAM)
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, str(program)], capture_output=True, text=True, timeout=180, check=False, cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(root), "HOME": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "AUTHENTICATE true" in done.stdout
    found = re.findall(r"^LISTENS (.*)$", done.stdout, re.MULTILINE)[0].split()
    assert found, "a session listens"
    loopback = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
    assert set(found) <= loopback, found
