"""The OpenAPI document is complete: every path of the product, with bodies, answers, problems and examples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gateway.http.app import build_app
from gateway.service.http_settings import HttpSettings
from tests.gateway.dict_service import DictService
from tests.gateway.door_client import DoorClient

PATHS = {
    "/v1/tables": {"get", "post"},
    "/v1/tables/{table}": {"get", "patch", "delete"},
    "/v1/tables/{table}/rows": {"get"},
    "/v1/tables/{table}/rows/{key}": {"get", "put", "patch", "delete"},
    "/v1/tables/{table}/rows/{key}:check": {"post"},
    "/v1/tables/{table}/rows:mutate": {"post"},
    "/v1/receipts/{receipt}": {"get"},
    "/v1/cluster": {"get"},
    "/v1/cluster/events": {"get"},
    "/v1/checks": {"get"}, "/v1/view": {"get"},
    "/v1/operations": {"get", "post"},
    "/v1/operations/{operation_id}": {"get"},
    "/v1/operations/{operation_id}/events": {"get"},
    "/v1/operations/{operation_id}:abort": {"post"},
    "/v1/operations/{operation_id}:resume": {"post"},
    "/v1/barriers": {"get", "post"}, "/v1/barriers/{name}": {"get", "delete"},
    "/v1/audits": {"post"}, "/v1/audits/last": {"get"},
    "/health/live": {"get"}, "/health/ready": {"get"}, "/health/primary": {"get"}, "/health/standby": {"get"},
    "/metrics": {"get"},
    "/internal/v1/peer/{method}": {"post"},
}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return build_app(DictService().ports, HttpSettings(), now_s=lambda: 0.0, new_id=str).plain.openapi()


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for child in node.values():
            yield from _references(child)
    elif isinstance(node, list):
        for child in node:
            yield from _references(child)


def test_every_path_of_the_product_and_no_other(document: dict[str, Any]) -> None:
    assert {path: set(methods) for path, methods in document["paths"].items()} == PATHS


def test_every_reference_has_its_schema(document: dict[str, Any]) -> None:
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    used = set(_references(document))
    assert used <= known
    assert "#/components/schemas/HTTPValidationError" not in known


def test_every_operation_says_what_it_is_and_how_it_fails(document: dict[str, Any]) -> None:
    for path, method, operation in _operations(document):
        assert operation["summary"], path
        assert operation["tags"], path
        if path == "/metrics":
            continue
        problems = {status: answer for status, answer in operation["responses"].items() if int(status) >= 400}
        assert {"422", "500"} <= set(problems), path
        for status, answer in problems.items():
            content = answer["content"]["application/problem+json"]
            assert content["example"]["type"].startswith("urn:twinlog:problem:"), (path, status)
            assert content["example"]["status"] == int(status)
        if method != "get" and path.startswith("/v1/tables"):
            assert {"421", "429", "503", "504"} <= set(problems), path


def test_every_good_answer_has_a_schema_and_an_example(document: dict[str, Any]) -> None:
    for path, method, operation in _operations(document):
        for status, answer in operation["responses"].items():
            if int(status) in (204, 304) or int(status) >= 400:
                continue
            for media, content in answer["content"].items():
                assert content.get("schema") or content["itemSchema"], (path, method, media)
            json_content = answer["content"].get("application/json")
            if json_content is not None:
                assert json_content["example"], (path, method)


def test_every_body_has_a_schema_and_an_example(document: dict[str, Any]) -> None:
    for path, method, operation in _operations(document):
        bare = path.endswith((":abort", ":resume"))
        assert ("requestBody" in operation) == (method in ("post", "put", "patch") and not bare), (path, method)
        if "requestBody" in operation and not path.startswith("/internal"):
            content = operation["requestBody"]["content"]["application/json"]
            assert content["schema"], path
            assert content["example"], path


def test_the_four_forms_of_a_batch(document: dict[str, Any]) -> None:
    content = document["paths"]["/v1/tables/{table}/rows:mutate"]["post"]["requestBody"]["content"]
    assert set(content) == {
        "application/json", "application/x-msgpack", "application/x-ndjson", "application/vnd.apache.arrow.stream",
    }


def test_row_headers_and_parameters_are_there(document: dict[str, Any]) -> None:
    row = document["paths"]["/v1/tables/{table}/rows/{key}"]
    put = {parameter["name"] for parameter in row["put"]["parameters"]}
    assert put == {"table", "key", "Idempotency-Key", "Twinlog-Deadline-S", "If-Match", "If-None-Match"}
    get = {parameter["name"] for parameter in row["get"]["parameters"]}
    assert get == {"table", "key", "columns", "as_of", "stale", "If-None-Match"}


async def test_examples_are_taken_as_they_stand(document: dict[str, Any], plain: DoorClient) -> None:
    """The table, row and batch of the examples fit each other: they are sent, in the order of a first encounter."""
    await plain.http.delete("/v1/tables/flights")
    paths = document["paths"]

    def example(path: str, method: str) -> Any:
        return paths[path][method]["requestBody"]["content"]["application/json"]["example"]

    rows = "/v1/tables/{table}/rows"
    for method, path, url in (
        ("post", "/v1/tables", "/v1/tables"),
        ("put", rows + "/{key}", "/v1/tables/flights/rows/UA,1545"),
        ("patch", rows + "/{key}", "/v1/tables/flights/rows/UA,1545"),
        ("post", rows + ":mutate", "/v1/tables/flights/rows:mutate"),
        ("post", rows + "/{key}:check", "/v1/tables/flights/rows/UA,1545:check"),
        ("patch", "/v1/tables/{table}", "/v1/tables/flights"),
        ("post", "/v1/operations", "/v1/operations"),
    ):
        answer = await plain.http.request(method, url, json=example(path, method))
        assert answer.status_code < 300, (path, answer.text)


async def test_it_is_served(plain: DoorClient, document: dict[str, Any]) -> None:
    assert (await plain.http.get("/openapi.json")).json() == document
