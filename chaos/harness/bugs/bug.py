"""A planted bug: names of the product that stand for something else in a gateway's process.

What always holds: it names the scenario that must show it, and its checkers: one of them must notice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Patch = tuple[Any, str, Any]  # a class or module, one of its names, and what is to stand there


@dataclass(frozen=True, slots=True)
class HarnessBug:
    """`sentence`: what it breaks. `scenario`: where it must show, by one of the `checkers`."""

    name: str
    sentence: str
    promise: str
    scenario: str
    checkers: tuple[str, ...]
    patches: tuple[Patch, ...]

    def plant(self) -> None:
        """In this process, for good."""
        for owner, name, replacement in self.patches:
            getattr(owner, name)  # a name that the product does not have any more is no bug
            setattr(owner, name, replacement)
