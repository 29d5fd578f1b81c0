"""Acknowledged writes are there; rows that nobody wrote, or that were rejected, are not; a row that was seen stays."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chaos.checkers.rows import acknowledged, phantom
from chaos.history.history import Operation, Outcome, Quarantine, QuarantinedRow, Row
from tests.chaos.plots import Plot, sentences

Build = Callable[[Plot], Plot]
KEPT: dict[str, Build] = {
    "there": lambda p: p.write("k", "x", 0, 1, version=5).dump({"k": ("x", 5)}),
    "superseded by an acknowledged one": lambda p: (
        p.write("k", "x", 0, 1, version=5).write("k", "y", 2, 3, version=7).dump({"k": ("y", 7)})
    ),
    "superseded by an unknown one": lambda p: (
        p.write("k", "x", 0, 1, version=5).write("k", "y", 2, 3, "unknown").dump({"k": ("y", 9)})
    ),
    "deleted": lambda p: p.write("k", "x", 0, 1, version=5).delete("k", 2, 3, version=7).dump({}),
    "deleted, perhaps": lambda p: p.write("k", "x", 0, 1, version=5).delete("k", 2, 3, "unknown").dump({}),
    "an unknown one that never came": lambda p: p.write("k", "x", 0, 1, "unknown").dump({}),
    "a batch": lambda p: p.batch({"k": "x", "l": "y"}, 0, 1, version=6).dump({"k": ("x", 5), "l": ("y", 6)}),
    "asynchronous, and named by a manifest": lambda p: (
        p.write("k", "x", 0, 1, version=5).write("k", "y", 2, 3, version=7, mode="async").dump({"k": ("x", 5)})
        .add(Quarantine("a", 1, 7, 7, 9.0, True, (QuarantinedRow("t", "k", 7, 7),)))
    ),
    "merged again under a newer version": lambda p: (
        p.write("k", "y", 2, 3, version=7, mode="async").dump({"k": ("y", 9)})
        .add(Quarantine("a", 1, 7, 7, 9.0, True, (QuarantinedRow("t", "k", 7, 7),)))
    ),
}
LOST: dict[str, tuple[Build, str]] = {
    "no row": (lambda p: p.write("k", "x", 0, 1, version=5).dump({}), "no row is there"),
    "at one site only": (
        lambda p: p.write("k", "x", 0, 1, version=5).dump({"k": ("x", 5)}).dump({}, site="b"), "at site b no row is there",
    ),
    "an older one": (
        lambda p: p.write("k", "x", 0, 1, version=5).write("k", "y", 2, 3, version=7).dump({"k": ("x", 5)}),
        "version 5 is there, which is older",
    ),
    "an older one under a newer version": (
        lambda p: p.write("k", "x", 0, 1, version=5).write("k", "y", 2, 3, version=7).dump({"k": ("x", 9)}),
        "with what call 1 had written before",
    ),
    "something else": (lambda p: p.write("k", "x", 0, 1, version=5).dump({"k": ("y", 5)}), "stands value 'y'"),
    "deleted before it was written": (
        lambda p: p.delete("k", 0, 1, version=4).write("k", "x", 2, 3, version=5).dump({}), "no row is there",
    ),
    "half a batch": (lambda p: p.batch({"k": "x", "l": "y"}, 0, 1, version=6).dump({"k": ("x", 5)}), "Row l"),
    "asynchronous, and named by none": (
        lambda p: p.write("k", "x", 0, 1, version=5, mode="async").dump({}), "no manifest names it",
    ),
    "a deleted row that is still there": (
        lambda p: p.write("k", "x", 0, 1, version=5).delete("k", 2, 3, version=7).dump({"k": ("x", 5)}), "which is older",
    ),
    "a manifest that only counts": (
        lambda p: p.write("k", "x", 0, 1, version=5, mode="async").dump({})
        .add(Quarantine("a", 1, 5, 5, 9.0, False, (QuarantinedRow("t", "k", 5, 5),))), "no manifest names it",
    ),
    "synchronous, under what a manifest names": (
        lambda p: p.write("k", "x", 0, 1, version=5).write("k", "y", 2, 3, version=7, mode="async").dump({})
        .add(Quarantine("a", 1, 7, 7, 9.0, True, (QuarantinedRow("t", "k", 7, 7),))), "call 1 was acknowledged (sync)",
    ),
}
REAL: dict[str, Build] = {
    "written, read, stored": lambda p: (
        p.write("k", "x", 0, 1, version=5).read("k", "x", 2, 3, version=5).dump({"k": ("x", 5)})
    ),
    "an unknown one that came": lambda p: (
        p.write("k", "x", 0, 1, "unknown").read("k", None, 2, 3).recovered(4).dump({"k": ("x", 5)})
    ),
    "seen, then superseded": lambda p: (
        p.write("k", "x", 0, 1, "unknown").read("k", "x", 2, 3, version=5).write("k", "y", 4, 5, version=7)
        .dump({"k": ("y", 7)})
    ),
    "a row after a column was dropped": lambda p: (
        p.write("k", "x", 0, 1, version=5, old="x")
        .call(Operation("schema", "t", body={"drop": ["old"]}), 1, 2, Outcome("unknown"))
        .read("k", "x", 2, 3, version=5, new=None).dump({"k": ("x", 5)})
    ),
}
UNREAL: dict[str, tuple[Build, str]] = {
    "read from nowhere": (lambda p: p.read("k", "x", 0, 1), "read with value 'x', which nobody wrote there"),
    "stored from nowhere": (lambda p: p.dump({"k": ("x", 5)}), "Site a holds row k of t with value 'x', which nobody wrote"),
    "in another row": (
        lambda p: p.write("l", "x", 0, 1, version=5).dump({"k": ("x", 5), "l": ("x", 5)}), "which nobody wrote there",
    ),
    "of another row": (
        lambda p: p.write("l", "x", 0, 1, version=5).call(
            Operation("read", "t", key="k"), 2, 3, Outcome("ok", rows=(Row("l", {"value": "x"}, 5),), site="a")
        ), "asked for row k of t, and was shown l",
    ),
    "rejected and read": (
        lambda p: p.write("k", "x", 0, 1, "not_applied").read("k", "x", 2, 3),
        "which by the answer to call 1 is not applied",
    ),
    "rejected and stored": (lambda p: p.write("k", "x", 0, 1, "not_applied").dump({"k": ("x", 5)}), "is not applied"),
    "before its time": (lambda p: p.read("k", "x", 0, 1).write("k", "x", 2, 3), "which call 2 wrote only later"),
    "a torn row": (lambda p: p.write("k", "x", 0, 1, other="x").read("k", "x", 2, 3, other="w"), "but with other = 'w'"),
    "a column that the write gave it is missing": (
        lambda p: p.write("k", "x", 0, 1, new="x").read("k", "x", 2, 3),
        "but without new, which call 1 wrote with it, and which nobody dropped or renamed",
    ),
    "a row torn only at the second look": (
        lambda p: p.write("k", "x", 0, 1, other="x").read("k", "x", 2, 3, other="x").read("k", "x", 4, 5, other="w"),
        "but with other = 'w'",
    ),
    "visible, then gone": (
        lambda p: p.write("k", "x", 0, 1, "unknown").read("k", "x", 2, 3, version=5).dump({}), "holds no row",
    ),
    "visible, then older": (
        lambda p: p.write("k", "w", 0, 1, version=3).write("k", "x", 2, 3, "unknown").read("k", "x", 4, 5, version=5)
        .dump({"k": ("w", 3)}), "holds version 3",
    ),
    "a late phantom": (
        lambda p: p.write("k", "x", 0, 1, "unknown").recovered(2).read("k", None, 3, 4).dump({"k": ("x", 5)}),
        "although call 2 had seen something else",
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_was_kept_passes(name: str) -> None:
    assert acknowledged.check(KEPT[name](Plot()).history()) == []


@pytest.mark.parametrize("name", LOST)
def test_what_was_lost_is_found(name: str) -> None:
    build, told = LOST[name]
    found = acknowledged.check(build(Plot()).history())
    assert len(found) == 1
    assert told in found[0].sentence
    assert found[0].promise == ("P6" if "async" in found[0].sentence else "P1")


@pytest.mark.parametrize("name", REAL)
def test_what_is_real_passes(name: str) -> None:
    assert phantom.check(REAL[name](Plot()).history()) == []


@pytest.mark.parametrize("name", UNREAL)
def test_what_is_not_real_is_found(name: str) -> None:
    build, told = UNREAL[name]
    found = phantom.check(build(Plot()).history())
    assert told in sentences(found)
    assert {violation.promise for violation in found} == {"P5"}
