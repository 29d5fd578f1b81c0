"""The files of a register on two DFSs: which one decides, and when both hold the same again."""

from __future__ import annotations

from chaos.history.registers import Met, TwoRegisters
from switchover.register.port import PairState

OPENED = PairState(1, epoch=2, active="a", home="b")
FORCED = PairState(2, epoch=2, active="a", mode="async", home="a", home_forced=1)
TAKEN = PairState(2, epoch=4, active="b", home="b")


def opened() -> TwoRegisters:
    registers = TwoRegisters()
    registers.made("b", 1, OPENED)
    registers.made("a", 1, OPENED)
    return registers


def test_the_first_file_decides_and_a_copy_does_not() -> None:
    registers = TwoRegisters()
    assert registers.made("b", 1, OPENED) == Met(None, is_new=True, is_forced=False, is_whole=False)
    assert registers.made("a", 7, OPENED) == Met(None, is_new=False, is_forced=False, is_whole=False)
    assert registers.agrees


def test_a_file_below_the_newest_counts_for_nobody() -> None:
    registers = opened()
    registers.made("b", 2, TAKEN)
    assert registers.made("b", 1, FORCED) is None
    assert registers.value == TAKEN


def test_a_forced_value_is_apart_until_both_hold_the_same() -> None:
    registers = opened()
    assert registers.made("a", 2, FORCED) == Met(OPENED, is_new=True, is_forced=True, is_whole=False)
    assert registers.is_apart
    assert registers.value == FORCED
    assert registers.made("b", 2, TAKEN) == Met(OPENED, is_new=True, is_forced=False, is_whole=False)
    assert registers.made("a", 3, TAKEN) == Met(FORCED, is_new=False, is_forced=False, is_whole=True)
    assert not registers.is_apart


def test_a_value_of_a_line_that_is_known_or_a_copy_of_a_forced_one_begins_none() -> None:
    registers = opened()
    registers.made("a", 2, FORCED)
    registers.made("b", 2, FORCED)
    assert not registers.is_apart
    later = PairState(3, epoch=2, active="a", home="a", home_forced=1)
    assert registers.made("a", 3, later) == Met(FORCED, is_new=True, is_forced=False, is_whole=False)
    moved = PairState(4, epoch=2, active="a", home="b", home_forced=1)
    assert registers.made("a", 4, moved) == Met(later, is_new=True, is_forced=False, is_whole=False)


def test_only_the_loss_of_both_leaves_nothing() -> None:
    registers = opened()
    assert not registers.lost("a")
    assert not registers.lost("a")
    assert registers.value == OPENED
    assert registers.lost("b")
    assert registers.value is None
    assert not registers.lost("b")
