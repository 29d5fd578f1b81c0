"""Makes the OpenAPI document: FastAPI finds paths and parameters; bodies, answers, problems, headers, examples are added here.

What always holds: the schema of an answer is that of the struct whose encoding the answer is; the schema of a body that is
decoded into a struct is that of this struct. The hot path is documented by the plain routes beside it, which answer the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute

from gateway.api.documents import (
    AuditDocument,
    AuditList,
    BackupPoint,
    BarrierBody,
    BatchAnswer,
    BatchBody,
    CheckBody,
    ConditionBody,
    HealthAnswer,
    LogLevelBody,
    OperationBody,
    OperationList,
    PageAnswer,
    RowAnswer,
    TableBody,
    TableChange,
    TableList,
    TrailDocument,
    WriteAnswer,
)
from gateway.api.problem_document import Problem
from gateway.api.problems import HTTP_PROBLEMS, PROBLEMS
from gateway.api.request import IDEMPOTENCY_KEY_LENGTH_MAX, JSON
from gateway.audits.notes import AuditBody, AuditRun, Audits
from gateway.service.documents import BarrierDocument, BarrierList, ClusterDocument, ReceiptDocument, ReloadDocument
from gateway.table_figures.documents import TableFiguresDocument
from storage.rows.schema import TableDocument
from switchover.monitor.views import SiteView
from switchover.operations.document import OperationDocument
from switchover.preflight.preflight import ChecksDocument
from twinlog.problem_documents import TYPE_PREFIX
from twinlog.wire.audit_report import ProgressBody, ReportBody

PROBLEM = "application/problem+json"
EVENTS = "text/event-stream"
TAGS = [
    {"name": "tables", "description": "Create, change and drop tables."},
    {"name": "rows", "description": "Write and read rows: one, many at once, or a scan. Only the active serves them."},
    {"name": "cluster", "description": "The pair as the asked site sees it, and what became of a write."},
    {"name": "operations", "description": "Role changes: check, start, follow, abort, resume. One runs at a time."},
    {"name": "audits", "description": "Barriers, behind which each site keeps a snapshot, and what audits found."},
    {"name": "backups", "description": "What `twinlog backup` reads: all rows at one point, and the log behind it."},
    {"name": "health", "description": "Probes for load balancers, and figures for Prometheus."},
    {"name": "internal", "description": "Calls between the two sites. Clients do not use them."},
]
SERVERS = [
    {
        "url": "{site}", "description": "one site of the pair; the active serves rows, and each site serves the rest",
        "variables": {"site": {"default": "http://127.0.0.1:8401", "description": "the address of the site"}},
    },
]
BEARER = {"type": "http", "scheme": "bearer", "description": "a token of `twinlog token create`, or a JWT of the site's issuer"}
OF_ANY_REQUEST = (400, 401, 403, 422, 429, 500, 503)
_REF = "#/components/schemas/{name}"
_STATUS_TITLES = {row.status: row.title for row in reversed(PROBLEMS.values())}
_CODES = {row.status: kind.code for kind, row in reversed(PROBLEMS.items())}
BODIES = (TableBody, TableChange, BatchBody, CheckBody, ConditionBody, OperationBody, LogLevelBody, BarrierBody, BackupPoint,
    AuditBody, ReportBody, ProgressBody)
ANSWERS = (
    TableDocument, TableList, TableFiguresDocument, WriteAnswer, BatchAnswer, RowAnswer, PageAnswer, ReceiptDocument,
    ClusterDocument, OperationDocument, OperationList, ChecksDocument, SiteView, BarrierDocument, BarrierList, AuditRun, Audits,
    HealthAnswer, AuditList, AuditDocument, TrailDocument, ReloadDocument, Problem,
)


def ref(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Returns a reference to the schema of `kind`, one of BODIES or ANSWERS."""
    return {"$ref": _REF.format(name=kind.__name__)}


def answers(ok: dict[int, dict[str, Any]], *problems: int) -> dict[int | str, dict[str, Any]]:
    """Returns the `responses` of a route: the good answers, and a problem for each of these statuses and of any request's."""
    good: dict[int | str, dict[str, Any]] = dict(ok.items())
    return good | {status: _problem(status) for status in sorted({*problems, *OF_ANY_REQUEST})}


