"""Compares every answer of the doors under test with the OpenAPI document: status, content type, body.

What always holds: an object may have no member that its schema does not name, unless the schema names none at all (rows,
options); JSON has no integer that JavaScript cannot hold, except in rows and defaults, and where a request asks for numbers.
What differs is kept in `faults`, and the test that saw it fails (tests/conftest.py).
"""

from __future__ import annotations

import functools
import json
import re
from typing import Any

import httpx
import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
from jsonschema import Draft202012Validator
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.http.app import build_app
from gateway.service.http_settings import HttpSettings
from tests.gateway.dict_service import DictService

Json = dict[str, Any]
JSON_TYPES = ("application/json", "application/problem+json")
MSGPACK, EVENTS = "application/x-msgpack", "text/event-stream"
PROBLEM = {"$ref": "#/components/schemas/Problem"}
OF_NO_PATH = (401, 403, 404, 405, 429)
faults: list[str] = []


@functools.cache
def document() -> Json:
    return build_app(DictService().ports, HttpSettings(), now_s=lambda: 0.0, new_id=str).plain.openapi()


class Documented:
    """The answers that `document` allows."""

    def __init__(self, document: Json) -> None:
        self._components = strict(document["components"])
        self._validators: dict[str, Draft202012Validator] = {}
        self._paths = [
            (re.compile(re.sub(r"\{(\w+)\}", lambda part: ".*" if part[1] == "key" else "[^/]+", path)), methods)
            for path, methods in sorted(document["paths"].items(), key=_specific_first)
        ]

    def problems(self, schema: Json, value: Any) -> list[str]:
        text = json.dumps(schema)
        if text not in self._validators:
            self._validators[text] = Draft202012Validator({**strict(schema), "components": self._components})
        validator = self._validators[text]
        found = validator.iter_errors(value)
        return [f"{'/'.join(map(str, one.absolute_path)) or 'the body'}: {one.message}" for one in found]

    def fault(self, method: str, path: str, status: int, content_type: str, body: bytes) -> str | None:
        """Returns the faults of this answer by the document; `body` is whole, or the next events of a stream."""
        media = content_type.partition(";")[0]
        path, _, query = path.partition("?")
        if (path in ("/openapi.json", "/docs", "/") and status == 200) or path == "/ui" or path.startswith("/ui/"):
            return None  # the document itself, and pages for people
        operations = next((methods for pattern, methods in self._paths if pattern.fullmatch(path)), {})
        if method == "OPTIONS" and status == 204:
            return _text(method, path, status, ["a body"] if body else [])
        operation = operations.get("get" if method == "HEAD" else method.lower())
        if operation is None and method == "HEAD":
            return _text(method, path, status, [] if status in OF_NO_PATH else [f"status {status} of no path"])
        if operation is None:
            known = status in OF_NO_PATH
            found = self.problems(PROBLEM, json.loads(body)) if known else [f"status {status} of no path"]
            return _text(method, path, status, found)
        answer = operation["responses"].get(str(status))
        if answer is None:
            return _text(method, path, status, ["this status is not documented"])
        if "content" not in answer:
            return _text(method, path, status, ["a body, where the document has none"] if body else [])
        content = answer["content"].get(media)
        if content is None:
            return _text(method, path, status, [f"content type {media!r} is not documented"])
        if method == "HEAD":
            return _text(method, path, status, ["a body"] if body else [])
        found = self._of_body(media, content, body)
        if media in JSON_TYPES and "versions=number" not in query:
            found += _inexact(json.loads(body))
        return _text(method, path, status, found)

    def _of_body(self, media: str, content: Json, body: bytes) -> list[str]:
        if media == EVENTS:
            data = content["itemSchema"]["properties"]["data"]["contentSchema"]
            lines = [line.removeprefix("data: ") for line in body.decode().splitlines() if line.startswith("data: ")]
            return [problem for line in lines for problem in self.problems(data, json.loads(line))]
        if media in JSON_TYPES:
            return self.problems(content["schema"], json.loads(body))
        if media == MSGPACK and "$ref" in content["schema"]:
            return self.problems(content["schema"], msgspec.msgpack.decode(body))
        return []


_OF_COLUMNS = ("row", "rows", "default")


def _inexact(value: Any) -> list[str]:
    """Names the integers that a double does not hold; those of rows and defaults are their columns' matter."""
    if isinstance(value, list):
        return [fault for child in value for fault in _inexact(child)]
    if isinstance(value, dict):
        return [fault for name, child in value.items() if name not in _OF_COLUMNS for fault in _inexact(child)]
    return [f"the integer {value} is another one in JavaScript"] if type(value) is int and abs(value) > 1 << 53 else []


def strict(node: Any) -> Any:
    """The schema with no other members than it names."""
    if isinstance(node, list):
        return [strict(child) for child in node]
    if not isinstance(node, dict):
        return node
    built = {name: strict(child) for name, child in node.items()}
    if isinstance(node.get("properties"), dict) and node.get("type") == "object":
        built.setdefault("additionalProperties", False)
    return built


def _specific_first(item: tuple[str, Json]) -> tuple[int, int]:
    path = item[0]
    return path.count("{"), -len(path)


def _text(method: str, path: str, status: int, found: list[str]) -> str | None:
    return f"{method} {path} -> {status}: {'; '.join(found)}" if found else None


@functools.cache
def documented() -> Documented:
    return Documented(document())


def note(method: str, path: str, status: int, content_type: str, body: bytes) -> None:
    found = documented().fault(method, path, status, content_type, body)
    if found is not None:
        faults.append(found)


def checked(app: ASGIApp) -> ASGIApp:
    """`app`, with each of its answers compared."""

    async def watched(scope: Scope, receive: Receive, send: Send) -> None:
        status, content_type, parts = 0, "", []

        async def sent(message: Message) -> None:
            nonlocal status, content_type
            if message["type"] == "http.response.start":
                status = message["status"]
                content_type = dict(message["headers"]).get(b"content-type", b"").decode()
            else:
                parts.append(message.get("body", b""))
                if content_type.startswith(EVENTS) or not message.get("more_body", False):
                    path = scope["raw_path"] + b"?" + scope["query_string"]
                    note(scope["method"], path.decode(), status, content_type, b"".join(parts))
                    parts.clear()
            await send(message)

        await app(scope, receive, sent)

    return watched


def opened(url: str = "", timeout_s: float = 30.0) -> httpx.Client:
    """A client that compares each answer which is no stream of lines or events."""
    return httpx.Client(base_url=url, trust_env=False, timeout=timeout_s, event_hooks={"response": [_read_hook]})


def _plain_body(response: httpx.Response, body: bytes) -> bytes:
    """The body as it is: httpx expands gzip, but zstd only where another package is."""
    if response.headers.get("content-encoding") != "zstd":
        return body
    return pa.CompressedInputStream(pa.BufferReader(body), "zstd").read()  # type: ignore[no-any-return]


def _read_hook(response: httpx.Response) -> None:
    content_type = response.headers.get("content-type", "")
    if content_type.partition(";")[0] in (*JSON_TYPES, MSGPACK, ""):
        body = _plain_body(response, response.read())
        note(response.request.method, _path(response), response.status_code, content_type, body)


async def async_read_hook(response: httpx.Response) -> None:
    """The same as an event hook of an asynchronous client."""
    content_type = response.headers.get("content-type", "")
    if content_type.partition(";")[0] in (*JSON_TYPES, MSGPACK, ""):
        body = _plain_body(response, await response.aread())
        note(response.request.method, _path(response), response.status_code, content_type, body)


def _path(response: httpx.Response) -> str:
    return response.request.url.raw_path.decode()

