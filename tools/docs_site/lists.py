"""Lists as MkDocs reads them: four columns for each level, and empty lines before a list and behind an item of several blocks.

The pages follow CommonMark, as a forge shows them. What always holds: `for_mkdocs` changes white space alone, so that a list,
and what stands inside an item, has the same structure on the site as on the forge; a test compares both for every page.
This module is pure.
"""

from __future__ import annotations

import re

from markdown_it import MarkdownIt

COLUMNS = 4  # of a level, in MkDocs' Markdown
_MARKER = re.compile(r" *(?:[-*+]|\d+[.)]) +")
_COMMONMARK = MarkdownIt("commonmark").enable("table")


def for_mkdocs(text: str) -> str:
    """Returns the page `text` with each list in the form that MkDocs' Markdown takes for the same list."""
    lines = text.split("\n")
    depth, offset = [0] * len(lines), [0] * len(lines)  # of each line: how many items hold it; where the innermost one begins
    items: set[int] = set()  # the lines with a marker
    apart: set[int] = set()  # the lines that want an empty one before them
    for token in _COMMONMARK.parse(text):
        if token.map is None:
            continue
        begin, end = token.map
        if token.type in ("bullet_list_open", "ordered_list_open") and not depth[begin]:
            apart.add(begin)
        if token.type == "list_item_open":
            marker = _MARKER.match(lines[begin], offset[begin])
            assert marker is not None, lines[begin]
            items.add(begin)
            depth[begin:end] = [depth[begin] + 1] * (end - begin)
            offset[begin:end] = [marker.end()] * (end - begin)
            if not all(line.strip() for line in lines[begin:end]):
                apart.add(end)
    written: list[str] = []
    for number, line in enumerate(lines):
        if number in apart and written and written[-1]:
            written.append("")
        written.append(_line(line, depth[number], offset[number], first=number in items))
    return "\n".join(written)


def _line(line: str, depth: int, offset: int, *, first: bool) -> str:
    """Returns a line of an item, moved to the columns of its level. `first`: it has the marker."""
    if not depth or not line.strip():
        return line.rstrip()
    if first:
        return f"{' ' * COLUMNS * (depth - 1)}{line[:offset].strip()} {line[offset:]}"
    indent = len(line) - len(line.lstrip(" "))
    return " " * COLUMNS * depth + line[min(indent, offset) :]
