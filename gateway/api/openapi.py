"""What the OpenAPI document says beyond what FastAPI finds out itself: bodies, answers, problems, shared headers, examples.

What always holds: every schema that a route refers to is a type of documents.py; the hot path is documented by the plain
routes beside it, which answer the same.
"""

from __future__ import annotations

from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from gateway.api import documents
from gateway.api.problems import HTTP_PROBLEMS, PROBLEMS
from gateway.api.request import JSON
from twinlog.problem_documents import TYPE_PREFIX

PROBLEM = "application/problem+json"
_REF = "#/components/schemas/{name}"
_STATUS_TITLES = {row.status: row.title for row in reversed(PROBLEMS.values())}
_CODES = {row.status: kind.code for kind, row in reversed(PROBLEMS.items())}

EXAMPLE_TABLE = {
    "name": "flights",
    "columns": [
        {"name": "carrier", "type": "string"}, {"name": "flight", "type": "int32"},
        {"name": "delay_min", "type": "float64"}, {"name": "seen_at", "type": "timestamp"},
    ],
    "primary_key": ["carrier", "flight"],
    "replication": "sync",
}
EXAMPLE_ROW = {"carrier": "UA", "flight": 1545, "delay_min": 2.0, "seen_at": "2013-01-01T05:17:00Z"}
EXAMPLE_VERSION = 89_173_404_839_936_000
EXAMPLE_WRITE = {"version": EXAMPLE_VERSION, "receipt": "AQEAAAMAAAAAAAAAKgAAAAAAAAA", "mode": "sync"}
EXAMPLE_BATCH = {
    "mutations": [
        {"op": "upsert", "row": EXAMPLE_ROW},
        {"op": "update", "row": {"carrier": "UA", "flight": 1545, "delay_min": 4.0}},
        {"op": "delete", "key": {"carrier": "AA", "flight": 1}},
    ]
}


def ref(kind: type) -> dict[str, Any]:
    return {"$ref": _REF.format(name=kind.__name__)}


def answers(ok: dict[int, dict[str, Any]], *problems: int) -> dict[int | str, dict[str, Any]]:
    """`responses` of a route: the good answers, and a problem for each of these statuses."""
    good: dict[int | str, dict[str, Any]] = dict(ok.items())
    return good | {status: _problem(status) for status in sorted({*problems, 422, 500})}


def answer(kind: type, text: str, example: Any, *more_types: str, headers: dict[str, str] | None = None) -> dict[str, Any]:
    """One good answer, as JSON and in `more_types`."""
    content: dict[str, Any] = {JSON: {"schema": ref(kind), "example": example}}
    content.update({media: {"schema": ref(kind)} for media in more_types})
    described: dict[str, Any] = {"description": text, "content": content}
    if headers:
        described["headers"] = {name: {"description": why, "schema": {"type": "string"}} for name, why in headers.items()}
    return described


def raw_answer(text: str, media: str, example: Any = None) -> dict[str, Any]:
    """An answer that is text or bytes to OpenAPI."""
    shown = {} if example is None else {"example": example}
    return {"description": text, "content": {media: {"schema": {"type": "string"}, **shown}}}


def body(schema: dict[str, Any], example: Any, *more_types: str) -> dict[str, Any]:
    """`openapi_extra` of a route that reads its body itself."""
    content: dict[str, Any] = {JSON: {"schema": schema, "example": example}}
    content.update({media: {"schema": {"type": "string", "format": "binary"}} for media in more_types})
    return {"requestBody": {"required": True, "content": content}}


def headers(*names: str) -> dict[str, Any]:
    """`openapi_extra` of a route that reads these headers itself."""
    return {"parameters": [
        {"name": name, "in": "header", "required": False, "description": _HEADERS[name], "schema": {"type": "string"}}
        for name in names
    ]}


_HEADERS = {
    "Idempotency-Key": "1 to 128 visible ASCII characters: the same request under the same key is done once and answered alike",
    "Twinlog-Deadline-S": "answer within so many seconds; the site has a default and a limit",
    "Accept": "application/json for a page, application/x-ndjson for a stream of lines, application/x-msgpack",
    "If-Match": "* or versions in quotes: only over a row that exists, or is at one of these versions",
    "If-None-Match": "* or versions in quotes: only where there is no row, or it is at none of these versions",
}
WRITE_HEADERS = ("Idempotency-Key", "Twinlog-Deadline-S")
ROW_WRITE_HEADERS = (*WRITE_HEADERS, "If-Match", "If-None-Match")


def _problem(status: int) -> dict[str, Any]:
    title = _STATUS_TITLES.get(status) or HTTP_PROBLEMS[status][1]
    code = _CODES.get(status) or HTTP_PROBLEMS[status][0]
    example = {"type": TYPE_PREFIX + code, "title": title, "status": status, "detail": "what is wrong, and what to do"}
    content = {PROBLEM: {"schema": ref(documents.Problem), "example": example}}
    described: dict[str, Any] = {"description": title, "content": content}
    if status in (429, 503):
        described["headers"] = {"Retry-After": {"description": "seconds to wait", "schema": {"type": "integer"}}}
    return described


def install(app: FastAPI) -> None:
    """Make `app.openapi()` the whole document, with the schemas of documents.py."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(
                title=app.title, version=app.version, description=app.description, routes=app.routes, tags=app.openapi_tags
            )
            _, components = msgspec.json.schema_components(documents.ANSWERS, ref_template=_REF)
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            schemas.update(components)
            for name in ("HTTPValidationError", "ValidationError"):  # FastAPI's own; these are problems here
                schemas.pop(name, None)
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
