"""A fault of a plan as a line of text: the form that the simulator's plans and those of real processes share.

What always holds: `parse_fault(fault_text(fault).split(), kinds) == fault` for every fault of a known kind.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from twinlog.errors import InvalidInput


class Fault(msgspec.Struct, frozen=True):
    """`for_s` until it is healed; 0 where there is nothing to heal. `how` refines it."""

    at_s: float
    kind: str
    target: str
    for_s: float = 0.0
    how: str = ""


def fault_text(fault: Fault) -> str:
    """`at SECONDS KIND TARGET [for SECONDS] [how HOW]`"""
    line = f"at {fault.at_s} {fault.kind} {fault.target}"
    line += f" for {fault.for_s}" if fault.for_s else ""
    return line + (f" how {fault.how}" if fault.how else "")


def parse_fault(words: list[str], kinds: Collection[str]) -> Fault:
    """The words of such a line. Raises InvalidInput, IndexError, ValueError."""
    kind = words[2]
    if kind not in kinds:
        raise InvalidInput(f"no fault is called {kind!r}: it is one of {', '.join(kinds)}")
    options = dict(zip(words[4::2], words[5::2], strict=True))
    unknown = set(options) - {"for", "how"}
    if unknown:
        raise InvalidInput(f"{', '.join(sorted(unknown))}: after the target come `for` and `how`")
    return Fault(float(words[1]), kind, words[3], float(options.get("for", 0)), options.get("how", ""))
