"""An operation is aborted or resumed if its site says that it can be, and left alone if not."""

from __future__ import annotations

from typing import Any

import pytest

from chaos.fault_lines import Fault
from chaos.harness.faults.kind import Stage
from chaos.harness.faults.registry import effect_of
from twinlog.errors import PeerError


class Pair:
    """Stands for both sites, and for the command line."""

    def __init__(self, *operations: dict[str, Any]) -> None:
        self.operations, self.typed, self.direct = operations, [], self
        self.silent = False

    def ask(self, site: str, method: str, path: str) -> dict[str, Any]:
        if self.silent:
            raise PeerError(f"site {site} does not answer")
        assert (site, method, path) == ("b", "GET", "/v1/operations")
        return {"operations": self.operations}

    async def run(self, *words: str) -> Any:
        self.typed.append(words)
        return type("Typed", (), {"told": "done"})

    def effect(self, kind: str) -> Any:
        pair: Any = self
        return effect_of(Fault(1.0, kind, "standby"), Stage(asked=pair, links=pair, commands=pair, active=lambda: "a"))


def operation(name: str, *, dry_run: bool = False, abortable: bool = False, resumable: bool = False) -> dict[str, Any]:
    return {"id": name, "dry_run": dry_run, "abortable": abortable, "resumable": resumable}


@pytest.mark.parametrize("kind", ["abort", "resume"])
async def test_the_newest_operation_of_the_site_is_meant(kind: str) -> None:
    pair = Pair(operation("dry", dry_run=True), operation("op-2", abortable=True, resumable=True), operation("op-1"))
    effect = pair.effect(kind)
    assert await effect.why_not() == ""
    assert await effect.inject() == "done"
    assert pair.typed == [(kind, "op-2")]


@pytest.mark.parametrize("kind", ["abort", "resume"])
async def test_what_is_over_or_not_there_is_left_out(kind: str) -> None:
    for pair in (Pair(operation("op-2"), operation("op-1", abortable=True, resumable=True)), Pair()):
        assert await pair.effect(kind).why_not() == f"site b has no operation to {kind}"
        assert not pair.typed
    pair.silent = True
    assert await pair.effect(kind).why_not() == "site b does not answer"
