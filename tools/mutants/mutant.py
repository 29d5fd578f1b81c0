"""A mutant: one small mistake in one file, as text, and what must find it.

What always holds: a mutant is data (tests/mutants/*.toml), and names its place by the function that it stands in, so that
edits elsewhere in the file do not touch it; a mutant whose text is no longer there is reported, never left out.
"""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import msgspec

LISTS = Path("tests/mutants")


class StaleMutant(Exception):
    """The text that a mutant replaces does not stand where the mutant says; the list has to follow the code."""


class Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`before` stands in the function or class `within` of `file` ("" for the module), and `after` instead of it, at its
    occurrence number `nth` from 1 on. Several lines are compared without their common indentation.

    `mistake`: a sentence; a drawn one may do without. `tests`: what pytest runs, and must find it; () if none does. `seeds`:
    the simulator must find it in so many from seed 0 on with its default draw; 0: it did not in the first `seeds_run`, or was
    not asked. `unreached`: it changes no value and no step in any of these seeds, so the simulator cannot run it. `drawn`: by
    the rules (propose.py), and so not of anybody's choice. `unseen`: why the simulator, which can run it, does not find it; one
    of the reasons that score.py has in words. `survives`: why nothing has to find it. `missed`: nothing finds it
    yet, and why.
    """

    name: str
    file: str
    within: str
    before: str
    after: str
    mistake: str = ""
    nth: int = 1
    tests: tuple[str, ...] = ()
    seeds: int = 0
    seeds_run: int = 0
    unreached: bool = False
    drawn: bool = False
    unseen: str = ""
    survives: str = ""
    missed: str = ""


class _List(msgspec.Struct, forbid_unknown_fields=True):
    mutant: tuple[Mutant, ...]


def load(root: Path) -> tuple[Mutant, ...]:
    """Returns every mutant of the lists below `root`. Raises msgspec.ValidationError or ValueError for a wrong list."""
    found: dict[str, Mutant] = {}
    for path in sorted((root / LISTS).glob("*.toml")):
        for mutant in msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), _List).mutant:
            if mutant.name in found:
                raise ValueError(f"{path.name}: two mutants are called {mutant.name}")
            found[mutant.name] = mutant
    return tuple(found.values())


def mutated(mutant: Mutant, source: str) -> str:
    """Returns the text of the file with the mistake in it. Raises StaleMutant, and SyntaxError if the result is no Python."""
    first, last = _lines_of(mutant, source)
    lines = source.splitlines(keepends=True)
    place = "".join(lines[first:last])
    at = -1
    for _ in range(mutant.nth):
        at = place.find(mutant.before, at + 1)
        if at < 0:
            raise StaleMutant(f"{mutant.name}: {mutant.file} {mutant.within} does not hold {mutant.before!r}")
    changed = place[:at] + mutant.after + place[at + len(mutant.before):]
    result = "".join(lines[:first]) + changed + "".join(lines[last:])
    ast.parse(result, mutant.file)
    return result


def _lines_of(mutant: Mutant, source: str) -> tuple[int, int]:
    """Returns the range of lines of `within`."""
    node: ast.AST = ast.parse(source, mutant.file)
    if not mutant.within:
        return 0, len(source.splitlines())
    for name in mutant.within.split("."):
        named = [
            child for child in ast.iter_child_nodes(node)
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and child.name == name
        ]
        if not named:
            raise StaleMutant(f"{mutant.name}: {mutant.file} has no {mutant.within}")
        node = named[-1]
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    return node.lineno - 1, node.end_lineno or node.lineno
