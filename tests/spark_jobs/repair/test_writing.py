"""The requests of a repair: sent once, sent again, or called unknown."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from spark_jobs.repair.planning import Write
from spark_jobs.repair.writing import Done, RowsAtActive
from tests.twinlog.raw_site import FunctionHttp
from twinlog import Client, Patience
from twinlog.problem_documents import TYPE_PREFIX

PUT = Write("PUT", "a b", "x%2Cy,7", '{"n": 1}', ("If-Match", '"5"'), 5)
DELETE = Write("DELETE", "t", "7", None, ("If-None-Match", "*"), None)
ANSWER = {"version": 12, "receipt": "R", "mode": "sync"}


CODES = {
    400: "malformed-body", 404: "not-found", 412: "precondition-failed", 421: "not-active", 429: "overloaded", 500: "internal",
    503: "unavailable",
}
QUICK = Patience(deadline_s=0.2, retry_first_s=0.001, retry_max_s=0.01)


class Site:
    """Answers with what `answers` gives, one after the other and the last one for ever, and keeps the requests."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.requests: list[httpx.Request] = []
        self._answers = list(answers)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def rows(site: Callable[[httpx.Request], httpx.Response]) -> RowsAtActive:
    return RowsAtActive(Client({"a": "http://a"}, QUICK, FunctionHttp(site)), "a")


def problem(status: int, **fields: str) -> httpx.Response:
    return httpx.Response(status, json={"type": TYPE_PREFIX + CODES[status], "detail": "so it is", **fields})


def test_a_row_is_written_under_its_condition_and_a_key_of_its_own() -> None:
    site = Site(httpx.Response(200, json=ANSWER))
    assert rows(site).write(PUT, "repair-1") == Done("written", version=12, receipt="R")
    (request,) = site.requests
    assert (request.method, request.url.raw_path) == ("PUT", b"/v1/tables/a%20b/rows/x%2Cy,7")
    assert request.headers["If-Match"] == '"5"'
    assert request.headers["Idempotency-Key"] == "repair-1"
    assert "@" in request.headers["Twinlog-Actor"]
    assert request.content == b'{"n": 1}'


def test_a_delete_of_a_row_that_is_not_there_has_no_body() -> None:
    site = Site(httpx.Response(200, json=ANSWER))
    assert rows(site).write(DELETE, "k").state == "written"
    assert (site.requests[0].method, site.requests[0].content) == ("DELETE", b"")
    assert site.requests[0].headers["If-None-Match"] == "*"


def test_a_lost_answer_is_asked_for_again_under_the_same_key() -> None:
    site = Site(httpx.ReadTimeout("lost"), problem(503), problem(429), httpx.Response(200, json=ANSWER))
    assert rows(site).write(PUT, "k").state == "written"
    assert {request.headers["Idempotency-Key"] for request in site.requests} == {"k"}


@pytest.mark.parametrize(("answer", "state", "ends"), [
    (problem(412), "changed since", False),
    (problem(400), "refused", False),
    (problem(404), "refused", False),
    (problem(421), "to write", True),
    (problem(500), "unknown", True),
])
def test_what_an_answer_says_of_the_row(answer: httpx.Response, state: str, ends: bool) -> None:
    done = rows(Site(answer)).write(PUT, "k")
    assert (done.state, done.ends) == (state, ends)


@pytest.mark.parametrize(("answer", "state"), [
    (problem(503, outcome="not_applied"), "to write"), (problem(503, outcome="unknown"), "unknown"),
    (httpx.ReadTimeout("lost"), "unknown"), (httpx.ConnectError("nobody"), "to write"),
])
def test_an_active_that_goes_on_failing_ends_the_repair(answer: httpx.Response | Exception, state: str) -> None:
    site = Site(answer)
    done = rows(site).write(PUT, "k")
    assert (done.state, done.ends) == (state, True)
    assert len(site.requests) > 3
    assert {request.headers["Idempotency-Key"] for request in site.requests} == {"k"}


@pytest.mark.parametrize(("write", "answer", "state"), [
    (PUT, httpx.Response(200, json={"row": {}, "version": 5}), "to write"),
    (PUT, httpx.Response(200, json={"row": {}, "version": 6}), "changed since"),
    (PUT, problem(404), "changed since"),
    (DELETE, problem(404), "to write"),
    (DELETE, httpx.Response(200, json={"row": {}, "version": 6}), "changed since"),
    (PUT, problem(400), "refused"),
])
def test_looking_changes_nothing(write: Write, answer: httpx.Response, state: str) -> None:
    site = Site(answer)
    assert rows(site).look(write).state == state
    assert site.requests[0].method == "GET"



def test_an_active_that_does_not_answer_ends_the_look_too() -> None:
    done = rows(Site(httpx.ConnectError("nobody"))).look(PUT)
    assert (done.state, done.ends) == ("to write", True)
    assert done.reason.startswith("not looked at: no answer within")
