"""Docstrings begin with a sentence: a subject or a verb, not a fragment such as "What ..." or "Whether ...".

A reader who meets a name wants to know what it does or holds. "Returns the first sequence that is missing" says that;
"What is missing" leaves the verb to him. That rule looks at the first word only; tests are read like the product.
The product's docstrings and messages use the verbs of the field, and not the words in INSTEAD.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.sources import ROOT, repository_files

FRAGMENTS = frozenset((
    "Of", "What", "Whether", "How", "For", "Why", "Where", "When", "Who", "Whom", "Whose", "Which", "With", "Without",
))


PRODUCT = frozenset(("twinlog", "gateway", "storage", "remote_log", "switchover", "spark_jobs"))
INSTEAD = {
    "tell": "report, show, say", "tells": "reports, shows, says", "told": "reported, shown, known", "mend": "repair",
    "mends": "repairs", "mended": "repaired", "go on": "continue", "goes on": "continues", "went on": "continued",
    "of which": "whose, with", "of whom": "whose, with",
}
_WORDS = re.compile(rf"\b({'|'.join(sorted(INSTEAD, key=len, reverse=True))})\b")


def riddles(name: str, source: str) -> Iterator[str]:
    """Yields `file:line word: what to write instead` for each text of `source` with a word of INSTEAD. Raises SyntaxError."""
    for node in ast.walk(ast.parse(source, name)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for found in _WORDS.finditer(" ".join(node.value.split())):
                yield f"{name}:{node.lineno} {found[0]!r}: write {INSTEAD[found[0]]}"


def fragments(name: str, source: str) -> Iterator[str]:
    """Yields `file:line first sentence` for each docstring of `source` that begins with a fragment. Raises SyntaxError."""
    for node in ast.walk(ast.parse(source, name)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        text = ast.get_docstring(node)
        if text and text.split(maxsplit=1)[0].rstrip(",:") in FRAGMENTS:
            yield f"{name}:{node.body[0].lineno} {text.splitlines()[0]}"


def main(root: Path = ROOT) -> int:
    found: list[str] = []
    for path in repository_files(root, ".py"):
        source = (root / path).read_text(encoding="utf-8")
        found += fragments(str(path), source)
        if path.parts[0] in PRODUCT:
            found += riddles(str(path), source)
    for line in found:
        print(f"  {line}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
