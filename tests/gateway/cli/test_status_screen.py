"""`twinlog status` while the active is away: what is at risk, what to type, what was not asked; and what goes into a pipe."""

from __future__ import annotations

from typing import Any

import pytest
from rich.table import Table

from tests.gateway.cli.cli_rig import invoke
from tests.gateway.two_sites import TwoSites
from twinlog.cli.status import blockers, status_screen
from twinlog.errors import PeerError, Unauthenticated
from twinlog.terminal import out

URLS = {"a": "http://a:1", "b": "http://b:1"}
ACTIVE_B = {"site": "a", "url": "http://a:1", "epoch": 3}
STANDBY: dict[str, Any] = {
    "pair": "shop", "site": "b", "role": "STANDBY", "mode": "async", "policy": "protect", "epoch": 3, "active": ACTIVE_B,
    "serving": {"reads": False, "writes": False, "follows": True, "why": None, "do": None}, "troubles": [],
    "sites": {"a": {"url": "http://a:1"}, "b": {"url": "http://b:1"}},
}
ALONE = {"a": PeerError("refused"), "b": STANDBY}
LOSS = {"records_at_risk": 17, "statement": "at least 17 records were logged by site a alone"}


@pytest.fixture(autouse=True)
def piped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)


def screen(takeover: Any, answers: Any = ALONE) -> str:
    console = out()
    with console.capture() as captured:
        console.print(status_screen(answers, URLS, takeover))
    return captured.get()


def test_where_no_site_answers_nobody_knows_the_active() -> None:
    said = screen(None, {site: PeerError("refused") for site in URLS})
    assert "which site is active is unknown" in said
    assert "no site is active" not in said


def test_a_site_that_refuses_who_asks_is_not_called_unreachable() -> None:
    said = screen(None, {site: Unauthenticated("who asks is not known here") for site in URLS})
    assert "unreachable" not in said
    assert "site a refuses to say: who asks is not known here" in said


def test_the_headline_says_what_the_active_of_the_register_does() -> None:
    assert "site a is active, and does not answer" in screen(None)
    closed = {**STANDBY, "site": "a", "role": "CLOSED", "waiting_for": "its restart"}
    assert "site a is active, but it is CLOSED" in screen(None, {"a": closed, "b": STANDBY})
    serving = {"reads": True, "writes": True, "follows": False, "why": None, "do": None}
    for shown, said in ((serving, "is active "), ({**serving, "writes": False}, "is active and takes no writes"),
                        ({**serving, "reads": False, "writes": False}, "is active and serves nobody")):
        answers = {"a": {**STANDBY, "site": "a", "role": "ACTIVE", "serving": shown}, "b": STANDBY}
        assert f"site a {said}" in screen(None, answers)


def test_a_dead_asynchronous_active_shows_what_is_at_risk_and_no_resync() -> None:
    takeover = {"to": "b", "ok": False, "loss": LOSS, "checks": [{"id": "mode.sync", "status": "failed"}]}
    said = screen(takeover)
    assert "at risk if the active is lost  at least 17 records" in said
    assert "resync" not in said
    assert "bring site a back, and nothing is lost" in said
    assert "`twinlog failover --to b --accept-data-loss`" in said


def test_a_dead_synchronous_active_has_nothing_at_risk_and_a_command() -> None:
    said = screen({"to": "b", "ok": True, "loss": None, "checks": []})
    assert "at risk if the active is lost  0 records" in said
    assert "`twinlog failover --to b`" in said


@pytest.mark.parametrize(("takeover", "words"), [
    ({"to": "b", "ok": False, "loss": None, "checks": [{"id": "dfs.own-writable", "status": "failed"}]}, "dfs.own-writable"),
    ({"to": "b", "error": "no answer"}, "whether site b can take over is unknown (no answer)"),
])
def test_what_stands_in_the_way_of_a_takeover_is_named_and_the_risk_is_unknown(takeover: Any, words: str) -> None:
    said = screen(takeover)
    assert words in said
    assert "`twinlog validate --for failover --to b`" in said
    assert "at risk if the active is lost  unknown" in said


def test_the_status_asks_the_site_that_would_take_over() -> None:
    with TwoSites() as pair:
        pair.stop("a")
        result = invoke("status", "--config", pair.address)
        assert (result.exit_code, "twinlog failover --to b" in result.stdout) == (1, True)
        assert "at risk if the active is lost  0 records" in result.stdout


def test_notices_are_shown_and_are_no_blockers() -> None:
    notice = "insecure = true: whoever reaches this site's listener reads, writes and changes roles"
    active = {**STANDBY, "site": "a", "role": "ACTIVE", "mode": "sync", "notices": [notice]}
    answers = {"a": active, "b": {**STANDBY, "notices": []}}
    assert f"! site a: {notice}" in screen(None, answers)
    assert blockers(answers) == []


def test_an_address_that_names_one_site_only_is_no_whole_pair() -> None:
    found = blockers({"b": {**STANDBY, "mode": "sync"}})
    assert found == ["site a was not asked, because the address does not name it: add a=http://a:1"]


def test_a_table_in_a_pipe_is_not_wrapped(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(box=None, show_header=False)
    table.add_row("x" * 70, "y" * 70)
    out().print(table)
    assert "x" * 70 in capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "80")
    out().print(table)
    assert "x" * 70 not in capsys.readouterr().out, "who says how wide, has it so wide"


def test_a_site_of_an_old_release_says_none_and_no_markup_is_shown() -> None:
    said = screen(None, {"a": {**STANDBY, "site": "a"}, "b": {**STANDBY, "release": "0.2.0"}})
    assert "a unknown, b 0.2.0" in said
