"""Tests neither skip nor wait for a fixed time, and measure memory in a process of its own.

What a run passes has run, what waits is waiting for a thing, and a worker does not crash beside a Java (tests/suite/traced.py).

What always holds: no file below tests/ skips a test or expects it to fail, but those that EXEMPT names. A sleep of the real
clock stands in a loop, as a poll or as the pace of a client; one that stands alone says on its line why only time can do it,
after `# by the clock:`. Sleeps of no time, and those below tests/chaos/simulate, where time is virtual, are free.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

from tools.sources import ROOT, repository_files

EXEMPT = {
    "tests/chaos/conftest.py": "a sandbox that forbids tracing",
    "tests/suite/test_needs.py": "it looks whether a need would skip",
}
TRACED = "tests/suite/traced.py"
VIRTUAL = ("tests/chaos/simulate/",)
REASON = "# by the clock: "
_SKIPS = {"pytest.skip", "pytest.importorskip", "pytest.xfail", "pytest.mark.skip", "pytest.mark.skipif", "pytest.mark.xfail"}
_SLEEPS = {"asyncio.sleep", "time.sleep"}


def breaches(path: str, source: str) -> Iterator[str]:
    """Yields `file:line: what` for each skip and each fixed sleep of `source`."""
    lines = source.splitlines()
    for node, repeated in _walk(ast.parse(source), False):
        named = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
        if isinstance(node, ast.Name) and node.id == "tracemalloc" and path != TRACED:
            yield f"{path}:{node.lineno}: traces memory where threads of a Java may crash it: use {TRACED}"
        if named in _SKIPS and path not in EXEMPT:
            yield f"{path}:{node.lineno}: {named} hides a test: let it fail and say what it needs (tests/needs.py)"
        if (
            isinstance(node, ast.Call) and ast.unparse(node.func) in _SLEEPS and not repeated and not path.startswith(VIRTUAL)
            and not _is_zero(node) and REASON not in lines[node.lineno - 1]
        ):
            yield (
                f"{path}:{node.lineno}: waits for a fixed time: wait for the thing, with a deadline (tests/processes.py), or"
                f" say why only time can do it, after `{REASON}`"
            )


def _walk(node: ast.AST, repeated: bool) -> Iterator[tuple[ast.expr, bool]]:
    """Yields each expression, and whether it stands in a loop of its function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield child, repeated
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _walk(child, False)
        else:
            yield from _walk(child, repeated or isinstance(child, ast.While | ast.For | ast.AsyncFor))


def _is_zero(call: ast.Call) -> bool:
    return bool(call.args) and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0


def main() -> int:
    found = [
        breach for path in repository_files(suffix=".py") if path.parts[0] == "tests"
        for breach in breaches(str(path), (ROOT / path).read_text())
    ]
    sys.stdout.writelines(f"{breach}\n" for breach in found)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
