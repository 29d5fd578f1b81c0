"""Every test is in a tier that CI runs: `make test` leaves out those marked `long` alone, `make test-all` leaves out none."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator

from tools.sources import ROOT, repository_files

RUN = "-m pytest -n 3 --dist worksteal"
TESTS = [path for path in repository_files(suffix=".py") if path.parts[0] == "tests"]
CHOOSING = re.compile(r"collect_ignore|pytest_ignore_collect|pytest_collection_modifyitems|pytest_itemcollected")


def run_by(target: str) -> str:
    """The call of pytest that `make` makes, from its module on."""
    called = ["make", "-n", target, "ARGS=", "WORKERS=3"]
    told = subprocess.run(called, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (line,) = [line for line in told.splitlines() if "-m pytest" in line]
    return line[line.index("-m pytest"):].strip()


def names_of(node: ast.AST) -> Iterator[str]:
    """Yields the test functions that pytest would find in `node` itself and its classes."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and child.name.startswith("test"):
            yield child.name
        elif isinstance(child, ast.ClassDef):
            yield from names_of(child)


def test_one_tier_is_all_tests_and_the_other_leaves_out_only_the_long_ones() -> None:
    assert run_by("test-all") == RUN
    assert run_by("test") == f'{RUN} -m "not long"'


def test_ci_runs_all_tests() -> None:
    lines = (ROOT / ".ci" / "run").read_text().splitlines()
    (asked,) = [line for line in lines if line.startswith("make test")]
    assert asked.split()[:3] == ["make", "test-all", "2>"]
    assert "unset PYTEST_ADDOPTS ARGS" in " ".join(lines)


def test_no_setting_leaves_out_a_test() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert settings["testpaths"] == ["tests"]
    assert not settings.keys() & {"norecursedirs", "python_files", "python_classes", "python_functions"}
    taken = ["--import-mode=importlib", "-ra", "--strict-markers", "--strict-config", "-p", "no:schemathesis"]  # not its plugin
    assert settings["addopts"].split() == taken
    assert not [str(path) for path in TESTS if path.name == "conftest.py" and CHOOSING.search((ROOT / path).read_text())]


def test_every_test_stands_where_pytest_looks() -> None:
    """In a file `test_*.py`; or in a class that the test class of such a file has as a base."""
    trees = {path: ast.parse((ROOT / path).read_text()) for path in TESTS}
    classes = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    bases = {ast.unparse(base).partition("[")[0] for node in classes for base in node.bases}
    for path, tree in trees.items():
        if not path.name.startswith("test_"):
            free = [node for node in tree.body if not (isinstance(node, ast.ClassDef) and node.name in bases)]
            assert not [*names_of(ast.Module(free, []))], f"{path}: pytest does not look here"
        for node in tree.body if path.name.startswith("test_") else ():
            if isinstance(node, ast.ClassDef) and not node.name.startswith("Test"):
                assert not [*names_of(node)], f"{path}: pytest does not look into {node.name}"
