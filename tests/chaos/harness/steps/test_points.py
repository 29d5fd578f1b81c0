"""The points of the simulator are steps of the real gateway: no name of a port's call is one that the product does not have."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

import pytest

from chaos.harness.plan import HarnessPlan, parse, text
from chaos.harness.steps.families import FAMILIES, RATE, SECONDS
from chaos.harness.steps.points import KNOWN, OF_PORTS, point_and_nth
from remote_log.dfs.directory import DirectoryDfs
from remote_log.replication import messages
from storage.disk.os_files import OsFiles
from storage.engines.rocks.engine import RocksEngine
from switchover.facts import FACTS
from switchover.operations.sql_journal import SqlJournal
from switchover.register.sql import SqlCoordinator

REAL: Mapping[str, type] = {
    "files": OsFiles, "own_dfs": DirectoryDfs, "peer_dfs": DirectoryDfs, "coordinator": SqlCoordinator, "engine": RocksEngine,
    "journal": SqlJournal,
}


@pytest.mark.parametrize("point", sorted(OF_PORTS))
def test_a_point_of_a_port_is_a_call_that_the_real_port_awaits(point: str) -> None:
    port, call, when = point.split(".")
    assert when in ("before", "after")
    if port == "transport":
        assert call in {FACTS, *(each for each in vars(messages).values() if isinstance(each, str))}
    else:
        assert inspect.iscoroutinefunction(getattr(REAL[port], call))


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_each_run_of_a_family_is_a_plan_of_its_own(family: str) -> None:
    shorts = list(FAMILIES[family][1]())
    assert len({short.name for short in shorts}) == len(shorts) >= 20
    for short in shorts:
        plan = HarnessPlan("x", rate=RATE, seconds=SECONDS, faults=short.faults)
        assert parse(text(plan)) == plan


def test_a_point_may_name_a_later_pass() -> None:
    assert point_and_nth("commit.framed", KNOWN) == ("commit.framed", 1)
    assert point_and_nth("commit.framed/12", KNOWN) == ("commit.framed", 12)
