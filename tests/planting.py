"""Planted mistakes: a module of the product with one place of its source made wrong, for tests that must see it."""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any


def planted(module: ModuleType, right: str, wrong: str) -> Any:
    """Returns a copy of `module` in which `wrong` stands for `right`, which its source has exactly once."""
    source = inspect.getsource(module)
    assert source.count(right) == 1, f"{module.__name__} has {source.count(right)} times: {right}"
    copy = ModuleType(module.__name__)
    exec(compile(source.replace(right, wrong), f"<planted in {module.__name__}>", "exec"), copy.__dict__)
    return copy
