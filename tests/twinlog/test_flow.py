"""The client's flow against a scripted pair on virtual time: redirects, refusals, silence, switches, deadlines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlog.addresses import parse_address
from twinlog.errors import (
    Conflict,
    InvalidInput,
    NotActive,
    OutcomeUnknown,
    PeerError,
    PreconditionFailed,
    TwinlogError,
    Unavailable,
)
from twinlog.flow import (
    Broken,
    Call,
    PairView,
    Patience,
    Pause,
    Reply,
    Resumed,
    Send,
    SiteRequest,
    call,
)
from twinlog.problem_documents import error_from_problem

URLS = {"a": "http://a", "b": "http://b"}
WRITE = Call("PUT", "/v1/tables/t/rows/1", content=b"{}", key="k1")
READ = Call("GET", "/v1/tables/t/rows/1")
REFUSED = Broken(sent=False, detail="connection refused")
LOST = Broken(sent=True, detail="no answer in time")
Answer = Reply | Broken
Site = Callable[[SiteRequest, float], Answer]


def ok(document: Any = None) -> Reply:
    return Reply(200, {}, json.dumps(document or {}).encode())


def problem(status: int, code: str, headers: dict[str, str] | None = None, **members: Any) -> Reply:
    body = {"type": f"urn:twinlog:problem:{code}", "title": code, "status": status, "detail": f"{code}!", **members}
    return Reply(status, headers or {}, json.dumps(body).encode())


def active(site: str, epoch: int) -> dict[str, Any]:
    return {"site": site, "url": URLS[site], "epoch": epoch}


def cluster(me: str, role: str, known: dict[str, Any] | None) -> Reply:
    return ok({"pair": "p", "site": me, "role": role, "active": known})


@dataclass
class Pair:
    """Two scripted sites; a broken attempt that was sent takes its whole timeout."""

    sites: dict[str, Site]
    now_s: float = 0.0
    requests: list[SiteRequest] = field(default_factory=list)

    def answer(self, request: SiteRequest) -> Answer:
        self.requests.append(request)
        return self.sites[request.url[: len("http://a")]](request, self.now_s)

    def run(self, request: Call, view: PairView | None = None, **patience: float) -> Reply:
        flow = call(view or PairView(URLS), request, Patience(**patience), self.now_s, lambda: 0.5)
        step = next(flow)
        while True:
            answers: tuple[Answer, ...] = ()
            if isinstance(step, Pause):
                assert step.duration_s > 0
                self.now_s += step.duration_s
            else:
                assert isinstance(step, Send)
                answers = tuple(self.answer(one) for one in step.requests)
                slow = [one.timeout_s for one, got in zip(step.requests, answers, strict=True) if got is LOST]
                self.now_s += max(slow, default=0.001)
            try:
                step = flow.send(Resumed(self.now_s, answers))
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]

    @property
    def writes(self) -> list[SiteRequest]:
        return [request for request in self.requests if request.method != "GET"]


def site(me: str, role: str, known: dict[str, Any] | None, other: Site) -> Site:
    def respond(request: SiteRequest, now_s: float) -> Answer:
        return cluster(me, role, known) if request.url.endswith("/v1/cluster") else other(request, now_s)

    return respond


def always(answer: Answer) -> Site:
    return lambda request, now_s: answer


def not_active(known: dict[str, Any] | None) -> Site:
    return always(problem(421, "not-active", active=known))


def healthy() -> Pair:
    a = site("a", "ACTIVE", active("a", 3), always(ok()))
    return Pair({"http://a": a, "http://b": site("b", "STANDBY", active("a", 3), not_active(active("a", 3)))})


def test_the_active_is_found_by_asking_both_and_then_remembered() -> None:
    pair, view = healthy(), PairView(URLS)
    pair.run(WRITE, view)
    pair.run(WRITE, view)
    asked = [request.url for request in pair.requests]
    assert asked[:2] == ["http://a/v1/cluster", "http://b/v1/cluster"]
    assert asked[2:] == ["http://a/v1/tables/t/rows/1"] * 2
    assert all(request.headers["Idempotency-Key"] == "k1" for request in pair.writes)


def test_a_stale_site_that_believes_it_is_active_does_not_win() -> None:
    pair = Pair({
        "http://a": site("a", "ACTIVE", active("a", 3), always(LOST)),
        "http://b": site("b", "ACTIVE", active("b", 4), always(ok())),
    })
    pair.run(WRITE)
    assert [request.url[:8] for request in pair.writes] == ["http://b"]


def test_a_redirect_is_followed_at_once_to_the_address_that_the_client_was_given() -> None:
    elsewhere = {"site": "b", "url": "http://internal-name:1", "epoch": 4}
    pair = Pair({
        "http://a": not_active(elsewhere),
        "http://b": site("b", "ACTIVE", active("b", 4), always(ok())),
    })
    view = PairView(URLS)
    view.learn(active("a", 3))
    pair.run(WRITE, view)
    assert [request.url[:8] for request in pair.writes] == ["http://a", "http://b"]
    assert pair.now_s < 0.01, "no pause before the hop"
    assert (view.active, view.epoch) == ("b", 4)


def test_two_sites_that_point_at_each_other_are_not_hammered() -> None:
    pair = Pair({"http://a": not_active(active("b", 3)), "http://b": not_active(active("a", 3))})
    view = PairView(URLS)
    view.learn(active("a", 3))
    with pytest.raises(Unavailable):
        pair.run(WRITE, view, deadline_s=10)
    assert len(pair.requests) < 60


def test_a_drain_is_waited_out_and_the_new_active_found() -> None:
    def switching(me: str) -> Site:
        def respond(request: SiteRequest, now_s: float) -> Answer:
            known = active("a", 3) if now_s < 1.5 else active("b", 4)
            if request.url.endswith("/v1/cluster"):
                return cluster(me, "x", known)
            if known["site"] != me:
                return problem(421, "not-active", active=known)
            return problem(503, "unavailable", {"retry-after": "1"}, outcome="not_applied") if me == "a" else ok()

        return respond

    pair = Pair({"http://a": switching("a"), "http://b": switching("b")})
    pair.run(WRITE)
    assert pair.writes[-1].url.startswith("http://b")
    assert 1.5 <= pair.now_s < 3


def test_the_finer_retry_after_of_the_problem_is_kept() -> None:
    answers = iter([problem(429, "overloaded", {"retry-after": "1"}, retry_after_s=0.2), ok()])
    pair = healthy()
    pair.sites["http://a"] = site("a", "ACTIVE", active("a", 3), lambda request, now_s: next(answers))
    pair.run(WRITE)
    assert 0.2 <= pair.now_s < 0.3
    assert len(pair.requests) == 4, "an overloaded active stays the active: nobody is asked again"


def test_a_lost_reply_is_settled_by_the_same_key() -> None:
    answers: Iterator[Answer] = iter([LOST, ok({"version": 1})])
    pair = healthy()
    pair.sites["http://a"] = site("a", "ACTIVE", active("a", 3), lambda request, now_s: next(answers))
    assert pair.run(WRITE).content == b'{"version": 1}'
    assert {request.headers["Idempotency-Key"] for request in pair.writes} == {"k1"}


@pytest.mark.parametrize("uncertain", [
    LOST, problem(504, "outcome-unknown", outcome="unknown"), problem(503, "unavailable", outcome="unknown"),
    Reply(502, {}, b"<html>"), problem(500, "internal"), problem(409, "fenced", outcome="unknown"),
])
def test_an_outcome_stays_unknown_when_only_refusals_follow(uncertain: Answer) -> None:
    answers: list[Answer] = [*[REFUSED] * 100, uncertain]
    pair = healthy()
    pair.sites["http://a"] = site("a", "ACTIVE", active("a", 3), lambda request, now_s: answers.pop())
    with pytest.raises(OutcomeUnknown) as caught:
        pair.run(WRITE, deadline_s=20)
    assert caught.value.fields["idempotency_key"] == "k1"
    assert pair.now_s <= 20


def test_a_refusal_after_a_lost_attempt_does_not_say_that_nothing_was_applied() -> None:
    """The lost attempt may still be on its way to a site that will take it."""
    answers: list[Answer] = [problem(412, "precondition-failed", outcome="not_applied"), LOST]
    pair = healthy()
    pair.sites["http://a"] = site("a", "ACTIVE", active("a", 3), lambda request, now_s: answers.pop())
    with pytest.raises(PreconditionFailed) as caught:
        pair.run(WRITE, deadline_s=20)
    assert caught.value.fields["outcome"] == "unknown"
    answers = [problem(412, "precondition-failed", outcome="not_applied")]
    with pytest.raises(PreconditionFailed) as caught:
        pair.run(WRITE, deadline_s=20)
    assert caught.value.fields["outcome"] == "not_applied"


@pytest.mark.parametrize("definite", [REFUSED, problem(503, "unavailable"), problem(504, "unavailable", outcome="not_applied")])
def test_a_write_that_reached_nobody_was_certainly_not_applied(definite: Answer) -> None:
    pair = healthy()
    pair.sites["http://a"] = site("a", "ACTIVE", active("a", 3), always(definite))
    with pytest.raises(Unavailable, match="nothing was applied"):
        pair.run(WRITE, deadline_s=5)
    assert pair.now_s <= 5


def test_both_sites_down_ends_at_the_deadline_and_says_what_each_answered() -> None:
    pair = Pair({"http://a": always(REFUSED), "http://b": always(LOST)})
    with pytest.raises(Unavailable, match=r"a: connection refused; http://b: no answer in time"):
        pair.run(READ, deadline_s=7)
    assert 5 < pair.now_s <= 7


def test_no_attempt_is_given_more_time_than_the_call_has_left() -> None:
    pair = Pair({"http://a": always(LOST), "http://b": always(LOST)})
    view = PairView(URLS)
    view.learn(active("a", 1))
    with pytest.raises(OutcomeUnknown):
        pair.run(WRITE, view, deadline_s=6.2)
    assert pair.now_s <= 6.2


@pytest.mark.parametrize(("reply", "kind"), [
    (problem(412, "precondition-failed", current_version=9), PreconditionFailed),
    (problem(409, "conflict"), Conflict),
    (problem(500, "internal", outcome="not_applied"), TwinlogError),
    (problem(418, "something-new"), PeerError),
    (Reply(403, {}, b"no json"), PeerError),
])
def test_what_trying_again_would_not_change_is_raised_at_once(reply: Reply, kind: type[TwinlogError]) -> None:
    pair = healthy()
    pair.sites["http://a"] = site("a", "ACTIVE", active("a", 3), always(reply))
    with pytest.raises(kind) as caught:
        pair.run(WRITE)
    assert type(caught.value) is kind
    assert caught.value.fields["status"] == reply.status
    assert len(pair.writes) == 1


def test_a_problem_becomes_the_error_of_its_type_with_its_members() -> None:
    reply = problem(421, "not-active", active=active("b", 7))
    error = error_from_problem(reply.status, reply.content)
    assert isinstance(error, NotActive)
    assert error.fields["active"] == active("b", 7)
    assert error.message == "not-active!"


def test_a_call_for_anyone_is_answered_while_nobody_is_active() -> None:
    pair = Pair({"http://a": always(REFUSED), "http://b": site("b", "STANDBY", None, always(REFUSED))})
    assert b"STANDBY" in pair.run(Call("GET", "/v1/cluster", anywhere=True)).content
    with pytest.raises(Unavailable, match="no site is active: b is STANDBY"):
        pair.run(READ, deadline_s=3)


def test_the_view_never_goes_back_unless_both_sites_agree() -> None:
    view = PairView(URLS)
    assert view.learn(active("b", 5))
    assert not view.learn(active("a", 4))
    view.learn_all([{"active": active("a", 4)}])
    assert (view.active, view.epoch) == (None, 5), "one old voice: ask again"
    view.learn_all([{"active": active("a", 1)}, {"active": None}])
    assert (view.active, view.epoch) == ("a", 1), "a pair made anew"
    for nonsense in (None, {}, {"site": 3}, {"site": "c", "epoch": 9}, "b"):
        assert not view.learn(nonsense)


def test_an_active_that_was_not_given_is_never_asked() -> None:
    """Neither by a refusal nor by a cluster document: the client sends to the addresses that it was given only."""
    evil = {"site": "c", "url": "http://evil", "epoch": 99}
    moved = {"site": "b", "url": "http://evil", "epoch": 5}
    refusing = always(problem(421, "not-active", active=evil))
    pair = Pair({"http://a": site("a", "STANDBY", evil, refusing), "http://b": site("b", "STANDBY", evil, refusing)})
    with pytest.raises(Unavailable, match="'c' the active, at http://evil, which is none of the sites"):
        pair.run(WRITE, deadline_s=3)
    view = PairView(URLS)
    assert not view.learn(evil)
    assert view.urls == URLS
    assert view.learn(moved)
    assert view.active_url == URLS["b"], "its own address, whatever the answer says"


@pytest.mark.parametrize("address", ["", "twinlog://p", "http://a", "twinlog://p?a=ftp://x", "twinlog://p?a=http://"])
def test_a_wrong_address_says_how_to_write_it(address: str) -> None:
    with pytest.raises(InvalidInput, match="twinlog://PAIR"):
        parse_address(address)
    assert parse_address("twinlog://p?a=http://x:1&b=https://y/z") == {"a": "http://x:1", "b": "https://y/z"}


BEHAVIOURS = st.sampled_from(
    ["ok", "ok", "lost-before", "lost-after", "refused", "draining", "overloaded", "unknown", "switch"]
)


@given(st.lists(BEHAVIOURS, max_size=12), st.floats(0.5, 30))
def test_whatever_happens_the_answer_is_honest_and_in_time(script: list[str], deadline_s: float) -> None:
    """A pair that keeps idempotency keys, with faults of every kind: applied once, never, or said to be unknown."""
    state: dict[str, Any] = {"active": "a", "epoch": 1}
    applied: set[str] = set()
    behaviours = iter(script)

    def respond(me: str) -> Site:
        def one(request: SiteRequest, now_s: float) -> Answer:
            known = {"site": state["active"], "url": "http://internal", "epoch": state["epoch"]}
            if request.url.endswith("/v1/cluster"):
                return cluster(me, "?", known)
            if me != state["active"]:
                return problem(421, "not-active", active=known)
            behaviour = next(behaviours, "ok")
            if behaviour == "switch":
                state.update(active="b" if me == "a" else "a", epoch=state["epoch"] + 1)
                return problem(503, "unavailable", outcome="not_applied")
            if behaviour in ("ok", "lost-after"):
                applied.add(request.headers["Idempotency-Key"])
            replies: dict[str, Answer] = {
                "ok": ok(), "lost-before": LOST, "lost-after": LOST, "refused": REFUSED,
                "draining": problem(503, "unavailable", {"retry-after": "1"}), "overloaded": problem(429, "overloaded"),
                "unknown": problem(504, "outcome-unknown", outcome="unknown"),
            }
            return replies[behaviour]

        return one

    pair = Pair({"http://a": respond("a"), "http://b": respond("b")})
    try:
        pair.run(WRITE, deadline_s=deadline_s)
    except Unavailable:
        assert not applied
    except OutcomeUnknown:
        assert {"lost-before", "lost-after", "unknown"} & set(script)
    else:
        assert applied == {"k1"}
    assert pair.now_s <= deadline_s + 0.01


def test_a_request_for_one_site_goes_nowhere_else_and_ends_when_that_site_is_not_the_active() -> None:
    moved = problem(421, "not-active", active=active("b", 2), outcome="not_applied")
    pair = Pair({
        "http://a": site("a", "STANDBY", active("b", 2), always(moved)),
        "http://b": site("b", "ACTIVE", active("b", 2), always(ok())),
    })
    with pytest.raises(NotActive):
        pair.run(msgspec.structs.replace(WRITE, site="a"), deadline_s=5)
    assert [request.url for request in pair.requests] == ["http://a/v1/tables/t/rows/1"]


def test_a_request_for_one_site_is_repeated_there() -> None:
    answers: Iterator[Answer] = iter([LOST, problem(503, "unavailable", outcome="unknown"), ok({"version": 1})])
    pair = Pair({"http://a": lambda request, now_s: next(answers), "http://b": always(REFUSED)})
    assert pair.run(msgspec.structs.replace(WRITE, site="a"), deadline_s=30).status == 200
    assert {(request.url, request.headers["Idempotency-Key"]) for request in pair.requests} == {
        ("http://a/v1/tables/t/rows/1", "k1")
    }
