"""The markup that the page is made of: its style, for light and dark, wide and narrow; and tables.

What always holds: everything that comes from a run is escaped; a table that is wider than the screen scrolls by itself, and the
page does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

STYLE = """
:root { color-scheme: light dark; --page: #ffffff; --ink: #1c1d20; --soft: #5f6368; --line: #dfe1e5; --box: #f4f5f6;
--good: #17703a; --bad: #b3261e; --band: 0.6 }
@media (prefers-color-scheme: dark) { :root { --page: #16181c; --ink: #e4e6ea; --soft: #9aa0a8; --line: #33373e; --box: #202329;
--good: #6fcf97; --bad: #ff8a80; --band: 0.32 } }
* { box-sizing: border-box }
body { font: 14px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 1180px; padding: 1.5rem 1rem 4rem; color: var(--ink);
background: var(--page) }
h1 { font-size: 1.5rem; margin: 0 0 0.2rem } h2 { font-size: 1.1rem; margin: 2.2rem 0 0.5rem } p { margin: 0.4rem 0 }
.wide { overflow-x: auto; max-width: 100% } .wide > svg { width: 100%; min-width: 860px; height: auto; display: block }
table { border-collapse: collapse; width: 100% } td, th { text-align: left; padding: 0.3rem 0.6rem; vertical-align: top;
border-bottom: 1px solid var(--line); font-size: 13px } th { color: var(--soft); font-weight: 600 }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap } td.w { min-width: 18rem }
.facts td:first-child { color: var(--soft); width: 18rem } .facts td { overflow-wrap: anywhere }
pre, code { font: 12px/1.5 ui-monospace, monospace } pre { background: var(--box); padding: 0.7rem; overflow-x: auto }
code { background: var(--box); padding: 0.1rem 0.3rem; overflow-wrap: anywhere } a { color: inherit }
.verdict { font-size: 1.1rem; font-weight: 600 } .held { color: var(--good) } .violated { color: var(--bad); font-weight: 700 }
.unchecked, .dim { color: var(--soft) } .broken { border-left: 3px solid var(--bad); padding-left: 0.8rem; margin: 1.2rem 0 }
svg [id^=band] { opacity: var(--band) } summary { cursor: pointer; color: var(--soft) }
@media (max-width: 600px) { body { padding: 1rem 0.7rem 3rem } .facts td:first-child { width: 8.5rem } }
"""


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    """A head `n:...` is of numbers, `w:...` of sentences; a cell `!CLASS:...` has that class."""
    classes = [head[0] if head[:2] in ("n:", "w:") else "" for head in heads]
    names = [escape(head[2:] if head[:2] in ("n:", "w:") else head) for head in heads]
    top = "".join(f"<th{_class(each)}>{name}" for each, name in zip(classes, names, strict=True))
    body = "\n".join(
        "<tr>" + "".join(_cell(cell, classes[at] if heads else "") for at, cell in enumerate(row)) for row in rows
    )
    return f"<div class=wide><table{_class(kind)}>{f'<tr>{top}' if heads else ''}\n{body}</table></div>"


def _class(name: str) -> str:
    return f" class={name}" if name else ""


def _cell(cell: str, kind: str) -> str:
    if cell.startswith("!"):
        kind, _, cell = cell[1:].partition(":")
    return f"<td{_class(kind)}>{escape(cell)}"
