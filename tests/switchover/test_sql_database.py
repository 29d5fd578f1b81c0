"""Calls of a database that hangs: given up by their deadline, never made later, and no thread is left behind."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from sqlalchemy import MetaData

from chaos.threads.explore import Explored, explore
from chaos.threads.schedule import Scheduler, scheduled
from storage.disk import workers
from switchover import sql_database
from switchover.sql_database import Database
from tests.planting import planted
from tests.storage.disk.thread_rig import NOTHING, WATCHED, run_on_loop
from twinlog.errors import Unavailable

DEADLINE_S = 1.0
GIVEN_UP = "            if given_up:\n                raise self._silent(\"the caller gave up\")\n"


def a_database(module: ModuleType, threads: ModuleType) -> Any:
    """A Database without a database: a call is made when its thread comes to it."""

    class Plain(module.Database):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            self._worker, self._deadline_s = threads.Worker("database"), DEADLINE_S

        def _transact(self, call: Any) -> Any:
            return call(None)

        def _silent(self, why: str) -> Unavailable:
            return Unavailable(why)

    return Plain()


async def outcome(call: Awaitable[Any]) -> bool:
    try:
        await call
    except Unavailable:
        return False
    return True


def every_schedule(mistake: tuple[str, str] = NOTHING) -> Explored:
    async def program(scheduler: Scheduler, module: ModuleType, threads: ModuleType) -> None:
        database, hanging = a_database(module, threads), True
        made: list[str] = []
        calls = [
            database.run(lambda _: scheduler.wait(lambda: not hanging)),
            database.run(lambda _: made.append("given up")),
        ]
        assert await asyncio.gather(*map(outcome, calls)) == [False, False]
        hanging = False
        while not await outcome(database.run(lambda _: made.append("later"))):
            pass
        assert {*made} == {"later"}
        await database._worker.close()

    def run(scheduler: Scheduler) -> None:
        threads, module = planted(workers, *NOTHING), planted(sql_database, *mistake)
        scheduled(threads, scheduler)
        run_on_loop(scheduler, lambda: program(scheduler, module, threads))

    return explore(run, [*WATCHED, f"<planted in {sql_database.__name__}>"], switches_max=1)


def test_a_call_that_was_given_up_in_the_queue_is_never_made() -> None:
    found = every_schedule()
    assert found.fault is None, found
    assert found.schedules > 20


def test_a_call_that_is_made_after_all_is_found() -> None:
    assert every_schedule((GIVEN_UP, "")).fault is not None


async def test_the_thread_of_a_database_that_hung_ends_when_it_answers(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path}/x.db", "test-database", MetaData(), 0.05)
    answers = threading.Event()
    with pytest.raises(Unavailable):
        await database.run(lambda _: answers.wait(300))
    await database.close()
    threads = [thread for thread in threading.enumerate() if thread.name == "test-database"]
    answers.set()
    for thread in threads:
        await asyncio.to_thread(thread.join, 300)
    assert not [thread for thread in threads if thread.is_alive()]
