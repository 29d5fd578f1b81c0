"""Docstrings begin with a sentence: a subject or a verb, not a fragment such as "What ..." or "Whether ...".

A reader who meets a name wants to know what it does or holds. "Returns the first sequence that is missing" says that;
"What is missing" leaves the verb to him. The rule looks at the first word only; tests are read like the product.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.sources import ROOT, repository_files

FRAGMENTS = frozenset((
    "Of", "What", "Whether", "How", "For", "Why", "Where", "When", "Who", "Whom", "Whose", "Which", "With", "Without",
))


def fragments(name: str, source: str) -> Iterator[str]:
    """Yields `file:line first sentence` for each docstring of `source` that begins with a fragment. Raises SyntaxError."""
    for node in ast.walk(ast.parse(source, name)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        text = ast.get_docstring(node)
        if text and text.split(maxsplit=1)[0].rstrip(",:") in FRAGMENTS:
            yield f"{name}:{node.body[0].lineno} {text.splitlines()[0]}"


def main(root: Path = ROOT) -> int:
    found = [
        line
        for path in repository_files(root, ".py")
        for line in fragments(str(path), (root / path).read_text(encoding="utf-8"))
    ]
    for line in found:
        print(f"  {line}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
