"""Batches are whole, and scans keep what the data API says of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chaos.checkers.rows import batches, scans
from chaos.history.history import Operation, Outcome, Row
from tests.chaos.plots import Plot, sentences

Build = Callable[[Plot], Plot]
BOTH = {"k": "x", "l": "y"}
WHOLE: dict[str, Build] = {
    "stored whole": lambda p: p.batch(BOTH, 0, 1, version=6).dump({"k": ("x", 5), "l": ("y", 6)}),
    "not there at all": lambda p: p.batch(BOTH, 0, 1, "unknown").dump({}),
    "half superseded": lambda p: (
        p.batch(BOTH, 0, 1, version=6).write("l", "z", 2, 3, version=7).dump({"k": ("x", 5), "l": ("z", 7)})
    ),
    "a scan while it is written": lambda p: p.batch(BOTH, 0, 9, version=6).scan({"k": ("x", 5)}, 1, 8),
    "an older look that began before": lambda p: (
        p.write("l", "w", 0, 1, version=2).batch(BOTH, 2, 9, version=6).read("l", "w", 3, 8, version=2)
        .read("k", "x", 4, 5, version=5).read("l", "y", 6, 7, version=6)
    ),
    "looks before and after": lambda p: (
        p.batch(BOTH, 0, 9, version=6).read("l", None, 1, 2).read("k", "x", 3, 4, version=5).read("l", "y", 5, 6, version=6)
    ),
}
PARTS: dict[str, tuple[Build, str]] = {
    "stored in part": (lambda p: p.batch(BOTH, 0, 1, "unknown").dump({"k": ("x", 5)}), "but not l, nor anything newer"),
    "stored beside an older row": (
        lambda p: p.write("l", "w", 0, 1, version=2).batch(BOTH, 2, 3, version=6).dump({"k": ("x", 5), "l": ("w", 2)}),
        "but not l, nor anything newer",
    ),
    "seen in part after the acknowledgement": (
        lambda p: p.batch(BOTH, 0, 1, version=6).scan({"k": ("x", 5)}, 2, 3), "Call 2 did not see row l",
    ),
    "seen in part by two looks": (
        lambda p: p.batch(BOTH, 0, 1, "unknown").read("k", "x", 2, 3, version=5).read("l", None, 4, 5),
        "although call 2 had seen the batch before",
    ),
    "an older row among newer looks": (
        lambda p: (
            p.write("l", "w", 0, 1, version=2).batch(BOTH, 2, 3, version=6).read("l", "y", 4, 5, version=6)
            .read("l", "w", 6, 7, version=2).read("l", "y", 8, 9, version=6)
        ), "Call 4 did not see row l",
    ),
    "an older row, where rows are deleted too": (
        lambda p: (
            p.write("l", "w", 0, 1, version=2).batch(BOTH, 2, 3, version=6).read("l", "w", 6, 7, version=2)
            .delete("l", 8, 9, version=7)
        ), "Call 3 did not see row l",
    ),
    "seen in part as of one version": (
        lambda p: p.batch(BOTH, 0, 9, version=6).scan({"k": ("x", 5)}, 1, 8, as_of=6), "of one moment, shows row k",
    ),
}
PROMISED: dict[str, Build] = {
    "in order, in bounds": lambda p: p.scan({"b": ("x", 1), "c": ("y", 2)}, 0, 1, start="b", end="d"),
    "backwards": lambda p: p.scan({"c": ("y", 2), "b": ("x", 1)}, 0, 1, reverse=True),
    "nothing": lambda p: p.scan({}, 0, 1),
    "of the past": lambda p: (
        p.write("k", "x", 0, 1, version=5).write("k", "y", 2, 3, version=7).scan({"k": ("x", 5)}, 4, 5, as_of=6)
    ),
    "of the past, while it is written": lambda p: p.write("k", "x", 0, 9, version=5).scan({}, 4, 5, as_of=6),
    "of the past, after a delete": lambda p: (
        p.write("k", "x", 0, 1, version=5).delete("k", 2, 3, version=6).scan({}, 4, 5, as_of=6)
    ),
    "of one moment": lambda p: (
        p.write("k", "x", 0, 9, version=3).write("l", "z", 4, 9, version=5).scan({"l": ("z", 5)}, 1, 8, snapshot=True)
    ),
    "of one moment, stopped by its limit": lambda p: (
        p.write("k", "x", 0, 1, version=3).write("a", "z", 2, 3, version=5)
        .scan({"a": ("z", 5)}, 4, 5, snapshot=True, complete=False)
    ),
}
BROKEN: dict[str, tuple[Build, str]] = {
    "out of order": (lambda p: p.scan({"c": ("y", 2), "b": ("x", 1)}, 0, 1), "row b where its order does not allow it"),
    "backwards out of order": (lambda p: p.scan({"b": ("x", 1), "c": ("y", 2)}, 0, 1, reverse=True), "order does not allow"),
    "before the start": (lambda p: p.scan({"a": ("x", 1)}, 0, 1, start="b"), "before its start"),
    "at the end": (lambda p: p.scan({"d": ("x", 1)}, 0, 1, end="d"), "does not lie before its end"),
    "too many": (lambda p: p.scan({"a": ("x", 1), "b": ("y", 2)}, 0, 1, limit=1), "1 was the limit"),
    "newer than asked": (lambda p: p.scan({"a": ("x", 9)}, 0, 1, as_of=6), "as of version 6 shows row a at 9"),
    "a row of the past is missing": (lambda p: p.write("k", "x", 0, 1, version=5).scan({}, 2, 3, as_of=6), "lacks row k"),
    "a row of the past is too old": (
        lambda p: p.write("k", "x", 0, 1, version=3).write("k", "y", 2, 3, version=5).scan({"k": ("x", 3)}, 4, 5, as_of=6),
        "shows row k at 3, but 5 was acknowledged",
    ),
    "of two moments": (
        lambda p: (
            p.write("k", "w", 0, 1, version=2).write("k", "x", 2, 3, version=3).write("l", "z", 4, 5, version=5)
            .scan({"k": ("w", 2), "l": ("z", 5)}, 1, 6, snapshot=True)
        ),
        "shows row l, but not what had replaced row k",
    ),
    "of two moments, by what is not there": (
        lambda p: (
            p.write("k", "x", 0, 1, version=3).write("l", "z", 2, 3, version=5).scan({"l": ("z", 5)}, 0, 4, snapshot=True)
        ),
        "shows row l, but not what had replaced row k",
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_batches_pass(name: str) -> None:
    assert batches.check(WHOLE[name](Plot()).history()) == []


@pytest.mark.parametrize("name", PARTS)
def test_parts_of_batches_are_found(name: str) -> None:
    build, told = PARTS[name]
    assert told in sentences(batches.check(build(Plot()).history()))


@pytest.mark.parametrize("name", PROMISED)
def test_scans_as_promised_pass(name: str) -> None:
    assert scans.check(PROMISED[name](Plot()).history()) == []


@pytest.mark.parametrize("name", BROKEN)
def test_broken_scans_are_found(name: str) -> None:
    build, told = BROKEN[name]
    found = scans.check(build(Plot()).history())
    assert len(found) == 1
    assert told in found[0].sentence


def test_a_scan_twice_the_same_row_is_found() -> None:
    row = Row("a", {"value": "x"}, 1)
    plot = Plot().call(Operation("scan", "t"), 0, 1, Outcome("ok", rows=(row, row)))
    assert "order does not allow" in sentences(scans.check(plot.history()))
