"""Seeds until a planted bug is found: the counting, and one bug for real."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec
import pytest

from chaos.simulate.cli import main
from chaos.simulate.rates import Rate, is_found, rates


def of_these(*hits: bool) -> Callable[[Callable[[int], bool], Iterable[int]], Iterator[bool]]:
    return lambda work, seeds: (hit for hit, _ in zip(hits, seeds, strict=False))


def test_a_bug_is_done_when_it_was_found_often_enough() -> None:
    each = of_these(False, True, False, True, True)
    assert list(rates(["one"], range(100), 2, each)) == [Rate("one", 2, 2, 4)]


def test_a_bug_that_is_not_found_says_so() -> None:
    assert list(rates(["one"], range(3), 2, of_these(*[False] * 9))) == [Rate("one", None, 0, 3)]
    assert list(rates(["one"], range(3), 2, of_these(False, True, False, True))) == [Rate("one", 2, 1, 3)]


@pytest.mark.long
def test_a_find_is_what_the_bugs_own_checkers_notice() -> None:
    seen = set()
    for seed in range(30):
        seen.add(is_found("skip-fsync", seed))
        if len(seen) == 2:
            return
    assert seen == {True, False}


@pytest.mark.parametrize(("seeds", "code"), [("30", 0), ("1", 1)])
def test_the_command(seeds: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    bug = "append-beside-acknowledged"
    assert main(["bugs", "--bug", bug, "--seeds", seeds, "--finds", "1", "--jobs", "1", "--json"]) == code
    (told,) = msgspec.json.decode(capsys.readouterr().out)
    assert (told["bug"], told["first"] is not None) == (bug, code == 0)
