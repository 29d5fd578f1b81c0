"""Requests by the OpenAPI document, as every kind of caller: no answer is undocumented, and none is an error of the site."""

from __future__ import annotations

import pytest

from chaos.fuzz.openapi.asking import Asking, Findings
from chaos.fuzz.openapi.cli import shown
from gateway.access.needs import NEEDS
from gateway.api.routes import checks


@pytest.fixture(scope="module")
def found() -> Findings:
    """`python -m chaos fuzz openapi` sends as many as it is told to, of any seed."""
    return Asking(seed=1, examples=4).run()


@pytest.mark.long
def test_every_answer_is_documented(found: Findings) -> None:
    assert [line for line in shown(found) if line.startswith("FAULT")] == []
    assert found.requests > 600


@pytest.mark.long
def test_every_operation_is_asked_and_guarded(found: Findings) -> None:
    """Each route that is not open to everybody answers 401, 403 and 429 where the site has [access]."""
    documented = {
        f"{method} {path}" for (method, path) in NEEDS if path.startswith(("/v1", "/health", "/metrics", "/internal"))
    }
    assert {label for label, _ in found.seen} == documented
    for (method, path), need in NEEDS.items():
        label = f"{method} {path}"
        if label in documented and need.scope != "open":
            assert found.seen[label, 401], label
            assert found.seen[label, 429] or need.scope == "peer" or path.endswith("/events"), (
                label
            )  # a stream takes its second
            assert found.seen[label, 403] or need.scope == "identity", label


def test_an_undocumented_answer_and_an_unknown_error_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("planted")

    monkeypatch.setattr(checks, "json_answer", broken)
    planted = Asking(seed=1, examples=1).run("GET /v1/checks")
    kinds = {kind for _, kind in planted.faults}
    assert {"status 500", "internal"} <= kinds
