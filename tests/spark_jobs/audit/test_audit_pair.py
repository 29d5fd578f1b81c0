"""A barrier on both sites: held by both or a clear error, and always released."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing

import pytest

from spark_jobs.audit.gateways import Gateways
from spark_jobs.audit.stopping import stopping
from tests.spark_jobs.audit.stub_sites import StubPair
from twinlog.errors import Conflict, PeerError, Refused, TwinlogError, Unavailable
from twinlog.wire.audit_report import SentReport

NAME = "audit-1"
REPORT = SentReport(version=1)


@pytest.fixture
def pair() -> Iterator[StubPair]:
    with StubPair() as opened:
        yield opened


@pytest.fixture
def gateways(pair: StubPair) -> Iterator[Gateways]:
    with closing(Gateways(pair.sources)) as opened:
        yield opened


def fault(gateways: Gateways, deadline_s: float = 5.0) -> TwinlogError:
    with pytest.raises(TwinlogError) as caught, gateways.held(NAME, deadline_s):
        pytest.fail("there is no barrier to work at")
    return caught.value


def test_both_sites_hold_it_while_one_works_and_nobody_afterwards(pair: StubPair, gateways: Gateways) -> None:
    pair.sites["b"].asked_until_held = 2
    waits: list[str] = []
    with gateways.held(NAME, 5.0, waits.append) as held:
        assert (held.barrier.name, held.barrier.epoch, held.barrier.seq) == (NAME, 3, 1000)
        assert (held.source.name, held.source.place) == ("a", "memory:a")
        assert (held.peer.name, held.peer.place) == ("b", "memory:b")
        assert pair.held == [NAME, NAME]
    assert waits == ["waiting for site b to reach sequence 1,000"] * 2
    assert not pair.held


def test_the_active_is_the_source_also_when_it_is_b(pair: StubPair, gateways: Gateways) -> None:
    pair.active = "b"
    with gateways.held(NAME, 5.0) as held:
        assert (held.source.name, held.peer.name) == ("b", "a")


def test_it_is_released_when_the_work_fails(pair: StubPair, gateways: Gateways) -> None:
    with pytest.raises(ZeroDivisionError), gateways.held(NAME, 5.0):
        raise ZeroDivisionError
    assert not pair.held


def test_it_is_released_after_ctrl_c(pair: StubPair, gateways: Gateways) -> None:
    def interrupted() -> None:
        with stopping(), gateways.held(NAME, 5.0):
            os.kill(os.getpid(), signal.SIGINT)
            signal.pause()  # until the handler has run

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not pair.held


def test_ctrl_c_does_not_cut_the_release_short(
    pair: StubPair, gateways: Gateways, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = Gateways.release

    def interrupted(self: Gateways, name: str) -> dict[str, str]:
        os.kill(os.getpid(), signal.SIGINT)
        return release(self, name)

    monkeypatch.setattr(Gateways, "release", interrupted)
    try:
        with stopping(), gateways.held(NAME, 5.0):
            pass
    except KeyboardInterrupt:
        pytest.fail("the release was cut short")
    assert not pair.held


@pytest.mark.parametrize("down", ["a", "b"])
def test_a_site_that_is_down_is_named_before_anything_is_asked(pair: StubPair, gateways: Gateways, down: str) -> None:
    pair.sites[down].close()
    error = fault(gateways)
    assert isinstance(error, Unavailable)
    assert f"site {down} ({pair.sites[down].url}) cannot be reached" in error.message
    assert "start what is down" in error.message
    assert not pair.held


def test_a_peer_that_never_gets_there_ends_the_wait(pair: StubPair, gateways: Gateways) -> None:
    pair.sites["b"].asked_until_held = 1_000_000
    error = fault(gateways, deadline_s=0.3)
    assert isinstance(error, Unavailable)
    assert "site b holds no snapshot" in error.message
    assert "twinlog status" in error.message
    assert not pair.held


def test_an_active_that_moved_is_told(pair: StubPair, gateways: Gateways) -> None:
    pair.sites["b"].asked_until_held, pair.moves = 1_000_000, True
    error = fault(gateways)
    assert isinstance(error, Refused)
    assert "site a set it in epoch 3, and site b is active in epoch 4" in error.message
    assert not pair.held


def test_snapshots_of_two_moments_are_no_basis(pair: StubPair, gateways: Gateways) -> None:
    pair.sites["b"].held_seq = 999
    assert isinstance(fault(gateways), Conflict)
    assert not pair.held


def test_what_the_active_answers_is_told(pair: StubPair, gateways: Gateways) -> None:
    pair.full = True
    error = fault(gateways)
    assert isinstance(error, Conflict)
    assert error.message == "4 snapshots are kept already"


def test_a_barrier_whose_answer_is_lost_is_released_too(pair: StubPair, gateways: Gateways) -> None:
    pair.sites["a"].breaks_off_after = "POST"
    assert isinstance(fault(gateways), PeerError)
    assert not pair.held
    assert pair.sites["b"].released == [NAME]


def test_nobody_active_is_told_with_roles(pair: StubPair, gateways: Gateways) -> None:
    pair.active = "nobody"
    assert "a is STANDBY, b is STANDBY" in fault(gateways).message


def test_addresses_that_are_swapped_or_of_another_pair(pair: StubPair, gateways: Gateways) -> None:
    pair.sites["a"].says_site = "b"
    assert "is site b, not a" in fault(gateways).message
    pair.sites["a"].says_site, pair.sites["b"].says_pair = "a", "other"
    assert "different pairs: demo, other" in fault(gateways).message


def test_an_answer_that_is_no_gateways(pair: StubPair, gateways: Gateways) -> None:
    pair.sites["b"].garbage = True
    said = fault(gateways).message
    assert "does not answer as a twinlog gateway" in said
    assert "Both sites must answer" in said


def test_both_sites_are_told_and_who_was_not_is_said(pair: StubPair, gateways: Gateways) -> None:
    assert gateways.tell({"id": "x"}, REPORT) == {}
    assert [site.audits for site in pair.sites.values()] == [[{"id": "x"}]] * 2
    assert [len(site.reports) for site in pair.sites.values()] == [1, 1]
    pair.sites["b"].close()
    assert list(gateways.tell({"id": "y"}, REPORT)) == ["b"]
