"""Shared parts of recorded programs: mistakes planted before anything is imported, and the marks that a program writes.

A program is started as `python -m tests.chaos.crash_states.programs.NAME ROOT MARKS [MODULE RIGHT WRONG]...`.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType


class _Planter(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports `name` with each wrong text in the place of the right one, which its source has exactly once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.texts: list[tuple[str, str]] = []

    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        return importlib.util.spec_from_loader(name, self) if name == self._name else None

    def exec_module(self, module: ModuleType) -> None:
        found = importlib.machinery.PathFinder.find_spec(self._name, sys.modules[self._name.rpartition(".")[0]].__path__)
        assert found is not None
        assert found.origin is not None
        with open(found.origin, encoding="utf-8") as file:
            source = file.read()
        for right, wrong in self.texts:
            assert source.count(right) == 1, f"{self._name} has {source.count(right)} times: {right}"
            source = source.replace(right, wrong)
        exec(compile(source, f"<planted in {self._name}>", "exec"), module.__dict__)


def plant(arguments: Sequence[str]) -> None:
    """`arguments`: module, right and wrong, one after the other. Call it before the module is imported."""
    planters: dict[str, _Planter] = {}
    for name, right, wrong in zip(arguments[::3], arguments[1::3], arguments[2::3], strict=True):
        assert name not in sys.modules, f"{name} is imported already"
        planters.setdefault(name, _Planter(name)).texts.append((right, wrong))
    sys.meta_path[:0] = planters.values()


class Marks:
    """Lines that the recording shows between the calls of the program."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def say(self, line: str) -> None:
        os.write(self._descriptor, f"{line}\n".encode())
