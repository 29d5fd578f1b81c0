"""Lies in the simulator: each is posted to both sites of a pair under load, and each false answer given; no promise breaks."""

from __future__ import annotations

import pytest

from chaos.simulate.actors.false_answers import FALSE_ANSWERS
from chaos.simulate.actors.lies import LIES
from chaos.simulate.plan import parse
from chaos.simulate.run import Run, collect

CALM = "seed 3\nworkload registers\nclients 4\noperations 120\nknob op_interval_s 0.15\nknob segment_bytes 4096\n"
CHANGES = (
    "at 1.000 switchover standby\nat 3.000 crash active for 1.5 how process\nat 3.100 failover standby\n"
    "at 5.000 rejoin a\nat 5.000 rejoin b\n"
)
NOT_ASKED = ("rows-none", "rows-time", "merged", "absent")  # no site diverges, so nobody asks


@pytest.mark.parametrize("site", ["active", "standby"])
def test_each_lie_is_posted_and_has_no_effect(site: str) -> None:
    posted = "".join(f"at {1 + 0.05 * place:.3f} lie {site} for 1.0 how {name}\n" for place, name in enumerate(LIES))
    result = Run(parse(CALM + posted)).execute()
    collect()
    assert result.violations == (), result.violations[0]
    said = {name: line for line in result.trace for name in LIES if f"lie {name} to " in line}
    assert said.keys() == LIES.keys(), "some of them did not happen"


def test_of_two_false_answers_at_once_the_later_one_is_given() -> None:
    """Made of one another they were no answers at all (seed 18008658)."""
    both = "at 0.500 false-answer standby for 9.0 how no-number\nat 0.600 false-answer standby for 9.0 how position-durable\n"
    result = Run(parse(CALM + both)).execute()
    collect()
    assert result.violations == (), result.violations[0]
    given = [line for line in result.trace if "of its answer to" in line]
    assert given
    assert all("position-durable" in line for line in given[3:])


@pytest.mark.parametrize("name", FALSE_ANSWERS)
def test_a_false_answer_in_every_change_of_roles_breaks_no_promise(name: str) -> None:
    given = 0
    for site in "ab":
        result = Run(parse(f"{CALM}at 0.500 false-answer {site} for 9.0 how {name}\n{CHANGES}")).execute()
        collect()
        assert result.violations == (), result.violations[0]
        given += sum(f"{name} of its answer to" in line for line in result.trace)
    assert given > 0 or name in NOT_ASKED
