"""The length report finds what is too long, counts as people count, and fails only above the bound."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.length_report import (
    FILE_LINES_AIM,
    FILE_LINES_MAX,
    FOLDER_MODULES_MAX,
    FUNCTION_LINES_AIM,
    FUNCTION_LINES_MAX,
    crowded,
    offenders,
)


def function_of(lines: int, indent: str = "") -> str:
    """A function whose last line is `lines - 1` below its `def`."""
    return f"{indent}def long():\n" + f"{indent}    x = 1\n" * (lines - 1)


def test_at_the_aims_nothing_is_said() -> None:
    assert list(offenders("a.py", function_of(FUNCTION_LINES_AIM))) == []
    assert list(offenders("a.py", "x = 1\n" * FILE_LINES_AIM)) == []


@pytest.mark.parametrize(("lines", "fails"), [
    (FILE_LINES_AIM + 1, False), (FILE_LINES_MAX, False), (FILE_LINES_MAX + 1, True),
])
def test_a_long_file(lines: int, fails: bool) -> None:
    (found,) = offenders("a.py", "x = 1\n" * lines)
    assert (found.where, found.lines, found.fails) == ("a.py", lines, fails)


@pytest.mark.parametrize("prefix", ["", "class A:\n"])
@pytest.mark.parametrize("keyword", ["def", "async def"])
@pytest.mark.parametrize(("lines", "fails"), [
    (FUNCTION_LINES_AIM + 1, False), (FUNCTION_LINES_MAX, False), (FUNCTION_LINES_MAX + 1, True),
])
def test_a_long_function(prefix: str, keyword: str, lines: int, fails: bool) -> None:
    source = prefix + function_of(lines, "    " if prefix else "").replace("def", keyword)
    (found,) = offenders("a.py", source)
    assert found.where.endswith(" long")
    assert (found.lines, found.fails) == (lines, fails)


def test_decorators_are_not_counted_and_the_line_is_named() -> None:
    source = "@decorated\n@twice\n" + function_of(FUNCTION_LINES_AIM + 1)
    (found,) = offenders("a.py", source)
    assert str(found) == f"a.py:3 long: {FUNCTION_LINES_AIM + 1} lines, above the aim of {FUNCTION_LINES_AIM}"


def test_a_crowded_folder_is_named_and_a_package_file_and_subfolders_do_not_count() -> None:
    full = [Path("a") / f"m{n}.py" for n in range(FOLDER_MODULES_MAX)]
    assert crowded([*full, Path("a/__init__.py"), Path("a/b/c.py")]) == {}
    assert crowded([*full, Path("a/one_more.py")]) == {"a": FOLDER_MODULES_MAX + 1}
