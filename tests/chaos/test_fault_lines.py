"""A fault as a line of a plan."""

from __future__ import annotations

import pytest

from chaos.fault_lines import Fault, fault_text, parse_fault
from twinlog.errors import InvalidInput

KINDS = ("cut", "jump")


@pytest.mark.parametrize("fault", [Fault(1.5, "cut", "a-b", 2.0, "up"), Fault(0.0, "jump", "a"), Fault(3.0, "cut", "a", 1.0)])
def test_a_line_gives_the_fault_back(fault: Fault) -> None:
    assert parse_fault(fault_text(fault).split(), KINDS) == fault


@pytest.mark.parametrize(("line", "told"), [
    ("at 1 burn a", "no fault is called 'burn'"), ("at 1 cut a-b since 3", "since: after the target come"),
])
def test_a_wrong_line_is_told(line: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        parse_fault(line.split(), KINDS)
