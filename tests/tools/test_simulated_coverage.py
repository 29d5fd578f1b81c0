"""The coverage page names functions and lines rightly, and its table of what is left out stays true."""

from __future__ import annotations

import ast
import re
from collections import Counter

import pytest

from tools.simulated_coverage import LEFT_OUT, Gap, Measured, counted, functions_of, gaps, page, percent
from tools.sources import ROOT, repository_files

SOURCE = '''\
import os

class A:
    kept = 1

    def first(self):
        """About."""
        a = 1
        if a:

            b = 2
            return b
        def inner():
            return 3
        return (
            inner()
        )

    @property
    async def second(self): return 4

def third():
    return 5

os.x = 1
'''
STATEMENTS = [1, 3, 4, 6, 8, 9, 11, 12, 13, 14, 15, 19, 20, 22, 23, 25]


def test_the_statements_of_the_example_are_all_listed() -> None:
    lines = {node.lineno for node in ast.walk(ast.parse(SOURCE)) if isinstance(node, ast.stmt)} - {7}
    assert lines | {19} == set(STATEMENTS)


def test_a_line_belongs_to_the_innermost_function() -> None:
    names = functions_of(SOURCE)
    assert [names.get(line) for line in (1, 3, 4, 6, 8, 13, 14, 15, 17, 20, 22, 23, 25)] == [
        None, None, "A", "A", "A.first", "A.first", "A.first.inner", "A.first", "A.first", "A.second", None, "third", None,
    ]


@pytest.mark.parametrize(("missing", "expected"), [
    ([], ()),
    ([23], (Gap("third", ((23, 23),)),)),
    ([8, 9, 11, 12, 13, 14, 15], (Gap("A.first", ((8, 13), (15, 15))), Gap("A.first.inner", ((14, 14),)))),
    ([8, 11, 12, 15], (Gap("A.first", ((8, 8), (11, 12), (15, 15))),)),
    ([22, 23, 25], (Gap("(module)", ((22, 22), (25, 25))), Gap("third", ((23, 23),)))),
])
def test_gaps_are_named_and_joined(missing: list[int], expected: tuple[Gap, ...]) -> None:
    assert gaps(SOURCE, STATEMENTS, missing) == expected


def test_a_gap_reads_well() -> None:
    assert str(Gap("A.first", ((8, 8), (11, 12)))) == "`A.first`: 8, 11-12"


def test_only_what_is_whole_says_a_hundred() -> None:
    assert [percent(9999, 10000), percent(10, 10), percent(0, 7)] == ["99.9 %", "100.0 %", "0.0 %"]


def test_every_file_of_the_scope_is_counted_or_left_out() -> None:
    paths = [str(path) for path in repository_files(ROOT, ".py")]
    found = counted(paths)
    simulated = {
        "storage/log/wal.py", "gateway/epoch/commit_rule.py", "switchover/plans/takeover.py", "remote_log/writing/trimmer.py",
        "gateway/epoch/active_epoch.py", "gateway/epoch/modes.py", "gateway/service/rows.py", "gateway/service/conditions.py",
        "gateway/site/site.py", "gateway/site/operations.py",
    }
    assert simulated <= set(found)
    left_out = {"storage/disk/os_files.py", "gateway/cli/operator.py", "gateway/app.py", "storage/disk/workers.py"}
    assert not left_out & set(found)
    assert all("/" not in part or (ROOT / part).exists() for why in LEFT_OUT.values() for part in why.split("`")[1::2])


def test_a_row_that_fits_nothing_is_an_error() -> None:
    paths = [str(path) for path in repository_files(ROOT, ".py")]
    for gone in ("storage/disk/os_files.py", "gateway/site/operations.py"):
        with pytest.raises(ValueError, match=re.escape(gone)):
            counted(path for path in paths if path != gone)


def test_the_page_has_every_file_the_worst_first() -> None:
    said = page([Measured("a.py", 10, 10, ()), Measured("b.py", 10, 5, (Gap("f", ((3, 7),)),))], 40, 100, Counter({"aims": 7}))
    assert "| aims | 7 |" in said
    assert "Seeds 40 to 139 ran **75.0 %** of 20 statements in 2 files" in said
    assert said.index("| `b.py` | 50.0 % | 10 | 5 |") < said.index("| `a.py` | 100.0 % | 10 | 0 |")
    assert "### `b.py`\n\n- `f`: 3-7\n" in said
    assert "### `a.py`" not in said
