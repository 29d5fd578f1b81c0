"""The pages for a person with a browser: `/` says which site this is, `/docs` shows every path from the OpenAPI document.

What always holds: a page needs nothing beside it: no script, nothing that is fetched, and its policy allows neither; every text
is escaped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from html import escape
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.requests import Request
from starlette.responses import Response

from gateway.api.api_context import ApiContext
from gateway.api.problems import Answer
from gateway.api.routes.common import context_of, to_response

_HEADERS = [
    (b"content-type", b"text/html; charset=utf-8"), (b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-cache"),
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; form-action 'none'"),
]
_STYLE = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;overflow-wrap:anywhere}
h2{margin-top:2.5rem}code,pre{font:14px/1.45 ui-monospace,monospace}
pre{overflow-x:auto;padding:.7rem;background:#8881;border-radius:.4rem}
details{border:1px solid #8884;border-radius:.4rem;margin:.5rem 0;padding:.4rem .8rem}summary{cursor:pointer}
summary b{display:inline-block;min-width:4.5rem}table{border-collapse:collapse;width:100%}
td,th{text-align:left;vertical-align:top;padding:.25rem .8rem .25rem 0;border-bottom:1px solid #8883}
"""
_LINKS = (
    ("/ui", "the pair on a page for operators: what is wrong, what to type, role changes"),
    ("/docs", "every path, with examples"), ("/openapi.json", "the same for programs, as an OpenAPI document"),
    ("/v1/cluster", "the pair as this site sees it"), ("/v1/tables", "the tables"), ("/v1/operations", "role changes"),
    ("/health/ready", "whether this site serves or follows"), ("/metrics", "figures for Prometheus"),
)


def router(app: FastAPI) -> APIRouter:
    """`app` has the document that `/docs` shows."""
    routes = APIRouter(include_in_schema=False, default_response_class=Response)

    @cache
    def reference() -> str:
        return _reference(app.openapi())

    @routes.get("/")
    async def home(request: Request) -> Response:
        return _page(_home(context_of(request)))

    @routes.get("/docs")
    async def docs() -> Response:
        return _page(reference())

    return routes


def _page(text: str) -> Response:
    return to_response(Answer(200, list(_HEADERS), text.encode()))


def _html(title: str, parts: Iterable[str]) -> str:
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body><main>\n"
        + "\n".join(parts) + "\n</main></body></html>\n"
    )


def _home(context: ApiContext) -> str:
    cluster, serving = context.service.cluster.document(), context.service.cluster.serving()
    can = [text for holds, text in (
        (serving.writes, "takes writes"), (serving.reads, "answers reads"), (serving.follows, "follows the active"),
    ) if holds]
    does = " and ".join(can) or f"does not serve now: {serving.why or 'it is ' + cluster.role}"
    active = cluster.active
    where = "" if active is None else f"<p>The active is site {escape(active.site)}: <code>{escape(active.url)}</code></p>"
    links = _rows((f'<a href="{path}"><code>{path}</code></a>', escape(text)) for path, text in _LINKS)
    return _html(f"twinlog: site {cluster.site} of {cluster.pair}", [
        f"<h1>twinlog: site {escape(cluster.site)} of {escape(cluster.pair)}</h1>",
        f"<p>Role <b>{escape(cluster.role)}</b>, epoch {cluster.epoch}, mode {escape(cluster.mode)}.",
        f"This site {escape(does)}.</p>", where, links,
        "<p>On the command line: <code>twinlog status</code> shows the pair, <code>twinlog advise</code> what to do.</p>",
    ])


# ---- the reference
def _reference(document: Mapping[str, Any]) -> str:
    parts = ["<h1>Every path of this site</h1>", f"<p>{escape(document['info']['description'])} "
             'For programs: <a href="/openapi.json">/openapi.json</a>. <a href="/">This site</a>.</p>']
    for tag in document["tags"]:
        parts.append(f"<h2>{escape(tag['name'])}</h2><p>{escape(tag['description'])}</p>")
        parts += [
            _operation(method.upper(), path, operation) for path, methods in document["paths"].items()
            for method, operation in methods.items() if tag["name"] in operation["tags"]
        ]
    schemas = document["components"]["schemas"]
    parts.append("<h2>Schemas</h2>")
    for name in sorted(map(escape, schemas)):
        parts.append(f'<details id="{name}"><summary>{name}</summary>{_json(schemas[name])}</details>')
    return _html("twinlog: every path", parts)


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    parameters = _rows(
        (f"<code>{escape(one['name'])}</code>", one["in"] + ", required" * one["required"], escape(one["description"]))
        for one in operation.get("parameters", ())
    )
    body = operation.get("requestBody", {}).get("content", {})
    answers = _rows(
        (escape(status), escape(answer["description"]), _contents(answer.get("content", {})))
        for status, answer in operation["responses"].items()
    )
    good: Mapping[str, Any] = next((answer for status, answer in operation["responses"].items() if status.startswith("2")), {})
    return (
        f"<details id=\"{escape(operation['operationId'])}\"><summary><b>{method}</b> <code>{escape(path)}</code> "
        f"{escape(operation['summary'])}</summary><p>{escape(operation.get('description', ''))}</p>"
        + (f"<h4>Parameters and headers</h4>{parameters}" if parameters else "")
        + (f"<h4>Body</h4><p>{_contents(body)}</p>{_first_example(body)}" if body else "")
        + f"<h4>Answers</h4>{answers}{_first_example(good.get('content', {}))}</details>"
    )


def _rows(rows: Iterable[tuple[str, ...]]) -> str:
    """Returns a table of cells that are HTML; nothing where there is no row."""
    shown = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table>{shown}</table>" if shown else ""


def _contents(content: Mapping[str, Any]) -> str:
    return "<br>".join(
        f"<code>{escape(media)}</code>{_schema_link(shown.get('schema', {}))}" for media, shown in content.items()
    )


def _schema_link(schema: Mapping[str, Any]) -> str:
    name = escape(str(schema.get("$ref", "")).rpartition("/")[2])
    return f' <a href="#{name}">{name}</a>' if name else ""


def _first_example(content: Mapping[str, Any]) -> str:
    example = next((shown["example"] for shown in content.values() if "example" in shown), None)
    if example is None:
        return ""
    return f"<pre>{escape(example)}</pre>" if isinstance(example, str) else _json(example)


def _json(value: Any) -> str:
    return f"<pre>{escape(json.dumps(value, indent=2, ensure_ascii=False))}</pre>"
