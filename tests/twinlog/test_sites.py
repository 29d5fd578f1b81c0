"""Each site asked by itself and once, over real HTTP: answers, errors by their class, a site that is away, metrics, events."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.gateway.two_sites import TwoSites
from tests.twinlog.raw_site import FunctionHttp
from twinlog.errors import NotActive, NotFound, PeerError
from twinlog.sites import ALIVE, Sites
from twinlog.wire.exchange import Broken, SiteRequest
from twinlog.wire.http import Http


@pytest.fixture
def pair() -> Iterator[TwoSites]:
    with TwoSites() as opened:
        yield opened


@pytest.fixture
def sites(pair: TwoSites) -> Iterator[Sites]:
    made = Sites(pair.urls)
    yield made
    made.close()


def test_a_site_answers_for_itself(sites: Sites) -> None:
    assert [sites.ask(site, "GET", "/v1/cluster")["role"] for site in "ab"] == ["ACTIVE", "STANDBY"]
    taken = sites.ask("a", "POST", "/v1/barriers", {"name": "one"})
    assert taken["name"] == "one"
    assert sites.ask("a", "DELETE", "/v1/barriers/one") == {}, "an answer without content"


def test_a_problem_is_the_error_of_its_class(sites: Sites) -> None:
    with pytest.raises(NotFound):
        sites.ask("a", "GET", "/v1/tables/none")
    with pytest.raises(NotActive) as caught:
        sites.ask("b", "POST", "/v1/barriers", {"name": "one"})
    assert caught.value.fields["status"] == 421, "it is not asked of the other site"


def test_a_site_that_is_away_is_an_error_beside_the_other_one_s_answer(sites: Sites, pair: TwoSites) -> None:
    pair.stop("b")
    found = sites.ask_all("/v1/cluster")
    assert isinstance(found["a"], dict)
    error = found["b"]
    assert isinstance(error, PeerError)
    assert error.fields == {"site": "b", "sent": False}
    assert error.message.startswith(f"site b ({pair.urls['b']}) cannot be reached: ")


def test_metrics_are_read_by_name_with_their_labels(sites: Sites) -> None:
    found = sites.metrics("a")
    assert found["twinlog_epoch"] == 1.0
    assert found['twinlog_ack_seconds_bucket{le="+Inf",mode="sync"}'] == 0.0


def test_an_answer_that_is_no_gateways(pair: TwoSites) -> None:
    page = Sites(pair.urls, http=FunctionHttp(lambda request: httpx.Response(200, text="<html>")))
    with pytest.raises(PeerError, match="does not answer as a twinlog gateway"):
        page.ask("a", "GET", "/v1/cluster")


def test_a_lost_answer_may_have_been_a_request_that_arrived(pair: TwoSites) -> None:
    def lose(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("lost")

    with pytest.raises(PeerError, match="does not answer: no answer in time") as caught:
        Sites(pair.urls, http=FunctionHttp(lose)).ask("a", "POST", "/v1/operations", {})
    assert caught.value.fields["sent"] is True


def test_whether_a_site_lives_is_known_sooner_than_what_it_sees(pair: TwoSites) -> None:
    limits: dict[str, float] = {}

    class Measured(Http):
        def send(self, request: SiteRequest) -> Broken:
            limits[request.url.partition("/v1")[2] or "alive"] = request.timeout_s
            return Broken(True, "no answer in time")

    sites = Sites(pair.urls, http=Measured())
    for path in (ALIVE, "/v1/view", "/v1/cluster"):
        with pytest.raises(PeerError):
            sites.ask("a", "GET", path)
    assert limits["alive"] <= 1.0 < limits["/cluster"] < limits["/view"]
