"""The scheduler itself: it finds what needs a switch at one place, runs the same twice, and names those that wait for ever."""

from __future__ import annotations

import threading
from types import ModuleType

import pytest

from chaos.threads.explore import explore
from chaos.threads.schedule import Deadlock, Scheduler, scheduled

SOURCE = """
import threading
from queue import SimpleQueue

class Counter:
    value = 0

    def add(self):
        found = self.value
        self.value = found + 1

def two_add():
    counter = Counter()
    threads = [threading.Thread(target=counter.add, name=str(number), daemon=True) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.value == 2, "an addition is lost"

def waits():
    SimpleQueue().get()
"""


def run(scheduler: Scheduler, function: str) -> None:
    module = ModuleType("small")
    exec(compile(SOURCE, "<small>", "exec"), module.__dict__)
    scheduled(module, scheduler)
    scheduler.run(module.__dict__[function])


def test_a_lost_addition_needs_one_switch_in_the_middle() -> None:
    whole = explore(lambda scheduler: run(scheduler, "two_add"), ["<small>"], 0)
    assert whole.fault is None
    assert whole.schedules > 1
    found = explore(lambda scheduler: run(scheduler, "two_add"), ["<small>"], 1)
    assert found.fault == "AssertionError: an addition is lost"
    for _ in range(3):
        with pytest.raises(AssertionError, match="an addition is lost"):
            run(Scheduler(found.choices, ["<small>"]), "two_add")


def test_who_waits_for_ever_is_named_and_ends() -> None:
    before = threading.active_count()
    with pytest.raises(Deadlock, match="these wait: \\['loop'\\]"):
        run(Scheduler((), ["<small>"]), "waits")
    assert threading.active_count() == before
