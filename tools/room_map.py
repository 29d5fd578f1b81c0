"""Draws docs/rooms.md from the docstrings of the product, so that every module is on a page: `python -m tools.room_map`.

What always holds: the page is a function of the packages' and modules' first sentences alone; a test compares the file with it.
"""

from __future__ import annotations

import ast
import re
from itertools import groupby
from pathlib import Path

from tools.sources import ROOT, repository_files

PAGE = ROOT / "docs" / "rooms.md"
TOP = ("twinlog", "gateway", "switchover", "remote_log", "storage", "spark_jobs", "chaos")

_INTRODUCTION = """# Rooms

Every module, by package, with the first sentence of its docstring. Written by `python -m tools.room_map`; change the docstring,
never this page. How the packages work together is in [architecture](architecture.md); where to make a change is in
[where to change what](where-to-change.md).
"""


def first_sentence(source: str) -> str:
    """Returns the first sentence of a module's docstring, on one line; empty without a docstring. Raises SyntaxError."""
    text = ast.get_docstring(ast.parse(source)) or ""
    paragraph = " ".join(text.split("\n\n")[0].split())
    return re.split(r"(?<=[.:;])\s(?=[A-Z`])", paragraph)[0].rstrip(".:;")


def page(sources: dict[Path, str]) -> str:
    """Returns the page for modules by path, `__init__.py` included."""
    lines = [_INTRODUCTION]
    ordered = sorted(sources, key=lambda path: (TOP.index(path.parts[0]), path.parent.parts, path.name))
    for folder, paths in groupby(ordered, key=lambda path: path.parent):
        lines.append(f"## {folder}/\n")
        modules = []
        for path in paths:
            sentence = first_sentence(sources[path])
            if path.name == "__init__.py":
                lines.append(f"{sentence}.\n")
            else:
                modules.append(f"| `{path}` | {sentence.replace('|', chr(92) + '|')} |")
        if modules:
            lines.extend(["| module | what it is |", "|---|---|", *modules, ""])
    return "\n".join(lines)


def product() -> dict[Path, str]:
    return {
        path: (ROOT / path).read_text(encoding="utf-8") for path in repository_files(ROOT, ".py") if path.parts[0] in TOP
    }


def main() -> None:
    PAGE.write_text(page(product()), encoding="utf-8")


if __name__ == "__main__":
    main()
