"""Docstrings begin with a sentence: a subject or a verb, not a fragment such as "What ..." or "Whether ...".

A reader who meets a name wants to know what it does or holds. "Returns the first sequence that is missing" says that;
"What is missing" leaves the verb to him. That rule looks at the first word only; tests are read like the product.
The docstrings and messages of the product, of chaos/, tools/ and bench/ use the verbs of the field, and not the words in
INSTEAD. So does the prose of README.md, CHANGELOG.md and docs/, in lines of at most WIDTH characters. There, code and tables
may be as wide as they must be, and the address of a link does not count. Code in backticks may hold any word, since it names
something.
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
SPOKEN = PRODUCT | {"chaos", "tools", "bench"}
INSTEAD = {
    "tell": "report, show, say", "tells": "reports, shows, says", "told": "reported, shown, known", "mend": "repair",
    "mends": "repairs", "mended": "repaired", "go on": "continue", "goes on": "continues", "went on": "continued",
    "of which": "whose, with", "of whom": "whose, with",
}
ITSELF = Path("tools/prose_check.py")
WIDTH = 128
_ANY = "|".join(word.replace(" ", r"\s+") for word in sorted(INSTEAD, key=len, reverse=True))
_WORDS = re.compile(rf"\b({_ANY})\b", re.IGNORECASE)
_FENCED = re.compile(r"^ *```.*?^ *```[^\n]*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`]*`")
_ADDRESS = re.compile(r"\]\([^)\s]*\)")


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found[0])


def riddles(name: str, source: str) -> Iterator[str]:
    """Yields `file:line word: what to write instead` for each text of `source` with a word of INSTEAD. Raises SyntaxError."""
    for node in ast.walk(ast.parse(source, name)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            for found in _WORDS.finditer(_CODE.sub("", node.value)):
                word = " ".join(found[0].split()).lower()
                yield f"{name}:{node.lineno} {word!r}: write {INSTEAD[word]}"


def prose_riddles(name: str, text: str) -> Iterator[str]:
    """Yields `file:line word: what to write instead` for each word of INSTEAD in `text` (Markdown), also across two lines."""
    prose = _CODE.sub(_blank, _FENCED.sub(_blank, text))
    for found in _WORDS.finditer(prose):
        word = " ".join(found[0].split()).lower()
        line = prose.count("\n", 0, found.start()) + 1
        yield f"{name}:{line} {word!r}: write {INSTEAD[word]}"


def wide_lines(name: str, text: str) -> Iterator[str]:
    """Yields `file:line length` for each line of prose in `text` (Markdown) that is longer than WIDTH."""
    for number, line in enumerate(_FENCED.sub(_blank, text).splitlines(), start=1):
        shown = _ADDRESS.sub("]()", line.rstrip())
        if len(shown) > WIDTH and not shown.lstrip().startswith("|"):
            yield f"{name}:{number} {len(shown)} characters: break the line at {WIDTH}"


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
        if path.parts[0] in SPOKEN and path != ITSELF:
            found += riddles(str(path), source)
    for path in repository_files(root, ".md"):
        if path.parts[0] == "docs" or str(path) in ("README.md", "CHANGELOG.md"):
            text = (root / path).read_text(encoding="utf-8")
            found += [*prose_riddles(str(path), text), *wide_lines(str(path), text)]
    for line in found:
        print(f"  {line}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
