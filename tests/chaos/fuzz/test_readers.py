"""Every reader of bytes takes a few thousand inputs of a fixed seed: what it says of them is what its documentation says.

`python -m chaos fuzz GROUP` gives it a million; what that found is kept in the tests of the rooms.
"""

from __future__ import annotations

import pytest

from chaos.fuzz.cli import targets_of
from chaos.fuzz.running import run
from chaos.fuzz.target import Target

INPUTS = {"configuration of a site": 200, "configuration of an operator": 200, "file of tokens": 300}
GROUPS = ("logs", "rows", "peer", "files", "identities")
READERS = [target for group in GROUPS for target in targets_of(group)]


@pytest.mark.parametrize("target", READERS, ids=lambda target: target.name)
def test_a_reader_says_of_all_bytes_what_it_is_documented_to_say(target: Target) -> None:
    report = run(target, INPUTS.get(target.name, 1000), seed=1)
    assert [finding.text() for finding in report.findings] == []
    assert report.read > report.inputs // 100  # else nothing behind the first check is tried
    assert report.refused > report.inputs // 10 or not target.refusals


def test_no_two_targets_have_one_name() -> None:
    assert len({target.name for target in READERS}) == len(READERS)
