"""Old bases are chosen so that no moment which is to stay is lost, whatever the bases are."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.backup.manifest import Manifest, WantedMoment, chosen
from storage.backup.pruning import by_age, by_count, unfinished_bases, unnamed_bases, unnamed_files
from tests.storage.backup.test_manifest import manifest
from twinlog.errors import InvalidInput, Refused

PLACES = st.lists(st.integers(1, 12), min_size=2, max_size=16)


def a_place(steps: list[int]) -> list[Manifest]:
    """Bases and their log at growing sequences, with gaps; a manifest for each base, one for its log."""
    made, at = list[Manifest](), 0
    for number, step in enumerate(steps):
        begin = at + step
        ends = [begin + step, begin + 2 * step][: step % 3]
        made += [manifest(2 * number + 1, begin), manifest(2 * number + 2, begin, *ends)]
        at = ends[-1] if ends else begin
    return made


def restorable(manifests: list[Manifest], wall_ms: int) -> tuple[str, list[int]] | None:
    with suppress(Refused):
        found, log = chosen(manifests, WantedMoment(wall_ms=wall_ms))
        return found.base.id, [each.end.seq for each in log]
    return None


@given(PLACES, st.data())
def test_by_age_no_younger_moment_is_lost(steps: list[int], data: st.DataObject) -> None:
    made = a_place(steps)
    since_ms = data.draw(st.integers(0, made[-1].end.wall_ms + 20))
    choice = by_age(made, since_ms)
    stays = {one.base.id for one in choice.stay}
    assert [one.base.id for one in choice.go + choice.stay] == [one.base.id for one in made[1::2]]
    left = [one for one in made if one.base.id in stays]
    for wall_ms in range(since_ms, made[-1].end.wall_ms + 20):
        assert restorable(left, wall_ms) == restorable(made, wall_ms)


@given(PLACES, st.integers(1, 20))
def test_by_count_the_newest_stay(steps: list[int], keep: int) -> None:
    choice = by_count(a_place(steps), keep)
    assert len(choice.stay) == min(keep, len(steps))
    assert choice.stay[-1].number == 2 * len(steps)


def test_the_newest_base_always_stays() -> None:
    assert len(by_age(a_place([1, 1]), 1 << 60).stay) == 1
    with pytest.raises(InvalidInput, match="at least 1"):
        by_count(a_place([1, 1]), 0)


def test_what_a_call_that_runs_may_still_name_is_left_alone() -> None:
    held = [manifest(1, 10), manifest(2, 100, 120)]
    marked = {"1-50-ab": 2, "1-100-ab": 3, "2-1-ab": 1, "base-10": 1, "notes": 1}
    assert unnamed_bases(marked, held) == ["1-50-ab", "2-1-ab"]  # who would name them finds the number taken
    assert unnamed_bases(marked, []) == []
    assert unfinished_bases(marked, held) == ["1-50-ab", "1-100-ab", "2-1-ab"]
    files = ["log-100-ab-000001", "log-119-ab-000001", "log-120-ab-000001", "log-120", "rows-000001"]
    assert unnamed_files(files, "base-base-100", held) == ["log-100-ab-000001", "log-119-ab-000001"]
