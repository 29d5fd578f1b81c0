"""Every class of the error tree has its problem, and comes back from it as the same class."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import msgspec
import pytest
import structlog
from structlog.testing import capture_logs

from gateway.api.problems import PROBLEMS, answer_for, known, plain_problem
from twinlog import errors
from twinlog.problem_documents import classes_of, error_from_problem

ROOT = Path(__file__).parents[3]
CLASSES = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.TwinlogError)]


def test_every_class_of_the_tree_is_mapped() -> None:
    assert set(PROBLEMS) == set(CLASSES)
    assert set(CLASSES) <= set(classes_of())


def test_every_code_is_its_own() -> None:
    codes = [kind.code for kind in classes_of()]
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_a_problem_comes_back_as_the_error(kind: type[errors.TwinlogError]) -> None:
    answer = answer_for(kind("do this instead", column="c", offset=7, active={"site": "b"}), is_write=True)
    document = msgspec.json.decode(answer.body)
    assert document["type"] == f"urn:twinlog:problem:{kind.code}"
    assert document["status"] == answer.status
    assert document["outcome"] in ("not_applied", "unknown")
    back = error_from_problem(answer.status, answer.body)
    assert type(back) is kind
    assert back.message == "do this instead"
    assert {name: back.fields[name] for name in ("column", "offset", "active")} == {
        "column": "c", "offset": 7, "active": {"site": "b"},
    }


def test_no_room_has_an_error_of_its_own_below_the_tree() -> None:
    """It would have no row at the edge, and its code would not come back as its class in a client that lacks that room."""
    names = {kind.__name__ for kind in CLASSES}
    apart = []
    for room in ("twinlog", "storage", "remote_log", "switchover", "gateway", "spark_jobs", "chaos"):
        for path in sorted((ROOT / room).rglob("*.py")):
            if path != Path(inspect.getfile(errors)):
                kinds = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.ClassDef)]
                bases = {kind.name: {ast.unparse(base).rpartition(".")[2] for base in kind.bases} for kind in kinds}
                apart += [f"{path.relative_to(ROOT)}: {name}" for name, above in bases.items() if above & names]
    assert apart == []


@pytest.mark.parametrize("kind", [
    errors.OutcomeUnknown, errors.SyncFailed, errors.DfsError, errors.Fenced, errors.LeaseLost, errors.PeerError,
    errors.TwinlogError,
])
def test_what_may_have_been_logged_is_never_called_not_applied(kind: type[errors.TwinlogError]) -> None:
    assert msgspec.json.decode(answer_for(kind("x"), is_write=True).body)["outcome"] == "unknown"


@pytest.mark.parametrize("kind", [
    errors.InvalidInput, errors.NotActive, errors.Overloaded, errors.Unavailable, errors.PreconditionFailed,
])
def test_what_was_refused_is_not_applied(kind: type[errors.TwinlogError]) -> None:
    assert msgspec.json.decode(answer_for(kind("x"), is_write=True).body)["outcome"] == "not_applied"


def test_the_outcome_of_the_error_itself_wins() -> None:
    answer = answer_for(errors.Unavailable("x", outcome="unknown"), is_write=True)
    assert msgspec.json.decode(answer.body)["outcome"] == "unknown"


def test_a_read_has_no_outcome() -> None:
    assert "outcome" not in msgspec.json.decode(answer_for(errors.Unavailable("x"), is_write=False).body)


@pytest.mark.parametrize(("error", "seconds"), [
    (errors.Overloaded("x", retry_after_s=0.2), b"1"), (errors.Unavailable("x", retry_after_s=2.1), b"3"),
    (errors.Unavailable("x"), b"1"),
])
def test_retry_after_in_whole_seconds(error: errors.TwinlogError, seconds: bytes) -> None:
    assert (b"retry-after", seconds) in answer_for(error, is_write=False).headers


def test_not_active_always_says_active() -> None:
    assert msgspec.json.decode(answer_for(errors.NotActive("x"), is_write=False).body)["active"] is None


def test_an_unexpected_error_is_logged_and_not_shown() -> None:
    structlog.reset_defaults()
    with capture_logs() as logged:
        answer = answer_for(known(RuntimeError("the password is swordfish"), lambda: "i-7"), is_write=True)
    document = msgspec.json.decode(answer.body)
    assert answer.status == 500
    assert document["outcome"] == "unknown"
    assert b"swordfish" not in answer.body
    assert logged[0]["incident"] == document["incident"] == "i-7"
    assert "swordfish" in logged[0]["traceback"]


def test_what_a_database_says_is_logged_and_not_shown() -> None:
    structlog.reset_defaults()
    said = "cannot write: connection to 10.0.0.7, port 5432 failed for user tl"
    with capture_logs() as logged:
        answer = answer_for(known(errors.EngineFailed(said, file="/srv/rows"), lambda: "i-7"), is_write=True)
    document = msgspec.json.decode(answer.body)
    assert (answer.status, document["type"], document["outcome"]) == (500, "urn:twinlog:problem:engine-failed", "unknown")
    assert "10.0.0.7" not in answer.body.decode()
    assert "/srv" not in answer.body.decode()
    assert logged[0]["incident"] == document["incident"] == "i-7"
    assert (logged[0]["detail"], logged[0]["file"]) == (said, "/srv/rows")


@pytest.mark.parametrize("body", [b"<html>bad gateway</html>", b"{}", b'{"type": "about:blank"}', b"[1]", b"\xff"])
def test_what_is_no_problem_of_ours_is_a_peer_error(body: bytes) -> None:
    error = error_from_problem(502, body)
    assert type(error) is errors.PeerError
    assert (error.fields["status"], error.fields["sent"]) == (502, True), "not to be sent elsewhere"
    assert type(error_from_problem(421, body)) is errors.NotActive


@pytest.mark.parametrize(("status", "code"), [(404, "no-such-path"), (431, "head-too-large"), (418, "i'm-a-teapot")])
def test_http_statuses_are_problems_too(status: int, code: str) -> None:
    document = msgspec.json.decode(plain_problem(status).body)
    assert document["type"] == f"urn:twinlog:problem:{code}"
    assert document["status"] == status
