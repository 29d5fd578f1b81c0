"""Errors at the edge: one table from the error tree to RFC 9457 problems. The way back is twinlog/problem_documents.py.

What always holds: every class of twinlog/errors.py has its row here; a problem's `type` is stable and its `detail` says what
to do; the answer to a failed write says `outcome`: `not_applied` only when nothing was logged, else `unknown`; an error that
is not of the tree, or holds a database's own words, shows nothing but an incident number.
Source: product.md section 2, protocol.md section 4.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, NamedTuple

import msgspec
import structlog
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from gateway.api.problem_document import MEMBERS, Problem
from twinlog import errors
from twinlog.problem_documents import TYPE_PREFIX, VERSION_FIELDS

CONTENT_TYPE = b"application/problem+json"
CHALLENGE = (b"www-authenticate", b'Bearer realm="twinlog"')
RETRY_AFTER_S = 1.0  # for 429 and 503 when the error does not say
_MORE = MEMBERS - {"type", "title", "status", "detail"}
_log = structlog.get_logger("gateway.api.problems")


class Answer(NamedTuple):
    """A whole HTTP answer; header names are lower case, content-length is added when it is sent."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class ProblemRow(NamedTuple):
    """Shows one class of errors. `outcome` is that of a write which failed with it."""

    status: int
    title: str
    outcome: str = "unknown"


_NOTHING = "not_applied"

PROBLEMS: dict[type[errors.TwinlogError], ProblemRow] = {
    errors.TwinlogError: ProblemRow(500, "Internal error"),
    errors.InvalidInput: ProblemRow(422, "The request is not valid", _NOTHING),
    errors.MalformedBody: ProblemRow(400, "The body cannot be parsed", _NOTHING),
    errors.TooLarge: ProblemRow(413, "A limit of size or count is exceeded", _NOTHING),
    errors.HistoryNotHeld: ProblemRow(410, "History does not reach back so far", _NOTHING),
    errors.Unauthenticated: ProblemRow(401, "Who asks is not known here", _NOTHING),
    errors.Forbidden: ProblemRow(403, "A grant is missing", _NOTHING),
    errors.NotFound: ProblemRow(404, "Not found", _NOTHING),
    errors.Conflict: ProblemRow(409, "Conflict with what is there", _NOTHING),
    errors.PreconditionFailed: ProblemRow(412, "The condition does not hold", _NOTHING),
    errors.NotActive: ProblemRow(421, "This site is not the active", _NOTHING),
    errors.Overloaded: ProblemRow(429, "Too many requests", _NOTHING),
    errors.Unavailable: ProblemRow(503, "Not available now", _NOTHING),
    errors.NoThread: ProblemRow(503, "The process cannot start a thread", _NOTHING),
    errors.OutcomeUnknown: ProblemRow(504, "The outcome is not known"),
    errors.LogError: ProblemRow(500, "The log failed"),
    errors.DamagedLog: ProblemRow(500, "The log is damaged"),
    errors.LogGap: ProblemRow(409, "Frames are missing"),
    errors.SyncFailed: ProblemRow(500, "The log could not be synced"),
    errors.KeyUnavailable: ProblemRow(500, "A key of the log is missing"),
    errors.BrokenFrame: ProblemRow(500, "A frame is broken"),
    errors.BrokenHeader: ProblemRow(500, "The header of a segment is broken"),
    errors.DfsError: ProblemRow(502, "The distributed file system failed"),
    errors.DfsExists: ProblemRow(409, "The file exists"),
    errors.DfsNotFound: ProblemRow(404, "The file is not there"),
    errors.LeaseLost: ProblemRow(502, "The file was closed by lease recovery"),
    errors.LeaseNotRecovered: ProblemRow(504, "The file was not proven closed in time"),
    errors.Fenced: ProblemRow(409, "A higher epoch was claimed"),
    errors.RegisterWentBack: ProblemRow(409, "The register went back"),
    errors.ClaimLost: ProblemRow(409, "Another plan took the epoch"),
    errors.PlanSuperseded: ProblemRow(409, "Another plan superseded this one"),
    errors.Refused: ProblemRow(409, "Refused: a promise would break", _NOTHING),
    errors.EngineFailed: ProblemRow(500, "The storage engine failed"),
    errors.IllegalTransition: ProblemRow(409, "This role cannot do that", _NOTHING),
    errors.Diverged: ProblemRow(409, "This site holds what the active lacks", _NOTHING),
    errors.Incompatible: ProblemRow(409, "The releases do not work together", _NOTHING),
    errors.PeerError: ProblemRow(502, "The other site failed"),
    errors.ConfigError: ProblemRow(409, "The configuration is wrong", _NOTHING),
    errors.DataDirectoryError: ProblemRow(500, "The data directory cannot be used", _NOTHING),
}