def answer(text: str, example: msgspec.Struct, *more_types: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
    """Describes a good answer, as JSON and in `more_types`; the class of `example` has its schema."""
    schema = ref(type(example))
    content: dict[str, Any] = {JSON: {"schema": schema, "example": _as_sent(example)}}
    content.update({media: {"schema": schema} for media in more_types})
    described: dict[str, Any] = {"description": text, "content": content}
    if headers:
        described["headers"] = {name: {"description": why, "schema": {"type": "string"}} for name, why in headers.items()}
    return described


def _as_sent(example: msgspec.Struct) -> Any:
    return msgspec.json.decode(msgspec.json.encode(example))


def events(text: str, name: str, example: msgspec.Struct) -> dict[str, Any]:
    """Describes a stream of server-sent events called `name`, each with a document like `example`."""
    data = {
        "type": "string", "contentMediaType": JSON, "contentSchema": ref(type(example)),
    }
    event = {"type": "object", "properties": {"event": {"const": name}, "data": data}, "required": ["event", "data"]}
    shown = f"event: {name}\ndata: {msgspec.json.encode(example).decode()}\n\n"
    return {"description": text, "content": {EVENTS: {"itemSchema": event, "example": shown}}}


def raw_answer(text: str, media: str, example: Any = None) -> dict[str, Any]:
    """Describes an answer that is text or bytes to OpenAPI."""
    shown = {} if example is None else {"example": example}
    return {"description": text, "content": {media: {"schema": {"type": "string"}, **shown}}}


def body(schema: dict[str, Any], example: Any, *binary_types: str, lines: tuple[str, str] | None = None) -> dict[str, Any]:
    """Returns the `openapi_extra` of a route that reads its body itself. `lines`: a content type of lines, and an example."""
    content: dict[str, Any] = {JSON: {"schema": schema, "example": example}}
    if lines is not None:
        content[lines[0]] = {"schema": {"type": "string"}, "example": lines[1]}
    content.update({media: {"schema": {"type": "string", "format": "binary"}} for media in binary_types})
    return {"requestBody": {"required": True, "content": content}}


def headers(*names: str) -> dict[str, Any]:
    """Returns the `openapi_extra` of a route that reads these headers itself."""
    return {"parameters": [{"name": name, "in": "header", "required": False, **_HEADERS[name]} for name in names]}


_HEADERS: dict[str, dict[str, Any]] = {
    "Idempotency-Key": {
        "description": "the site does requests under one key once, and answers each of them like the first",
        "schema": {"type": "string", "minLength": 1, "maxLength": IDEMPOTENCY_KEY_LENGTH_MAX, "pattern": "^[!-~]+$"},
        "example": "3b1f2c9e-8d3c-4a55-9c7e-0f6d1c2b7a10",
    },
    "Twinlog-Deadline-S": {
        "description": "the seconds that the site may take to answer; it has a default and a limit",
        "schema": {"type": "number", "exclusiveMinimum": 0}, "example": 5,
    },
    "Twinlog-Actor": {
        "description": "who asks, for the history of operations",
        "schema": {"type": "string", "maxLength": 100}, "example": "ann@host",
    },
    "Twinlog-Expires-Ms": {
        "description": "when the request expires, in milliseconds since 1970 by the asked site's clock (now_ms of its cluster "
                       "document): no step before the point of no return begins after it; default: two minutes",
        "schema": {"type": "integer", "minimum": 0}, "example": 1_357_016_520_000,
    },
    "Accept": {
        "description": "application/json or application/x-msgpack; of a scan also application/x-ndjson or "
                       "application/vnd.apache.arrow.stream, for a stream of all rows",
        "schema": {"type": "string"}, "example": "application/x-ndjson",
    },
    "If-Match": {
        "description": "* or entity tags: only if the row exists, or is at the version of one of these tags",
        "schema": {"type": "string"}, "example": '"89173404839936000"',
    },
    "If-None-Match": {
        "description": "* or entity tags: a write only where there is no row, or it is at none of their versions; a read is "
                       "answered 304 where the row has one of these tags. Weak and foreign tags match nothing",
        "schema": {"type": "string"}, "example": "*",
    },
}
WRITE_HEADERS = ("Idempotency-Key", "Twinlog-Deadline-S")
ROW_WRITE_HEADERS = (*WRITE_HEADERS, "If-Match", "If-None-Match")


def _problem(status: int) -> dict[str, Any]:
    title = _STATUS_TITLES.get(status) or HTTP_PROBLEMS[status][1]
    code = _CODES.get(status) or HTTP_PROBLEMS[status][0]
    example = Problem(TYPE_PREFIX + code, title, status, "what is wrong, and what to do")
    described: dict[str, Any] = {
        "description": title,
        "content": {PROBLEM: {"schema": ref(Problem), "example": _as_sent(example)}},
    }
    if status in (429, 503):
        described["headers"] = {"Retry-After": {"description": "seconds to wait", "schema": {"type": "integer", "minimum": 1}}}
    return described


def _schemas() -> dict[str, Any]:
    """Returns the schemas of all bodies and answers. An answer also has the members with a default: the encoder sends them."""
    _, bodies = msgspec.json.schema_components(BODIES, ref_template=_REF)
    _, answered = msgspec.json.schema_components(ANSWERS, ref_template=_REF)
    for schema in answered.values():
        members = schema.get("properties", {})
        required = schema.get("required", ())
        schema["required"] = [name for name, member in members.items() if name in required or "default" in member]
        for member in members.values():
            member.pop("default", None)
    return bodies | answered


def install(app: FastAPI, routes: Sequence[APIRoute]) -> None:
    """Makes `app.openapi()` the whole document of `routes`, all that the app has."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(
                title=app.title, version=app.version, description=app.description, routes=app.routes, tags=TAGS, servers=SERVERS
            )
            for route in routes:
                for method in route.methods or ():  # whole: FastAPI leaves the nulls out of their examples
                    operation = document["paths"][route.path_format][method.lower()]
                    operation["responses"] = {str(status): shown for status, shown in route.responses.items()}
            document["components"] = {**document.get("components", {}), "securitySchemes": {"token": BEARER}}
            document["security"] = [{"token": []}, {}]  # a site without identities asks nobody
            schemas = document["components"].setdefault("schemas", {})
            schemas.update(_schemas())
            for name in ("HTTPValidationError", "ValidationError"):  # FastAPI's own; these are problems here
                schemas.pop(name, None)
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
