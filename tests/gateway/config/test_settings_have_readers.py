"""No key of a configuration is idle: the room whose class it is reads it, or somebody reads it by its section.

Read statically: a key `k` of section `s`, a field of the class C, has a reader where the product, but for the checks of
gateway/config, has `.k` in the module that defines C, `.s.k`, or `.k` of a parameter that is declared to be a C, or of the
attribute that it is put into.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated

import pytest

from gateway.config.model import OperatorConfig, SiteConfig
from gateway.config.reading import keys, section_class
from storage.settings import NotInFile
from tools.sources import ROOT, repository_files

ROOMS = ("gateway", "switchover", "remote_log", "storage", "twinlog")


def leaves(cls: type, section: str = "") -> Iterator[tuple[str, list[type], str]]:
    """(section, its class down to the one that declares the key, key) of each key below `cls` that is no section itself."""
    for name, (_, hint) in keys(cls).items():
        inner = section_class(hint)
        if inner is not None:
            yield from leaves(inner, name)
        else:
            yield section, [one for one in cls.__mro__ if name in getattr(one, "__dataclass_fields__", ())], name


@dataclass(frozen=True, slots=True)
class Module:
    """The reads, declarations and assignments of one module. Names are the last ones, behind every dot."""

    reads: set[tuple[str, str]]  # (name before the dot, attribute) of each attribute that is read
    declared: list[tuple[str, str]]  # (parameter, its annotation)
    assigned: list[tuple[str, str]]  # (target, value)

    def reads_of(self, cls: str) -> set[str]:
        """Returns what is read of parameters declared to be of the class, and of the attributes that they are put into."""
        names = {name for name, annotation in self.declared if annotation == cls}
        names |= {to for to, value in self.assigned if value in names}
        return {key for before, key in self.reads if before in names}


def module(source: str) -> Module:
    nodes = list(ast.walk(ast.parse(source)))
    return Module(
        {(_last(one.value), one.attr) for one in nodes if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Load)},
        [(one.arg, ast.unparse(one.annotation)) for one in nodes if isinstance(one, ast.arg) and one.annotation is not None],
        [pair for one in nodes if isinstance(one, ast.Assign) for pair in _assigned(one)],
    )


def product() -> dict[str, Module]:
    """Dotted name -> module, of those that may be readers."""
    files = [path for path in repository_files(ROOT, ".py") if path.parts[0] in ROOMS]
    readers = [path for path in files if path.as_posix() != "gateway/config/loading.py"]
    return {".".join(path.with_suffix("").parts): module((ROOT / path).read_text(encoding="utf-8")) for path in readers}


def idle(modules: dict[str, Module], *roots: type) -> list[str]:
    """The keys without a reader."""
    by_section = {read for one in modules.values() for read in one.reads}
    found = []
    for section, classes, name in (leaf for root in roots for leaf in leaves(root)):
        home = modules.get(classes[-1].__module__)
        read = {key for _, key in home.reads} if home is not None else set[str]()
        read |= {key for one in modules.values() for cls in classes for key in one.reads_of(cls.__name__)}
        if (section, name) not in by_section and name not in read:
            found.append(f"{section}.{name}".lstrip("."))
    return found


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _assigned(node: ast.Assign) -> Iterator[tuple[str, str]]:
    """(target, value) by their last names, one by one where several are assigned."""
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from ((_last(to), _last(value)) for to, value in zip(target.elts, node.value.elts, strict=False))
        else:
            yield _last(target), _last(node.value)


def test_every_setting_has_a_reader() -> None:
    assert idle(product(), SiteConfig, OperatorConfig) == []


@dataclass(frozen=True, slots=True)
class Section:
    """Like those of the product."""

    wanted: int = 1
    dead: int = 1
    internal: Annotated[int, NotInFile()] = 1


@dataclass(frozen=True, slots=True)
class Config:
    wal: Section = field(default_factory=Section)


def test_a_setting_that_nobody_reads_is_found() -> None:
    assert idle(product() | {"m": module("x = config.wal.wanted")}, Config) == ["wal.dead"]


@pytest.mark.parametrize("source", [
    "x = config.wal.dead",
    "def f(how: Section): return how.dead",
    "class C:\n def __init__(self, how: Section): self.x, self._how = 1, how\n def g(self): return self._how.dead",
])
def test_a_reader_is_known_by_the_section_or_by_its_class(source: str) -> None:
    assert idle({"m": module(source)}, Config) == ["wal.wanted"]


@pytest.mark.parametrize("source", [
    "def f(how: Other): return how.dead", "Section(dead=2)", "config.wal.dead = 3", "x = config.other.dead",
])
def test_whatever_else_has_that_name_is_no_reader(source: str) -> None:
    assert "wal.dead" in idle({"m": module(source)}, Config)
