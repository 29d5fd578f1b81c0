"""Lies in the simulator: each is posted to both sites of a pair under load, and no promise breaks."""

from __future__ import annotations

import pytest

from chaos.simulate.actors.lies import LIES
from chaos.simulate.plan import parse
from chaos.simulate.run import Run, collect

CALM = "seed 3\nworkload registers\nclients 4\noperations 120\nknob op_interval_s 0.15\nknob segment_bytes 4096\n"


@pytest.mark.parametrize("site", ["active", "standby"])
def test_each_lie_is_posted_and_has_no_effect(site: str) -> None:
    posted = "".join(f"at {1 + 0.05 * place:.3f} lie {site} for 1.0 how {name}\n" for place, name in enumerate(LIES))
    result = Run(parse(CALM + posted)).execute()
    collect()
    assert result.violations == (), result.violations[0]
    said = {name: line for line in result.trace for name in LIES if f"lie {name} to " in line}
    assert said.keys() == LIES.keys(), "some of them did not happen"
