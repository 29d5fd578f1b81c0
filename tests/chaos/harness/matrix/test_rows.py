"""The rows of the fault matrix: each scenario has one, and what no scenario shows is held elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.harness.courses import scenarios
from chaos.harness.matrix.record import PROJECT
from chaos.harness.matrix.rows import ROWS, Row
from chaos.harness.steps.families import FAMILIES


def test_every_scenario_belongs_to_a_row_and_every_row_names_scenarios_that_are_there() -> None:
    named = {scenario for row in ROWS for scenario in row.scenarios}
    assert named == {*scenarios(), *FAMILIES}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_is_held_by_something_that_is_there(row: Row) -> None:
    assert row.scenarios or row.elsewhere
    for name in row.elsewhere:
        path = Path(PROJECT / name)
        assert path.is_file() or any(path.rglob("test_*.py")), name
