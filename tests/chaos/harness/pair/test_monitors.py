"""Monitors of a run: the product's own command, what it asked for, and one that ends by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.harness.pair.monitors import Monitors
from chaos.servers.ports import free_ports
from tests.processes import wait_for


@pytest.fixture
def monitors(tmp_path: Path) -> Iterator[Monitors]:
    ports = free_ports(2)
    sites = [f'[sites.{site}]\nurl = "http://127.0.0.1:{port}"\n' for site, port in zip("ab", ports, strict=True)]
    (tmp_path / "operator.toml").write_text("".join(('pair = "demo"\n', *sites)))
    found = Monitors(tmp_path, tmp_path / "operator.toml")
    yield found
    found.end()


def said(folder: Path, name: str) -> str:
    path = folder / "monitors" / f"{name}.log"
    return path.read_text() if path.exists() else ""


def test_a_monitor_says_what_it_sees_and_is_killed_and_started_again(tmp_path: Path, monitors: Monitors) -> None:
    assert not monitors.is_running("m1")
    monitors.start("m1", ["--act"])
    assert wait_for(lambda: "no site answers the monitor" in said(tmp_path, "m1"))
    monitors.pause("m1")
    assert monitors.paused == {"m1"}
    monitors.resume("m1")
    monitors.kill("m1")
    assert not monitors.is_running("m1")
    monitors.start_again("m1")
    assert wait_for(lambda: said(tmp_path, "m1").count("no site answers the monitor") >= 2)
    monitors.end()
    assert not monitors.is_running("m1")
    assert monitors.died == []
    assert monitors.orders() == []


def test_one_that_ends_by_itself_is_a_find(tmp_path: Path, monitors: Monitors) -> None:
    monitors.start("m2", ["--no-such-option"])
    assert wait_for(lambda: not monitors.is_running("m2"))
    monitors.end()
    assert len(monitors.died) == 1
    assert "The monitor m2 ended by itself: " in monitors.died[0]
    monitors.end()
    assert len(monitors.died) == 1


def test_orders_are_read_from_what_it_says(tmp_path: Path, monitors: Monitors) -> None:
    monitors.start("m1", [])
    monitors.kill("m1")
    with (tmp_path / "monitors" / "m1.log").open("a") as log:
        log.write('{"at":"2026-11-24T10:00:01.500+00:00","kind":"failover","site":"b","became":"asked for: operation x"}\n')
        log.write('{"at":"2026-11-24T10:00:02.500+00:00","kind":"look","site":"b","became":""}\n{"at":"20')
    assert monitors.orders() == ["m1 at 10:00:01.500: failover at site b, asked for: operation x"]
