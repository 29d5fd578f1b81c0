"""The coordinator's changes in a PostgreSQL: all of them are seen, also by a server that was away, and a look can be ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.harness.pair.changes import PostgresChanges
from chaos.harness.pair.register import RegisterWatch
from chaos.harness.pair.servers.postgres import SitePostgres
from chaos.history.history import Opened
from chaos.history.lines import Line
from chaos.servers.ports import free_ports
from storage.clock import SystemClock
from switchover.register.port import PairState
from switchover.register.sql import SqlCoordinator
from tests.processes import wait_for
from twinlog.errors import Unavailable


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SitePostgres]:
    found = SitePostgres("w", tmp_path, free_ports(1)[0])
    found.start()
    yield found
    found.stop()


async def test_every_change_is_seen_across_the_servers_death(server: SitePostgres) -> None:
    found: list[Line] = []
    watch = RegisterWatch(PostgresChanges(server.url), time.monotonic, found.append)
    watch.start()
    coordinator = SqlCoordinator(server.url(), "demo", SystemClock(), deadline_s=30.0)
    value = None
    for epoch in range(1, 4):
        state = PairState(epoch=epoch, epoch_allocated=epoch, active="ab"[epoch % 2], reason="a test")
        value = await coordinator.compare_and_set(value, state)
    assert wait_for(lambda: watch.active == "b" and len(found) >= 6)
    server.servers["pg-w"].kill()
    server.start()
    value = await coordinator.compare_and_set(value, PairState(epoch=4, epoch_allocated=4, active="a", reason="a test"))
    assert wait_for(lambda: watch.active == "a" and len(found) >= 8)
    await coordinator.close()
    watch.stop()
    assert not watch.error
    assert [line.epoch for line in found if isinstance(line, Opened)] == [1, 2, 3, 4]


def test_what_is_not_there_yet_or_not_any_more_can_be_read_later(server: SitePostgres) -> None:
    changes = PostgresChanges(server.url)
    for end in (lambda: None, server.servers["pg-w"].kill):
        end()
        with pytest.raises(Unavailable):
            changes.since(0)
    changes.close()


def test_a_look_at_a_server_that_is_stopped_is_ended(server: SitePostgres) -> None:
    changes = PostgresChanges(server.url)
    with pytest.raises(Unavailable):
        changes.since(0)  # it has its connection
    server.servers["pg-w"].pause()
    ended: list[str] = []

    def look() -> None:
        try:
            changes.since(0)
        except Unavailable as error:
            ended.append(error.message)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join(0.3)
    assert thread.is_alive(), "a server that is stopped keeps its connections"
    changes.give_up()
    thread.join(30.0)
    assert len(ended) == 1
    changes.close()
    server.servers["pg-w"].resume()
