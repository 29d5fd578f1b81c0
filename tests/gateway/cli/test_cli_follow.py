"""An operation that is followed at the terminal: a site that goes away, Ctrl-C, an answer that is lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from gateway.cli import following as cli_follow
from gateway.cli import operator
from twinlog.errors import NotFound, OutcomeUnknown, PeerError
from twinlog.operation_ids import operation_of_key


class Vanishing:
    """A pair whose site b took an operation and then went away, for `silences` attempts to see how it is."""

    def __init__(self, silences: int) -> None:
        self.urls = {"a": "http://a", "b": "http://b"}
        self.silences = silences

    def clock_ms(self, site: str) -> int:
        return 1_700_000_000_000

    def ask(self, site: str, method: str, path: str, body: Any = None, key: str | None = None, *_: Any) -> dict[str, Any]:
        if method == "POST":
            return {"id": "op-1", "kind": "switchover", "state": "running", "steps": []}
        self.silences -= 1
        if self.silences >= 0:
            raise PeerError("connection refused", sent=False)
        return {"id": "op-1", "kind": "switchover", "state": "succeeded", "steps": []}

    def ask_all(self, path: str) -> dict[str, dict[str, Any] | Exception]:
        return {}

    def events(self, site: str, path: str) -> Iterator[dict[str, Any]]:
        yield from ()

    def close(self) -> None: ...


def test_a_site_that_goes_away_does_not_make_the_operation_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_follow, "RETRY_S", 0.001)
    site, document = cli_follow.start(Vanishing(0), ["b"], "switchover", "b", {}, dry_run=False)
    assert [one["state"] for one in cli_follow.documents(Vanishing(5), site, document)] == ["running", "succeeded"]
    with pytest.raises(OutcomeUnknown, match="twinlog history op-1"):
        list(cli_follow.documents(Vanishing(1000), site, document))


def test_control_c_detaches_and_never_cancels(capsys: pytest.CaptureFixture[str]) -> None:
    asked = []

    class Interrupted(Vanishing):
        def ask(self, site: str, method: str, path: str, body: Any = None, key: str | None = None, *_: Any) -> dict[str, Any]:
            asked.append((method, path))
            return super().ask(site, method, path, body, key)

        def events(self, site: str, path: str) -> Iterator[dict[str, Any]]:
            raise KeyboardInterrupt

    pair = Interrupted(0)
    site, document = cli_follow.start(pair, ["b"], "switchover", "b", {}, dry_run=False)
    with pytest.raises(typer.Exit) as left:
        cli_follow.follow(pair, site, document, as_json=False)
    assert left.value.exit_code == 3
    said = capsys.readouterr().err.replace("\n", " ")
    assert "still running at site b. Follow it with: twinlog history op-1" in said
    assert "It can be given up" in said
    assert "twinlog abort op-1" in said
    assert asked == [("POST", "/v1/operations")]


def test_an_order_whose_answer_was_lost_is_not_given_to_another_site(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_follow, "RETRY_S", 0.001)
    asked: list[tuple[str, str | None]] = []

    class Losing(Vanishing):
        def ask(self, site: str, method: str, path: str, body: Any = None, key: str | None = None, *_: Any) -> dict[str, Any]:
            asked.append((site, key))
            raise PeerError("broken", sent=site == "b")

    pair = Losing(0)
    with pytest.raises(OutcomeUnknown, match="may be running"):
        cli_follow.start(pair, ["a", "b", "a"], "degrade", None, {}, dry_run=False)
    assert [site for site, _ in asked] == ["a", "b", "b", "b"]
    assert len({key for site, key in asked if site == "b"}) == 1, "asked again, not anew"


def test_control_c_before_the_answer_says_what_may_begin_and_until_when(capsys: pytest.CaptureFixture[str]) -> None:
    class Stopped(Vanishing):
        expires_ms = 0

        def ask(self, site: str, method: str, path: str, body: Any = None, key: str | None = None, *rest: Any) -> Any:
            self.expires_ms, self.operation = rest[1], operation_of_key(str(key))
            assert self.operation in capsys.readouterr().err, "the id is on the screen before anything is sent"
            raise KeyboardInterrupt

    pair = Stopped(0)
    with pytest.raises(typer.Exit) as left:
        cli_follow.start(pair, ["b"], "switchover", "b", {}, dry_run=False, valid_s=90)
    said = " ".join(capsys.readouterr().err.split())
    assert left.value.exit_code == 3
    assert pair.expires_ms == 1_700_000_000_000 + 90_000
    assert "it begins until 22:14:50 UTC by that site's clock; after that it is refused, or undone" in said
    assert f"twinlog abort {pair.operation}" in said


@pytest.mark.parametrize(("order", "said"), [
    (["b"], "site b, which would carry out the switchover, does not answer, and nothing was changed: refused; start its"),
    (["a", "b"], "no site answers: refused; refused; start the gateway of a site"),
])
def test_only_the_sites_that_were_asked_are_said_to_be_silent(order: list[str], said: str) -> None:
    """The other site may be the active, and well."""
    class Silent(Vanishing):
        def ask(self, *_: Any) -> dict[str, Any]:
            raise PeerError("refused", sent=False)

    with pytest.raises(PeerError) as raised:
        cli_follow.start(Silent(0), order, "switchover", "b", {}, dry_run=False)
    assert raised.value.message.startswith(said)


@pytest.mark.parametrize(("answers", "error"), [
    ({"a": NotFound("no"), "b": NotFound("no")}, NotFound),
    ({"a": PeerError("refused"), "b": NotFound("no")}, OutcomeUnknown),  # 4 would say that no site was reached
    ({"a": PeerError("refused"), "b": PeerError("refused")}, PeerError),
])
def test_an_operation_that_nobody_shows_is_unknown_while_a_site_is_silent(
    answers: dict[str, Any], error: type[Exception]
) -> None:
    class Asked(Vanishing):
        def ask_all(self, path: str) -> dict[str, dict[str, Any] | Exception]:
            return answers

    with pytest.raises(error) as raised:
        cli_follow.find(Asked(0), "op-1")
    assert type(raised.value) is error
    if error is OutcomeUnknown:
        assert "site a may keep it, and does not answer (refused)" in str(raised.value)


def test_a_step_that_waits_says_for_what_in_a_pipe_too(capsys: pytest.CaptureFixture[str]) -> None:
    def shown(state: str, detail: Any, step: str = "running") -> dict[str, Any]:
        return {"id": "op-1", "kind": "resync", "state": state, "steps": [{"name": "resync", "state": step, "detail": detail}]}

    waits = {"waiting_for": "the other site's storage"}
    class Waiting(Vanishing):
        def events(self, site: str, path: str) -> Iterator[dict[str, Any]]:
            yield from (shown("running", waits), shown("running", waits), shown("succeeded", {"mode": "sync"}, "done"))

    cli_follow.follow(Waiting(0), "a", shown("running", None), as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["running", "done", "resync"]
    assert "waiting for the other site's storage" in lines[0]


@pytest.mark.parametrize("accepted", [0, 12, "unknown"])
def test_an_accepted_count_reaches_the_site_zero_too(accepted: int | str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Zero was taken for an option that was not given, and the failover was refused for a loss that nobody accepted."""
    asked: list[dict[str, Any]] = []

    def start(pair: Any, order: Any, kind: str, to: str, given: dict[str, Any], *_: Any) -> tuple[str, dict[str, Any]]:
        asked.append(given)
        return "b", {}

    monkeypatch.setattr(operator, "start", start)
    monkeypatch.setattr(operator, "follow", lambda *_, **__: None)
    options = {"reason": "", "merge": False, "accept_data_loss": accepted}
    nobody: Any = None
    operator._run(nobody, ["b"], "failover", "b", options, dry_run=False, as_json=False)
    assert asked == [{"accept_data_loss": accepted}]
