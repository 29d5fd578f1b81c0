"""Grants and limits that change while a site runs: of the next request, also by a proof that was kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gateway.access.gate import Gate
from gateway.access.needs import NEEDS
from gateway.access.opening import apply, open_gate
from gateway.access.settings import AccessSettings
from gateway.tls.issuing import Issuer
from tests.gateway.access.rig import Clock
from twinlog.errors import TwinlogError

OPERATIONS = ("POST", "/v1/operations")
ANN = AccessSettings(certificates={"cn:ann": "operator"})


async def asked(gate: Gate, pem: str) -> str:
    """`ok`, or the code of the refusal."""
    scope = {
        "headers": [], "method": "POST", "path": "/v1/operations", "client": ("10.0.0.7", 1),
        "extensions": {"tls": {"client_cert_chain": [pem]}},
    }
    try:
        budget = await gate.admit(scope, NEEDS[OPERATIONS], "/v1/operations", "")
    except TwinlogError as error:
        return error.code
    assert budget is not None
    budget.leave()
    return "ok"


def of_ann(folder: Path) -> str:
    issuer = Issuer(folder)
    issuer.make_ca("shop", 30)
    return issuer.make_client("ann", 10).certificate.read_text()


async def test_a_grant_of_a_certificate_that_goes_is_gone_at_the_next_request(tmp_path: Path) -> None:
    pem, gate = of_ann(tmp_path), open_gate(ANN, wall_s=Clock(), now_s=Clock())
    assert await asked(gate, pem) == "ok"
    apply(gate, replace(ANN, certificates={"cn:ann": "auditor"}))
    assert await asked(gate, pem) == "missing-grant"
    apply(gate, replace(ANN, certificates={"cn:bob": "operator"}))
    assert await asked(gate, pem) == "unauthenticated"
    apply(gate, ANN)
    assert await asked(gate, pem) == "ok"


async def test_limits_count_from_the_next_request_on(tmp_path: Path) -> None:
    pem, clock = of_ann(tmp_path), Clock()
    gate = open_gate(ANN, wall_s=clock, now_s=clock)
    for _ in range(100):  # without a limit nothing is counted against the later one
        assert await asked(gate, pem) == "ok"
    apply(gate, replace(ANN, limits=replace(ANN.limits, requests_per_s=2.0)))
    assert [await asked(gate, pem) for _ in range(3)] == ["ok", "ok", "overloaded"]
    apply(gate, ANN)
    assert {await asked(gate, pem) for _ in range(10)} == {"ok"}


def test_requests_under_way_stay_counted() -> None:
    gate = open_gate(ANN, wall_s=Clock(), now_s=Clock())
    budget = gate._budgets.of("certificate", "cn:ann", 0.0)
    budget.enter(0.0, 10)
    apply(gate, replace(ANN, limits=replace(ANN.limits, concurrent=1)))
    assert budget.is_full()
    budget.leave()
    assert not budget.is_full()
