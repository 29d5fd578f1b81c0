"""Two that write one log, or one epoch, are seen by their appends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from chaos.simulate.looks.openers import Openers
from chaos.simulate.twins.process import Process
from chaos.simulate.world import PAIR
from remote_log.layout import RemoteLayout
from storage.log.segment import wal_name

Append = tuple[str, str, Process, int, int]  # "wal" or "dfs", site, who, epoch, number
FIRST, SECOND, OTHER = Process("a.1"), Process("a.2"), Process("b.1")


def said(*appends: Append) -> list[str]:
    machines = {site: SimpleNamespace(disk=SimpleNamespace(), dfs=SimpleNamespace()) for site in "ab"}
    found: list[str] = []
    Openers(SimpleNamespace(machines=machines), found.append)  # type: ignore[arg-type]
    layout = RemoteLayout(PAIR)
    for log, site, process, epoch, number in appends:
        if log == "wal":
            told: Any = machines[site].disk
            told.appends(process, f"wal/{wal_name(epoch, number)}")
        else:
            machines[site].dfs.appends(process, layout.segment(epoch, wal_name(epoch, 1), number))
    return found


@pytest.fixture(autouse=True)
def all_live() -> None:
    for process in (FIRST, SECOND, OTHER):
        process.killed = False


def test_one_writer_goes_from_segment_to_segment() -> None:
    assert said(
        ("wal", "a", FIRST, 1, 1), ("dfs", "b", FIRST, 1, 0), ("dfs", "b", FIRST, 1, 0), ("dfs", "b", FIRST, 1, 2),
        ("wal", "a", FIRST, 1, 3), ("wal", "a", FIRST, 4, 4), ("dfs", "b", FIRST, 4, 0), ("wal", "b", OTHER, 2, 1),
    ) == []


@pytest.mark.parametrize(("log", "site"), [("wal", "a"), ("dfs", "b")])
def test_an_append_to_an_older_segment_is_another_writers(log: str, site: str) -> None:
    [sentence] = said((log, site, FIRST, 1, 1), (log, site, FIRST, 1, 2), (log, site, FIRST, 1, 1), (log, site, FIRST, 1, 1))
    assert "Two writers in a.1" in sentence


def test_an_epoch_has_one_process() -> None:
    [sentence] = said(("wal", "a", FIRST, 1, 1), ("wal", "b", OTHER, 1, 1))
    assert sentence == "Two processes write epoch 1: a.1 and b.1."
    FIRST.killed = True
    assert said(("wal", "a", FIRST, 1, 1), ("dfs", "b", FIRST, 1, 5), ("dfs", "b", SECOND, 1, 2)) == []
