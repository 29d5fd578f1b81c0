"""The same of a pair without a coordinator, whose register is on the two DFSs: a restart and a takeover die at every step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.processes import Processes, open_pair
from tests.crash.test_crashes import (
    test_the_restarting_active_dies_at_every_step_of_activation,
    test_the_takeover_dies_at_every_step_and_goes_on_by_itself,
)

__all__ = [
    "test_the_restarting_active_dies_at_every_step_of_activation",
    "test_the_takeover_dies_at_every_step_and_goes_on_by_itself",
]
pytestmark = pytest.mark.long


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Processes]:
    with open_pair(tmp_path, coordinator=False) as made:
        yield made
    assert not (tmp_path / "coordinator.db").exists()
