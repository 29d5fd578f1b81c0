"""The OpenAPI document is complete: every path of the product, with bodies, answers, problems and examples."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from gateway.api.documents import TableBody, TableChange
from gateway.api.openapi import ANSWERS, BODIES
from gateway.api.problem_document import MEMBERS
from gateway.api.request import ARROW
from gateway.backup.routes import MESSAGES
from gateway.http.app import build_app
from gateway.service.documents import ActiveSite
from gateway.service.http_settings import HttpSettings
from storage.rows.schema import alter, parse_table
from tests.gateway.dict_service import DictService
from tests.gateway.documented import MSGPACK, Documented, faults
from tests.gateway.door_client import DoorClient
from tools.sources import ROOT
from twinlog import errors
from twinlog.errors import InvalidInput
from twinlog.problem_documents import classes_of

PATHS = {
    "/v1/tables": {"get", "post"},
    "/v1/tables/{table}": {"get", "patch", "delete"},
    "/v1/tables/{table}/figures": {"get"},
    "/v1/tables/{table}:restore": {"post"},
    "/v1/tables/{table}/rows": {"get"},
    "/v1/tables/{table}/scans/{page_token}": {"delete"},
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
    "/v1/trail": {"get"},
    "/v1/configuration:reload": {"post"},
    "/v1/configuration:log-level": {"post"},
    "/v1/barriers": {"get", "post"}, "/v1/barriers/{name}": {"get", "delete"},
    "/v1/backups/{target}:base": {"post"}, "/v1/backups/{target}:log": {"post"}, "/v1/backups/{target}": {"delete"},
    "/v1/backups/{target}:kept": {"post"}, "/v1/backups/{target}:complete": {"post"},
    "/v1/audits": {"get", "post"}, "/v1/audits/last": {"get"}, "/v1/audits/{audit}": {"get"},
    "/v1/audits/{audit}/report": {"put"}, "/v1/audits/{audit}/progress": {"put"},
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
        problems = {status: answer for status, answer in operation["responses"].items() if int(status) >= 400}
        assert {"422", "500"} <= set(problems), path
        for status, answer in problems.items():
            content = answer["content"]["application/problem+json"]
            assert content["example"]["type"].startswith("urn:twinlog:problem:"), (path, status)
            assert content["example"]["status"] == int(status)
        if method != "get" and path.startswith("/v1/tables") and operation["operationId"] != "endScan":  # it changes no table
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


def test_every_example_is_what_its_schema_says(document: dict[str, Any]) -> None:
    """Those of answers are strict: every member that is sent, and no other."""
    known, loose = Documented(document), document["components"]
    for path, method, operation in _operations(document):
        for status, answer in operation["responses"].items():
            for media, content in answer.get("content", {}).items():
                assert "example" in content or media in (MSGPACK, ARROW, MESSAGES), (path, method, status, media)
                if "example" in content and "schema" in content:
                    assert known.problems(content["schema"], content["example"]) == [], (path, method, status)
        for media, content in operation.get("requestBody", {}).get("content", {}).items():
            if media in ("application/json", "application/x-ndjson"):
                body = Draft202012Validator({**content["schema"], "components": loose})
                assert [found.message for found in body.iter_errors(content["example"])] == [], (path, method)


def test_operation_ids_read(document: dict[str, Any]) -> None:
    ids = [operation["operationId"] for _, _, operation in _operations(document)]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-z]+([A-Z][a-z]+)+", one) for one in ids), ids
    assert {"putRow", "getRow", "scanRows", "createTable", "startOperation"} <= set(ids)


def test_tags_are_described_and_a_server_is_named(document: dict[str, Any]) -> None:
    described = {tag["name"]: tag["description"] for tag in document["tags"]}
    used = {tag for _, _, operation in _operations(document) for tag in operation["tags"]}
    assert used == set(described)
    assert all(described.values())
    assert document["servers"]
    assert document["security"] == [{"token": []}, {}], "a token, where the site has identities"
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"


def test_every_parameter_says_what_it_is(document: dict[str, Any]) -> None:
    for path, method, operation in _operations(document):
        for parameter in operation.get("parameters", ()):
            assert parameter["description"], (path, method, parameter["name"])
            assert parameter["schema"], (path, method, parameter["name"])


def test_a_schema_of_an_answer_requires_what_is_always_sent(document: dict[str, Any]) -> None:
    schemas = document["components"]["schemas"]
    assert set(schemas["OperationDocument"]["required"]) == set(schemas["OperationDocument"]["properties"])
    assert set(schemas["ClusterDocument"]["required"]) == set(schemas["ClusterDocument"]["properties"])
    assert set(schemas["SiteFacts"]["required"]) == set(schemas["SiteFacts"]["properties"])
    assert set(schemas["Problem"]["required"]) == {"type", "title", "status", "detail"}


def test_every_fact_that_an_error_carries_is_a_member_of_problems() -> None:
    """An undeclared one would be left out of the answer. Start-up errors reach no door."""
    kinds = {kind.__name__ for kind in classes_of(errors.TwinlogError)} - {"ConfigError", "DataDirectoryError"}
    found: dict[str, str] = {}
    for room in ("storage", "remote_log", "switchover", "gateway"):
        for path in sorted((ROOT / room).rglob("*.py")):
            for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] in kinds:
                    found |= {word.arg: f"{path.name}:{call.lineno}" for word in call.keywords if word.arg is not None}
    assert {name: where for name, where in found.items() if name not in MEMBERS} == {}


@pytest.mark.parametrize(("change", "said"), [
    (lambda body: body.pop("version"), "'version' is a required property"),
    (lambda body: body.update(more=1), "'more' was unexpected"),
    (lambda body: body.update(mode="maybe"), "'maybe' is not one of"),
])
def test_an_answer_that_differs_from_its_schema_is_a_fault(
    document: dict[str, Any], change: Callable[[dict[str, Any]], Any], said: str
) -> None:
    known, body = Documented(document), {"version": "1", "receipt": "AQ", "mode": "sync"}
    put = ("PUT", "/v1/tables/t/rows/a,1", 200, "application/json")
    assert known.fault(*put, json.dumps(body).encode()) is None
    change(body)
    assert said in str(known.fault(*put, json.dumps(body).encode()))


def test_an_answer_that_is_not_documented_is_a_fault(document: dict[str, Any]) -> None:
    known = Documented(document)
    assert "status is not documented" in str(known.fault("GET", "/v1/cluster", 418, "application/json", b"{}"))
    assert "content type 'text/html'" in str(known.fault("GET", "/v1/cluster", 200, "text/html", b""))
    assert "no path" in str(known.fault("GET", "/v1/other", 200, "application/json", b"{}"))
    assert "a body" in str(known.fault("DELETE", "/v1/tables/t", 204, "", b"{}"))
    problem = {"type": "urn:twinlog:problem:not-found", "title": "Not found", "status": 404, "detail": "no", "other": 1}
    faulty = known.fault("GET", "/v1/tables/t", 404, "application/problem+json", json.dumps(problem).encode())
    assert "'other' was unexpected" in str(faulty)


async def test_a_door_that_answers_otherwise_is_noticed(plain: DoorClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain.service, "receipt", _no_receipt)
    assert (await plain.http.get("/v1/receipts/AQ")).status_code == 200
    noticed = [*faults]
    faults.clear()
    assert any("'outcome' is a required property" in fault for fault in noticed)


async def _no_receipt(receipt: str) -> Any:
    return ActiveSite("a", "http://a", 1)


def test_the_page_names_every_path_and_no_other(document: dict[str, Any]) -> None:
    """docs/api.md: a path stands on it as it is in the document."""
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([A-Z]+) (/[^` ]+)` \| `(\w+)` \| (.+) \|$", page, flags=re.MULTILINE)
    assert sorted(rows) == sorted(
        (method.upper(), path, operation["operationId"], operation["summary"])
        for path, method, operation in _operations(document)
    )
    for text in re.findall(r"(?:http://127\.0\.0\.1:8401|`|[A-Z] )(/(?:v1|health|internal)[^\s`'?]*)", page):
        assert any(pattern.fullmatch(text) for pattern in _patterns(document)), text


def _patterns(document: dict[str, Any]) -> list[re.Pattern[str]]:
    return [re.compile(re.sub(r"\{\w+\}", "[^/]+", path)) for path in document["paths"]]


def test_every_body_has_a_schema_and_an_example(document: dict[str, Any]) -> None:
    for path, method, operation in _operations(document):
        bare = path.endswith((":abort", ":resume", ":restore", ":reload", ":base"))
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
    assert put == {"table", "key", "Idempotency-Key", "Twinlog-Deadline-S", "If-Match", "If-None-Match", "versions"}
    get = {parameter["name"] for parameter in row["get"]["parameters"]}
    assert get == {"table", "key", "columns", "as_of", "stale", "versions", "int64", "Accept", "If-Match", "If-None-Match"}


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


def test_no_schema_is_that_of_a_body_and_otherwise_of_an_answer() -> None:
    """An answer also has the members with a default, so that one with such a member cannot be the schema of both."""
    described = [msgspec.json.schema_components(kinds)[1] for kinds in (BODIES, ANSWERS)]
    shared = described[0].keys() & described[1].keys()
    members = {name: described[0][name].get("properties", {}).values() for name in shared}
    assert {name for name, of in members.items() if any("default" in member for member in of)} == set()


def test_the_bodies_of_tables_have_the_members_that_a_site_takes() -> None:
    """storage/rows/schema.py reads these bodies itself, to name every fault at once."""
    table = parse_table({"name": "t", "columns": [{"name": "k", "type": "string"}], "primary_key": ["k"]})
    for kind, read in ((TableBody, parse_table), (TableChange, partial(alter, table))):
        with pytest.raises(InvalidInput) as raised:
            read(dict.fromkeys((*kind.__struct_fields__, "strange")))
        unknown = [one for one in raised.value.fields["faults"] if "is not known" in one["problem"]]
        known = unknown[0]["problem"].partition("known are ")[2].split(", ")
        assert [one["where"].rpartition(".")[2] for one in unknown] == ["strange"]
        assert set(known) == set(kind.__struct_fields__)
