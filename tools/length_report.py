"""Rooms stay small: files of about 400 lines, functions of about 70, folders of at most 15 modules.

Above the aim a file or function is printed; above the bound the gate fails. The room between (a quarter) is for the few
that one idea fills: splitting them would cost the reader more than their length does. A function is measured from its
`def` line to its last line, docstring included, decorators not. A folder has no room between: its modules are counted
without `__init__.py` and without those of its subfolders, and the sixteenth asks for a subfolder with a name.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.sources import ROOT, repository_files

FILE_LINES_AIM, FILE_LINES_MAX = 400, 500
FUNCTION_LINES_AIM, FUNCTION_LINES_MAX = 70, 88
FOLDER_MODULES_MAX = 15


@dataclass(frozen=True, slots=True)
class Offender:
    """Something longer than its aim. `fails` when it is above the bound too."""

    where: str
    lines: int
    aim: int
    bound: int

    @property
    def fails(self) -> bool:
        return self.lines > self.bound

    def __str__(self) -> str:
        verdict = f"above the bound of {self.bound}" if self.fails else f"above the aim of {self.aim}"
        return f"{self.where}: {self.lines} lines, {verdict}"


def offenders(name: str, source: str) -> Iterator[Offender]:
    """Yields what is too long in the Python text `source`. Raises SyntaxError when it does not parse."""
    lines = len(source.splitlines())
    if lines > FILE_LINES_AIM:
        yield Offender(name, lines, FILE_LINES_AIM, FILE_LINES_MAX)
    for node in ast.walk(ast.parse(source, name)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES_AIM:
                yield Offender(f"{name}:{node.lineno} {node.name}", length, FUNCTION_LINES_AIM, FUNCTION_LINES_MAX)


def crowded(paths: Iterable[Path]) -> dict[str, int]:
    """Returns each folder with more than FOLDER_MODULES_MAX modules, and their number."""
    modules = Counter(str(path.parent) for path in paths if path.name != "__init__.py")
    return {folder: count for folder, count in sorted(modules.items()) if count > FOLDER_MODULES_MAX}


def main(root: Path = ROOT) -> int:
    paths = repository_files(root, ".py")
    found = [
        offender
        for path in paths
        for offender in offenders(str(path), (root / path).read_text(encoding="utf-8"))
    ]
    for offender in sorted(found, key=lambda offender: -offender.lines):
        print(f"  {offender}")
    full = crowded(paths)
    for folder, count in full.items():
        print(f"  {folder}/: {count} modules, above the bound of {FOLDER_MODULES_MAX}")
    return int(bool(full) or any(offender.fails for offender in found))


if __name__ == "__main__":
    sys.exit(main())
