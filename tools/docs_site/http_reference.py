"""The reference of the HTTP API, made from the OpenAPI document that every site serves at /openapi.json.

What always holds: the pages are functions of the document alone; they have every path, every parameter and every schema of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gateway.http.app import openapi_document

Json = Mapping[str, Any]
_SCHEMAS = "http-schemas.md"
_REF = "#/components/schemas/"
_OF_MANY = ("401", "403", "405", "406", "429", "503")  # nearly every operation has them; the page says so once
_INTRODUCTION = f"""# HTTP API

Every path that clients and operators reach at a site, made from the document that a site serves at `/openapi.json`
([a copy](openapi.json)). [Data API](../api.md) explains it with examples that run, and [the bodies]({_SCHEMAS}) have a page of
their own. An answer from 400 up is a problem of RFC 9457: [errors](errors.md). Nearly every path may also answer
{", ".join(_OF_MANY)}, which the lists below leave out.
"""


def document() -> dict[str, Any]:
    """Returns the OpenAPI document."""
    return openapi_document()


def page(described: Json) -> str:
    """Returns the page of all paths, by their tags."""
    lines = [_INTRODUCTION]
    for tag in described["tags"]:
        of_tag = [
            (method.upper(), path, operation) for path, methods in described["paths"].items()
            for method, operation in methods.items() if tag["name"] in operation["tags"]
        ]
        if of_tag:
            lines.append(f"## {tag['name'].capitalize()}\n\n{tag['description']}\n")
        for method, path, operation in of_tag:
            lines += _operation(method, path, operation)
    return "\n".join(lines)


def schemas_page(described: Json) -> str:
    """Returns the page of all bodies."""
    lines = [
        "# Bodies of the HTTP API\n", "Bodies of requests and answers, in the order of the alphabet. They are made from the",
        "document that a site serves at `/openapi.json`; [the paths](http.md) use them.\n",
    ]
    for name, schema in sorted(described["components"]["schemas"].items()):
        lines.append(f"## {name}\n\n{schema.get('description', '')}\n")
        needed = schema.get("required", ())
        if rows := [_member(one, member, one in needed) for one, member in schema.get("properties", {}).items()]:
            lines += ["| member | type | what |", "|---|---|---|", *rows, ""]
        else:
            lines.append(f"{_type(schema)}\n")
    return "\n".join(lines)


def _operation(method: str, path: str, operation: Json) -> Iterator[str]:
    yield f"### {method} {path.replace('_', '&#95;')} {{ #{operation['operationId']} }}\n"
    yield f"{operation['summary']}. {operation.get('description', '')}".strip() + f" Operation `{operation['operationId']}`.\n"
    if parameters := operation.get("parameters"):
        yield "| parameter | in | type | what |\n|---|---|---|---|"
        for one in parameters:
            mark = " (required)" if one.get("required") else ""
            yield f"| `{one['name']}`{mark} | {one['in']} | {_type(one['schema'])} | {_cell(one.get('description', ''))} |"
        yield ""
    if body := operation.get("requestBody"):
        yield "**Body.** " + _content(body["content"]) + "\n"
        yield from _example(body["content"])
    yield "| answer | body | when |\n|---|---|---|"
    for status, answer in operation["responses"].items():
        if status < "400":
            yield f"| {status} | {_content(answer.get('content', {}))} | {_cell(answer['description'])} |"
    problems = [status for status in operation["responses"] if status >= "400" and status not in _OF_MANY]
    yield f"\n[Problems](errors.md): {', '.join(problems)}.\n" if problems else ""
    for status, answer in operation["responses"].items():
        if status < "300":
            yield from _example(answer.get("content", {}))


def _content(content: Json) -> str:
    """Returns the schemas of a body, each with its content types."""
    types: dict[str, list[str]] = {}
    for kind, one in content.items():
        types.setdefault(_type(one.get("schema", {})), []).append(f"`{kind}`")
    return "; ".join(f"{schema} as {', '.join(kinds)}" if schema else ", ".join(kinds) for schema, kinds in types.items())


def _example(content: Json) -> Iterator[str]:
    example = content.get("application/json", {}).get("example")
    if example is not None:
        yield f"```json\n{json.dumps(example, indent=2)}\n```\n"


def _member(name: str, schema: Json, needed: bool) -> str:
    return f"| `{name}`{' (required)' if needed else ''} | {_type(schema)} | {_cell(schema.get('description', ''))} |"


def _type(schema: Json) -> str:
    """Returns the type of a value with its bounds; a schema that has a name is a link to it."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_REF)
        return f"[{name}]({_SCHEMAS}#{name.lower()})"
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(map(_type, choices)))
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(one)}`" for one in schema["enum"])
    if "prefixItems" in schema:
        return f"list of {', then '.join(map(_type, schema['prefixItems']))}"
    if "items" in schema:
        return f"list of {_type(schema['items'])}"
    kind = schema.get("type", "")
    if isinstance(schema.get("additionalProperties"), dict):
        kind = f"object of {_type(schema['additionalProperties']) or 'any value'}"
    bounds = [f"{word} {schema[name]}" for name, word in (
        ("minimum", "≥"), ("exclusiveMinimum", ">"), ("maximum", "≤"), ("minLength", "length ≥"), ("maxLength", "length ≤"),
    ) if name in schema]
    default = [f"default `{json.dumps(schema['default'])}`"] if schema.get("default") not in (None, "") else []
    return ", ".join([kind, *bounds, *default]).strip(", ")


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|").replace("<", "&lt;")
