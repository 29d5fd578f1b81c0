"""The checkers of what is shown, refused and continued: figures of loss, columns that are there, page tokens."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chaos.checkers import CHECKERS
from chaos.history.history import Apart, Limits, Mutation, Operation, Outcome, Result, TableUse
from chaos.history.lines import Misled, RiskLook
from tests.chaos.plots import Plot, check_found

Build = Callable[[Plot], Plot]
LIMITS = Limits(risk_slack_s=5.0, heard_slack_s=2.0)
FIRST = TableUse("shaped", {"columns": [{"name": "id"}, {"name": "value"}, {"name": "copy"}]})
ADDED = {"add": [{"name": "more"}]}


def looks(*shown: int | None, so: int = 4, heard: bool = False, first_s: float = 1.0, step_s: float = 1.0) -> Build:
    """One look a second at an active that shows `shown` records at risk, each time with `so` that are."""
    return lambda p: p.add(LIMITS, *(
        RiskLook("a", 1, first_s + step_s * at, records, None, so, 0, heard) for at, records in enumerate(shown)
    ))


def lags(*shown: int | None) -> Build:
    return lambda p: p.add(LIMITS, *(RiskLook("a", 1, 1.0 + at, None, lag, 0, 4, False) for at, lag in enumerate(shown)))


class Shaped:
    """A history of the table `shaped`, as a builder."""

    def __init__(self) -> None:
        self._calls: list[tuple[Operation, float, float, Outcome]] = []
        self._more: list[Apart] = []

    def __call__(self, plot: Plot) -> Plot:
        plot.add(FIRST, *self._more)
        for call in self._calls:
            plot.call(*call)
        return plot

    def apart(self) -> Shaped:
        self._more.append(Apart("a", 0.0))
        return self

    def change(self, body: dict[str, object], begin: float, end: float, result: Result = "ok") -> Shaped:
        self._calls.append((Operation("schema", "shaped", body=body), begin, end, Outcome(result)))
        return self

    def write(self, column: str, begin: float, end: float, error: str = "", *, keys: str = "k", op: str = "upsert") -> Shaped:
        mutations = tuple(Mutation(op, key, {"value": "v", column: "v"}) for key in keys)
        outcome = Outcome("not_applied" if error else "ok", error=error)
        self._calls.append((Operation("batch", "shaped", mutations=mutations), begin, end, outcome))
        return self


CLEAN: dict[str, dict[str, Build]] = {
    "at_risk": {
        "as it is": looks(*[4] * 9),
        "more": looks(*[9] * 9),
        "unknown": looks(*[None] * 9),
        "too few, and noticed in time": looks(0, 0, 0, 0, 0, 4, 4, 4, 4),
        "too few twice, each time noticed": looks(0, 0, 0, 4, 0, 0, 0, 4),
        "too few on both sides of a gap": looks(0, 0, 0, 0, step_s=2.0),
        "heard, and noticed in time": looks(0, 0, 4, 4, heard=True),
        "a lag as it is": lags(*[4] * 9),
        "no lag known": lags(*[None] * 9),
    },
    "allowed": {
        "taken": Shaped().write("copy", 1, 2),
        "a column that nobody added": Shaped().write("more", 1, 2, "invalid-input"),
        "added, and taken": Shaped().change(ADDED, 1, 2).write("more", 3, 4),
        "refused while it comes": Shaped().change(ADDED, 1, 3).write("more", 2, 4, "invalid-input"),
        "refused, and its coming is unknown": Shaped().change(ADDED, 1, 2, "unknown").write("more", 3, 4, "invalid-input"),
        "refused while it goes": Shaped().change({"drop": ["copy"]}, 1, 3).write("copy", 2, 4, "invalid-input"),
        "refused, and its going is unknown":
            Shaped().change({"drop": ["copy"]}, 1, 2, "unknown").write("copy", 3, 4, "invalid-input"),
        "taken while it goes": Shaped().change({"drop": ["copy"]}, 1, 3).write("copy", 2, 4),
        "a batch that inserts what it names again": Shaped().write("copy", 1, 2, "invalid-input", keys="kk", op="insert"),
        "apart, where a change may be undone": Shaped().apart().change(ADDED, 1, 2).write("more", 3, 4, "invalid-input"),
    },
    "tokens": {
        "refused": lambda p: p.add(Misled("a", 1.0, "reverse", 422)),
        "not answered": lambda p: p.add(Misled("a", 1.0, "start", 503)),
    },
}
BROKEN: dict[str, dict[str, tuple[Build, str]]] = {
    "at_risk": {
        "too few for too long": (looks(*[3] * 7), "(at risk) since 1.000 s: at 7.000 s 3, and 4 are so"),
        "too few behind a while": (looks(4, 4, 0, 0, 0, 0, 0, 0, 0), "since 3.000 s: at 9.000 s 0"),
        "too few though heard": (looks(0, 0, 0, 0, heard=True), "at 4.000 s 0"),
        "too small a lag": (lags(*[3] * 7), "(lag) since 1.000 s: at 7.000 s 3"),
    },
    "allowed": {
        "a first column": (Shaped().write("copy", 1, 2, "invalid-input"), "its columns (copy, value) were there"),
        "a first column, apart": (Shaped().apart().write("copy", 1, 2, "malformed-body"), "refused as malformed-body"),
        "an added one": (Shaped().change(ADDED, 1, 2).write("more", 3, 4, "invalid-input"), "(more, value) were there"),
        "a renamed one": (
            Shaped().change({"rename": {"copy": "more"}}, 1, 2).write("more", 3, 4, "invalid-input"), "(more, value)",
        ),
        "one whose going was refused": (
            Shaped().change({"drop": ["copy"]}, 1, 2, "not_applied").write("copy", 3, 4, "invalid-input"), "(copy, value)",
        ),
        "before it goes": (
            Shaped().write("copy", 1, 2, "invalid-input").change({"drop": ["copy"]}, 3, 4), "(copy, value) were there",
        ),
        "taken though it is gone": (
            Shaped().change({"drop": ["copy"]}, 1, 2).write("copy", 3, 4), "column copy had been taken away before",
        ),
        "taken under its old name": (
            Shaped().change({"rename": {"copy": "more"}}, 1, 2).write("copy", 3, 4), "column copy had been taken away before",
        ),
        "two upserts of one key": (Shaped().write("copy", 1, 2, "invalid-input", keys="kk"), "(copy, value) were there"),
    },
    "tokens": {"continued": (lambda p: p.add(Misled("b", 1.0, "reverse", 200)), "Site b continued a scan")},
}


@pytest.mark.parametrize(("checker", "name"), [(checker, name) for checker, plots in CLEAN.items() for name in plots])
def test_clean_observations_pass(checker: str, name: str) -> None:
    assert CHECKERS[checker](CLEAN[checker][name](Plot()).history()) == []


@pytest.mark.parametrize(("checker", "name"), [(checker, name) for checker, plots in BROKEN.items() for name in plots])
def test_broken_promises_are_found(checker: str, name: str) -> None:
    check_found(checker, *BROKEN[checker][name])
