"""A trap strikes at the pass that it was set for, once, and counts across a restart of the gateway."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from chaos.harness.steps.table import TRAPS, Deed, TrapTable
from twinlog.errors import InvalidInput


@pytest.fixture
def harness(tmp_path: Path) -> TrapTable:
    return TrapTable(tmp_path / "traps", new=True)


def gateway(harness: TrapTable) -> TrapTable:
    return TrapTable(harness.path)


def test_a_trap_strikes_at_its_pass_and_not_again(harness: TrapTable) -> None:
    first, second = gateway(harness), gateway(harness)
    number = harness.arm("journal.save.after", 3, Deed.PAUSE)
    assert first.pass_by("journal.save.after") is None
    assert first.pass_by("journal.save.before") is None
    assert second.pass_by("journal.save.after") is None, "the next life of the gateway counts on"
    assert not harness.has_struck(number)
    assert second.pass_by("journal.save.after") == (number, Deed.PAUSE)
    assert harness.has_struck(number)
    assert second.pass_by("journal.save.after") is None
    now_s = time.monotonic()
    struck_s, passed = harness.disarm(number)
    assert passed == 4
    assert now_s - 60 < struck_s <= now_s


def test_a_trap_that_is_taken_away_strikes_no_more(harness: TrapTable) -> None:
    there = gateway(harness)
    number = harness.arm("files.read.before", 2, Deed.CRASH)
    assert there.pass_by("files.read.before") is None
    assert there.is_armed(number)
    assert harness.disarm(number) == (0.0, 1)
    assert not there.is_armed(number)
    assert there.pass_by("files.read.before") is None


def test_two_traps_at_one_point_strike_one_after_the_other(harness: TrapTable) -> None:
    there = gateway(harness)
    one, two = harness.arm("files.read.before", 1, Deed.FAIL), harness.arm("files.read.before", 2, Deed.WAIT)
    assert there.pass_by("files.read.before") == (one, Deed.FAIL)
    assert there.pass_by("files.read.before") == (two, Deed.WAIT)


def test_a_full_table_says_so(harness: TrapTable) -> None:
    numbers = [harness.arm("files.read.before", 1, Deed.FAIL) for _ in range(TRAPS)]
    with pytest.raises(InvalidInput, match=f"{TRAPS} are set already"):
        harness.arm("files.list.before", 1, Deed.FAIL)
    harness.disarm(numbers[3])
    assert harness.arm("files.list.before", 1, Deed.FAIL) not in numbers