HTTP_PROBLEMS: dict[int, tuple[str, str]] = {  # status -> code, what to do
    403: ("forbidden", "call the site by its own address; a page of another origin may not call it"),
    404: ("no-such-path", "there is nothing at this path; GET /openapi.json lists every path"),
    405: ("method-not-allowed", "the path does not take this method; the Allow header names those it takes"),
    406: ("not-acceptable", "ask for one of the content types that the path answers with"),
    408: ("request-timeout", "the request did not arrive in time; send it again without pauses"),
    411: ("length-required", "send a Content-Length, or chunked"),
    415: ("unsupported-media-type", "send one of the content types that the path takes"),
    431: ("head-too-large", "send fewer or shorter headers"),
}


Known = errors.TwinlogError | HTTPException


def known(error: Exception, new_id: Callable[[], str]) -> Known:
    """Returns an exception that a client may see. An unexpected one is logged, and the answer names its incident number;
    so is one of a database, which names the database's address and user."""
    if isinstance(error, errors.EngineFailed):
        incident = new_id()
        _log.warning("the storage failed in a request", incident=incident, detail=error.message, **error.fields)
        detail = f"the storage of this site failed; the log of this site has it as incident {incident}: try again later"
        return errors.EngineFailed(detail, incident=incident)
    if isinstance(error, Known):
        return error
    if isinstance(error, RequestValidationError):
        return _invalid_parameters(error)
    incident = new_id()
    # As text: a renderer that draws tracebacks with their variables was seen to hold the event loop for ten seconds.
    _log.error("unexpected error in a request", incident=incident, traceback="".join(traceback.format_exception(error)))
    detail = f"an unexpected error; the log of this site has it as incident {incident}"
    return errors.TwinlogError(detail, incident=incident)


def forget_frames(error: BaseException) -> None:
    """Lets go what the frames of an answered error hold, its body above all: an error and its frames refer to each other, and
    would wait for the garbage collector.
    """
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            one.__traceback__ = None
            left += (one.__cause__, one.__context__)


def answer_for(error: Known, *, is_write: bool) -> Answer:
    """Returns the problem of a known error."""
    return _tree_problem(error, is_write) if isinstance(error, errors.TwinlogError) else _http_problem(error, is_write)


def code_of(error: Known) -> str:
    """Returns the end of the problem's `type`."""
    if isinstance(error, errors.TwinlogError):
        return error.code
    return HTTP_PROBLEMS.get(error.status_code, (HTTPStatus(error.status_code).phrase.lower().replace(" ", "-"), ""))[0]


def plain_problem(status: int, detail: str = "") -> Answer:
    """Returns the problem of a failure before there is a request: HTTP itself, too many connections."""
    return _http_problem(HTTPException(status, detail=detail or HTTPStatus(status).phrase), False)


def row_of(error: errors.TwinlogError) -> ProblemRow:
    return next(PROBLEMS[kind] for kind in type(error).__mro__ if kind in PROBLEMS)


def _tree_problem(error: errors.TwinlogError, is_write: bool) -> Answer:
    row = row_of(error)
    fields = dict(error.fields)
    if isinstance(error, errors.NotActive):
        fields.setdefault("active", None)
    headers = []
    if row.status in (429, 503):
        given = fields.setdefault("retry_after_s", RETRY_AFTER_S)
        wait_s = given if isinstance(given, int | float) else RETRY_AFTER_S
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(wait_s))))
    elif row.status == 401:
        headers.append(CHALLENGE)
    if is_write:
        fields.setdefault("outcome", row.outcome)
    return _answer(row.status, error.code, row.title, error.message, fields, headers)


def _http_problem(error: HTTPException, is_write: bool) -> Answer:
    status = error.status_code
    phrase = HTTPStatus(status).phrase
    code, advice = code_of(error), HTTP_PROBLEMS.get(status, ("", ""))[1]
    headers = [(name.lower().encode(), value.encode()) for name, value in (error.headers or {}).items()]
    detail = str(error.detail)
    if detail == phrase and advice:
        detail = advice
    fields: dict[str, object] = {"outcome": _NOTHING} if is_write else {}
    return _answer(status, code, phrase, detail, fields, headers)


def _answer(
    status: int, code: str, title: str, detail: str, fields: dict[str, object], headers: list[tuple[bytes, bytes]]
) -> Answer:
    more: dict[str, Any] = {name: value for name, value in fields.items() if name in _MORE}
    for name in VERSION_FIELDS & more.keys():
        more[name] = None if more[name] is None else str(more[name])
    problem = Problem(TYPE_PREFIX + code, title, status, detail, **more)
    return Answer(status, [(b"content-type", CONTENT_TYPE), *headers], msgspec.json.encode(problem, enc_hook=str))


def _invalid_parameters(error: RequestValidationError) -> errors.InvalidInput:
    """Returns FastAPI's own findings as one error that names each parameter."""
    faults = [
        {"where": str(fault["loc"][0]), "name": ".".join(map(str, fault["loc"][1:])), "problem": fault["msg"]}
        for fault in error.errors()
    ]
    text = "; ".join(f"{fault['where']} parameter {fault['name']!r}: {fault['problem']}" for fault in faults)
    return errors.InvalidInput(f"{text}; correct it and send the request again", faults=faults)
