"""A pair at rest is called whole, and nothing of it at risk: a run ends with a violation where a site says otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from chaos.simulate.draw import plain
from chaos.simulate.looks import health, risk
from chaos.simulate.run import Run, collect
from gateway.service.documents import AtRisk, ReplicationLag, ServingDocument, SiteTrouble
from gateway.site.serving_facts import SiteCondition, site_condition


def said() -> list[str]:
    found = Run(plain(3, ())).execute().violations
    collect()
    return [violation.sentence for violation in found]


def test_a_whole_pair_says_so() -> None:
    assert said() == []


def test_a_site_that_says_that_it_serves_nobody_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def sick(site: Any) -> SiteCondition:
        return site_condition(site)._replace(serving=ServingDocument(False, False, False, "it is tired", "wait"))

    monkeypatch.setattr(health, "site_condition", sick)
    assert said() == [
        f"Site {site} is at rest, and says that it does not serve or follow: it is tired." for site in "ab"
    ]


def test_a_trouble_that_stays_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def troubled(site: Any) -> SiteCondition:
        condition = site_condition(site)
        return condition._replace(troubles=[SiteTrouble("peer", "nothing comes", "wait")]) if site.active_epoch else condition

    monkeypatch.setattr(health, "site_condition", troubled)
    assert said() == ["Site a is at rest, and names a trouble: nothing comes."]


def test_figures_of_a_loss_that_stay_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(risk, "at_risk", lambda site: AtRisk(2, exact=False))
    monkeypatch.setattr(risk, "replication_lag", lambda site: ReplicationLag(3, 0.1))
    assert said() == [
        "Site a is at rest, and shows a lag.", "Site a is at rest, and shows records at risk.",
    ]
