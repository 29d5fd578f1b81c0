"""`twinlog demo --engine postgresql`: a database for each site, stopped with the demo; the next start goes on from it."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from chaos.servers.janitor import own_prefix
from chaos.servers.ports import free_ports
from gateway.demo.child import start_child
from tests.gateway.documented import opened
from tests.storage.engines.sql.rig import postgres
from tools.sources import ROOT

pytestmark = pytest.mark.pair
TABLE = {"name": "t", "columns": [{"name": "k", "type": "int64"}, {"name": "v", "type": "string"}], "primary_key": ["k"]}


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that PostgreSQL's user can reach, unlike tmp_path."""
    postgres()  # or why there is none
    made = Path(tempfile.mkdtemp(prefix=own_prefix("demo")))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@contextmanager
def demo(folder: Path) -> Iterator[dict[str, Any]]:
    """Its sites, from a start to a SIGTERM."""
    port_a, port_b = free_ports(2)
    ports = ("--port-a", str(port_a), "--port-b", str(port_b))
    command = [sys.executable, "-m", "twinlog", "demo", "--dir", str(folder), *ports, "--engine", "postgresql", "--no-load"]
    with (folder / "demo.out").open("ab") as said:
        process = start_child(command, said, folder=ROOT, left=signal.SIGTERM)
    try:
        note = folder / "demo.json"
        until = time.monotonic() + 120
        while not note.exists():
            assert process.poll() is None, (folder / "demo.out").read_text()
            assert time.monotonic() < until
            time.sleep(0.1)
        yield msgspec.json.decode(note.read_bytes())["sites"]
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(90) == 0


def in_the_database(folder: Path, site: str) -> list[Any]:
    note = msgspec.json.decode((folder / "postgres" / "postgres.json").read_bytes())
    password = Path(note["password"].removeprefix("file:")).read_text().strip()
    with psycopg.connect(note["urls"][site].replace("+psycopg", ""), password=password) as connection:
        return connection.execute("SELECT k, v FROM t").fetchall()


@pytest.mark.long
def test_a_row_stands_in_the_active_sites_database_and_is_there_after_another_start(folder: Path) -> None:
    with demo(folder) as sites, opened(sites["a"]["url"]) as client:
        assert client.post("/v1/tables", json=TABLE).status_code == 201
        assert client.put("/v1/tables/t/rows/1", json={"v": "x"}).json()["mode"] == "sync"
        assert in_the_database(folder, "a") == [(1, "x")]
        (look,) = [line.strip() for line in (folder / "demo.out").read_text().splitlines() if "psql" in line]
        seen = subprocess.run(f"{look} -Atc 'SELECT k, v FROM t'", shell=True, capture_output=True, text=True, check=True)
        assert seen.stdout == "1|x\n"
    assert not (folder / "postgres" / "postgres.json").exists()
    assert not (folder / "postgres" / "data" / "postmaster.pid").exists(), "it was stopped, and cleanly"
    with demo(folder) as sites, opened(sites["a"]["url"]) as client:
        assert client.get("/v1/tables/t/rows/1").json()["row"] == {"k": 1, "v": "x"}
