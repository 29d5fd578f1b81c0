"""No text shows a foreign error bare: its text may be empty, or be the name of a class of Python.

What always holds: where a handler or a parameter stands for an error that is not of our own tree (twinlog/errors.py), texts
and log lines show it as words(error), reason(error) or named(error), which are never empty, and in plain words for an error of
the network; neither its repr nor the name of its type. Errors of our own always have a text.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.sources import ROOT, repository_files

HERE = "twinlog/errors.py"  # where they are made
PRODUCT = ("twinlog", "gateway", "switchover", "remote_log", "storage", "spark_jobs")
OWN_ROOT = "TwinlogError"
_SHOWING = {"str", "format", "print", "debug", "info", "warning", "error", "exception", "critical", "echo"}


def own_errors(sources: dict[str, str]) -> set[str]:
    """Returns the names of all classes of our own tree."""
    bases = {
        node.name: {ast.unparse(base).rpartition(".")[2] for base in node.bases}
        for source in sources.values() for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)
    }
    own = {OWN_ROOT}
    while more := {name for name, above in bases.items() if above & own} - own:
        own |= more
    return own


def breaches(path: str, source: str, own: set[str]) -> Iterator[str]:
    """Yields `file:line: what` for each text of `source` that shows a foreign error bare."""
    for node in ast.walk(ast.parse(source)):
        for name, type_, body in _errors(node):
            foreign = sorted(_names(type_) - own)
            if foreign:
                for line in sorted({found.lineno for statement in body for found in _shown_bare(statement, name)}):
                    may_be = ", ".join(foreign)
                    write = f"write words({name}), reason({name}) or named({name})"
                    yield f"{path}:{line}: shows {name} bare, which may be {may_be}: {write}"


def _errors(node: ast.AST) -> Iterator[tuple[str, ast.expr, list[ast.stmt]]]:
    """Yields name, type and body of each error that `node` brings in."""
    if isinstance(node, ast.ExceptHandler) and node.name is not None and node.type is not None:
        yield node.name, node.type, node.body
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            if argument.annotation is not None and any(
                name.endswith(("Error", "Exception")) for name in _names(argument.annotation)
            ):
                yield argument.arg, argument.annotation, node.body


def _names(type_: ast.expr) -> set[str]:
    """Returns the last parts of the names of the types that `type_` lists."""
    if isinstance(type_, ast.Tuple):
        return {name for item in type_.elts for name in _names(item)}
    if isinstance(type_, ast.BinOp):
        return _names(type_.left) | _names(type_.right)
    return {ast.unparse(type_).rpartition(".")[2]} - {"None"}


def _shown_bare(node: ast.AST, name: str) -> Iterator[ast.expr]:
    """Yields where a text or a log line below `node` shows `name` itself; not where an inner handler has that name."""
    if isinstance(node, ast.ExceptHandler) and node.name == name:
        return
    shown: list[ast.expr] = []
    if isinstance(node, ast.FormattedValue):
        shown = [node.value]
    elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in _SHOWING:
        shown = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg != "exc_info")]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        shown = node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
    shown = [part for one in shown for part in (one.values if isinstance(one, ast.BoolOp) else [one])]
    bare = (name, f"{name}.strerror", f"repr({name})", f"type({name}).__name__", f"{name}.__class__.__name__")
    yield from (one for one in shown if ast.unparse(one) in bare)
    for child in ast.iter_child_nodes(node):
        yield from _shown_bare(child, name)


def main(root: Path = ROOT) -> int:
    paths = [path for path in repository_files(root, ".py") if path.parts[0] in PRODUCT]
    sources = {str(path): (root / path).read_text(encoding="utf-8") for path in paths}
    own = own_errors(sources)
    found = [breach for path, source in sources.items() if path != HERE for breach in breaches(path, source, own)]
    for breach in found:
        print(f"  {breach}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
