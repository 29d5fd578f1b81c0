"""Makes pages of templates: one environment for the process, and the headers that every page has.

What always holds: every value is escaped, and its control characters and marks of direction are shown as what they are, so that
a name can be anything; a page fetches scripts, styles and pictures from this site alone, and runs nothing that stands in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from hashlib import blake2b
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from gateway.ui import words
from twinlog.cli.terminal_text import plain_json

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
SECURITY = [
    (b"content-security-policy", POLICY.encode()), (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"), (b"cross-origin-opener-policy", b"same-origin"), (b"x-frame-options", b"DENY"),
]
PAGE_HEADERS = [(b"content-type", b"text/html; charset=utf-8"), (b"cache-control", b"no-store"), *SECURITY]
ASSETS = {
    "page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml",
}


def shown(value: Any) -> Any:
    """Returns what a template puts out of a value."""
    if isinstance(value, Markup):
        return value
    if value is None:
        return ""
    return plain_json(value) if isinstance(value, str) else value


@cache
def environment() -> Environment:
    made = Environment(
        loader=PackageLoader("gateway.ui"), autoescape=True, undefined=StrictUndefined, finalize=shown, trim_blocks=True,
        lstrip_blocks=True, auto_reload=False,
    )
    for name in ("number", "rate", "size", "duration", "latency", "age", "moment", "parts"):
        made.filters[name] = getattr(words, name)
    made.globals["asset"] = asset_path
    macros = made.get_template("parts.html").module
    made.globals.update({name: value for name, value in vars(macros).items() if not name.startswith("_")})
    return made


def render(name: str, values: Mapping[str, Any]) -> str:
    return environment().get_template(name).render(values)


def regions(name: str, values: Mapping[str, Any]) -> dict[str, str]:
    """Returns each live part of a page by its name: the blocks of its template that begin with `live_`."""
    template = environment().get_template(name)
    context = template.new_context(dict(values))
    return {
        block.removeprefix("live_"): "".join(draw(context))
        for block, draw in template.blocks.items() if block.startswith("live_")
    }


@cache
def asset(name: str) -> bytes:
    """The content of a file that the pages use. Raises KeyError for any other name."""
    if name not in ASSETS:
        raise KeyError(name)
    return (files("gateway.ui") / "static" / name).read_bytes()


@cache
def asset_path(name: str) -> str:
    """Its address, which changes with its content, so that a browser may keep it for ever."""
    return f"/ui/static/{name}?v={blake2b(asset(name), digest_size=6).hexdigest()}"
