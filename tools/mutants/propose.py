"""Proposes mutants of a file: comparisons, constants, conditions, dropped calls, swallowed errors, swapped statements.

What always holds: a proposal is a Mutant whose text stands where it says, and the same file gives the same proposals.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeGuard

from tools.mutants.mutant import Mutant, StaleMutant, mutated

COMPARED: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not", ast.IsNot: "is",
    ast.In: "not in", ast.NotIn: "in",
}
SIMPLE = (ast.Expr, ast.Assign, ast.AugAssign, ast.Delete)
SPOKEN = ("debug", "info", "warning", "error", "exception")  # methods of a log: nobody's safety depends on them
UNSAID = ("__repr__", "__str__", "describe")


@dataclass(frozen=True, slots=True)
class Edit:
    """The text from `begin` to `end` (offsets in the file) is replaced by `after`."""

    kind: str
    begin: int
    end: int
    after: str


class Source:
    """The text of a file with offsets of its nodes. Columns of ast count UTF-8 bytes, so the text is kept as bytes."""

    def __init__(self, text: str) -> None:
        self.data = text.encode()
        starts = [0]
        for line in self.data.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        self._starts = starts

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        begin = self._starts[node.lineno - 1] + node.col_offset
        return begin, self._starts[node.end_lineno - 1] + node.end_col_offset

    def text(self, node: ast.expr | ast.stmt) -> str:
        begin, end = self.span(node)
        return self.data[begin:end].decode()

    def replace(self, kind: str, node: ast.expr | ast.stmt, after: str) -> Edit:
        return Edit(kind, *self.span(node), after)


def proposals(path: str, text: str) -> list[Mutant]:
    """Returns every mutant of the file that the rules know, in the order of the text."""
    source, found = Source(text), []
    tree = ast.parse(text, path)
    for within, function in _functions(tree):
        for number, edit in enumerate(sorted(_edits(source, function), key=lambda edit: (edit.begin, edit.kind))):
            mutant = _mutant(path, text, source, within, edit, number)
            if mutant is not None:
                found.append(mutant)
    return found


def _functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Yields the functions of a module and its classes; what stands inside a function belongs to it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name not in UNSAID:
                yield f"{prefix}{node.name}", node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")


def _edits(source: Source, function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Edit]:
    for node in ast.walk(function):
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            left, right = source.text(node.left), source.text(node.comparators[0])
            yield source.replace("comparison", node, f"{left} {COMPARED[type(node.ops[0])]} {right}")
        elif isinstance(node, ast.BoolOp):
            other = " or " if isinstance(node.op, ast.And) else " and "
            joined = other.join(f"({source.text(each)})" for each in node.values)
            yield source.replace("connective", node, f"({joined})")
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            sign = "-" if isinstance(node.op, ast.Add) else "+"
            yield source.replace("arithmetic", node, f"{source.text(node.left)} {sign} {source.text(node.right)}")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("min", "max", "any", "all"):
            other = {"min": "max", "max": "min", "any": "all", "all": "any"}[node.func.id]
            yield source.replace("extreme", node.func, other)
        elif isinstance(node, ast.If):
            yield source.replace("condition", node.test, f"not ({source.text(node.test)})")
            if isinstance(node.body[-1], ast.Return | ast.Raise | ast.Continue):
                yield source.replace("guard", node.test, "False")
        elif isinstance(node, ast.Constant) and type(node.value) is bool:
            yield source.replace("constant", node, str(not node.value))
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            yield source.replace("constant", node, str(node.value + 1))
        elif isinstance(node, ast.Raise):
            yield source.replace("raise", node, "pass")
        elif _is_deed(node):
            yield source.replace("dropped", node, "pass")
        yield from _swaps(source, node)


def _is_deed(node: ast.AST) -> TypeGuard[ast.Expr]:
    """Returns whether the statement calls something for its effect, other than a log."""
    if not isinstance(node, ast.Expr):
        return False
    called = node.value.value if isinstance(node.value, ast.Await) else node.value
    if not isinstance(called, ast.Call):
        return False
    return not (isinstance(called.func, ast.Attribute) and called.func.attr in SPOKEN)


def _swaps(source: Source, node: ast.AST) -> Iterator[Edit]:
    """Yields neighbours in other order."""
    for block in (getattr(node, "body", None), getattr(node, "orelse", None), getattr(node, "finalbody", None)):
        if not isinstance(block, list):
            continue
        for one, two in pairwise(block):
            if isinstance(one, SIMPLE) and isinstance(two, SIMPLE) and (_is_deed(one) or _is_deed(two)):
                (begin, middle), (after, end) = source.span(one), source.span(two)
                between = source.data[middle:after].decode()
                yield Edit("order", begin, end, source.text(two) + between + source.text(one))


def _mutant(path: str, text: str, source: Source, within: str, edit: Edit, number: int) -> Mutant | None:
    """Returns the mutant in the form of the list: with the whole lines around, and counted where these stand twice."""
    begin = source.data.rfind(b"\n", 0, edit.begin) + 1
    end = source.data.find(b"\n", edit.end)
    line = source.data[begin:end].decode()
    before = line.strip()
    lead = len(line) - len(line.lstrip())
    begin += len(line[:lead].encode())
    after = source.data[begin:edit.begin].decode() + edit.after + source.data[edit.end:end].decode()
    name = f"{path.removesuffix('.py').replace('/', '.')}:{within}:{edit.kind}-{number}"
    for nth in range(1, 30):
        mutant = Mutant(name, path, within, before, after.rstrip(), nth=nth)
        try:
            result = mutated(mutant, text)
        except (StaleMutant, SyntaxError):
            return None
        if result == (source.data[:begin].decode() + after.rstrip() + source.data[end:].decode()):
            return mutant
    return None


def drawn(root: Path, files: list[str], count: int, seed: int) -> list[Mutant]:
    """Returns `count` of all proposals of `files`, each file with a share by the root of its number."""
    chance, pools = random.Random(seed), {}
    for file in files:
        pool = proposals(file, (root / file).read_text(encoding="utf-8"))
        chance.shuffle(pool)
        if pool:
            pools[file] = pool
    weights = {file: len(pool) ** 0.5 for file, pool in pools.items()}
    chosen: list[Mutant] = []
    while len(chosen) < count and any(pools.values()):
        left = [file for file, pool in pools.items() if pool]
        file = chance.choices(left, [weights[each] for each in left])[0]
        chosen.append(pools[file].pop())
    return sorted(chosen, key=lambda mutant: mutant.name)
