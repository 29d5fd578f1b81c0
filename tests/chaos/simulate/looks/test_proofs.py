"""An answer that an active may not give, or must not refuse, is reported as it is made."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from chaos.simulate.actors.door import ADDRESS
from chaos.simulate.looks.proofs import UNPROVED, Proofs
from tests.chaos.simulate.looks.a_world import a_world
from twinlog.wire.exchange import Reply, SiteRequest

ROW = "/v1/tables/t/rows/k"


def said(
    status: int, *, url: str = ROW, method: str = "GET", expires_s: float | None = 1001.0, revoked: bool = False
) -> list[str]:
    """Returns what is said of an answer of site a when its clock shows 1000. `expires_s`: of its lease; None: it has no epoch
    open."""
    world, found = a_world(), list[str]()
    Proofs(world, found.append)
    epoch = None if expires_s is None else SimpleNamespace(lease=SimpleNamespace(
        expires_s=expires_s, valid_at=lambda now_s: now_s < expires_s and not revoked,
    ))
    site: Any = SimpleNamespace(active_epoch=epoch, serving=SimpleNamespace(writing=epoch))
    world.replied("a", site, SiteRequest(ADDRESS + url, method, {}, b"", 1.0), Reply(status, {}, UNPROVED), 0.0)
    return found


def test_rows_are_shown_with_a_proof() -> None:
    unproved = ["Site a answers a read without a proof that it is the active."]
    assert said(200) == []
    assert said(200, expires_s=1000.0) == said(200, expires_s=None) == unproved
    assert said(200, url=f"{ROW}?as_of=7", expires_s=999.0) == unproved


@pytest.mark.parametrize(("status", "url", "method"), [
    (404, ROW, "GET"), (200, "/v1/cluster", "GET"), (200, ROW, "PUT"), (200, "/v1/tables/t", "GET"),
])
def test_other_answers_are_not_looked_at(status: int, url: str, method: str) -> None:
    assert said(status, url=url, method=method, expires_s=None) == []


def test_nobody_is_refused_for_want_of_a_proof_that_is_there() -> None:
    refused = ["Site a refuses POST for want of a proof that it is the active, and has one."]
    assert said(503, method="POST", url="/v1/tables") == refused
    assert said(503, expires_s=999.0) == said(503, revoked=True) == said(503, expires_s=None) == []
