"""Every import is declared in pyproject.toml, and every declared package is pinned: a fresh clone lacks nothing."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sys
import tomllib

from tools.laws.import_law import PACKAGES
from tools.sources import ROOT, repository_files

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PUBLIC = tomllib.loads((ROOT / "twinlog" / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PINNED = set(re.findall(r"^([a-z0-9.-]+)==", (ROOT / "requirements" / "main.txt").read_text(encoding="utf-8"), re.MULTILINE))


def canonical(requirement: str) -> str:
    """The name of a requirement as registries compare it."""
    name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()


def declared(*extras: str) -> set[str]:
    requirements = PROJECT["dependencies"] + [one for extra in extras for one in PROJECT["optional-dependencies"][extra]]
    return {canonical(requirement) for requirement in requirements}


def imported(folders: tuple[str, ...]) -> set[str]:
    """Top names of all imports below `folders` that are neither Python's nor ours."""
    ours = {path.stem for path in repository_files(ROOT, ".py")} | {*PACKAGES, "bench", "tools", "tests"}
    names: set[str] = set()
    for path in repository_files(ROOT, ".py"):
        if path.parts[0] in folders:
            for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
                if isinstance(node, ast.Import):
                    names |= {alias.name.split(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                    names.add(node.module.split(".")[0])
    return names - ours - set(sys.stdlib_module_names)


def undeclared(names: set[str], known: set[str]) -> dict[str, list[str]]:
    """Import name -> distributions that have it, where none of them is declared."""
    providers = importlib.metadata.packages_distributions()
    found = {name: providers.get(name, []) for name in names}
    return {name: owners for name, owners in found.items() if not known & {canonical(owner) for owner in owners}}


def test_the_package_of_apps_imports_only_what_it_declares() -> None:
    names = imported(("twinlog",))
    assert names >= {"httpx", "msgspec", "rich", "typer"}
    known = {canonical(requirement) for requirement in PUBLIC["dependencies"]}
    assert undeclared(names - {"pyarrow"}, known) == {}, "pyarrow: imported where an app hands over what is Arrow's"


def test_exact_versions_stand_in_the_lock_alone() -> None:
    extras = [one for extra in PROJECT["optional-dependencies"].values() for one in extra]
    exact = [one for one in [*PROJECT["dependencies"], *extras, *PUBLIC["dependencies"]] if "==" in one]
    assert exact == [f"twinlog=={PUBLIC['version']}"]
    assert PROJECT["version"] == PUBLIC["version"]


def test_the_product_imports_only_what_it_declares() -> None:
    names = imported(tuple(set(PACKAGES) - {"spark_jobs", "chaos", "twinlog"}))
    assert len(names) > 10
    assert undeclared(names, declared("hdfs", "traces")) == {}


def test_each_extra_has_what_its_room_imports() -> None:
    assert undeclared(imported(("chaos",)), declared("chaos")) == {}
    assert undeclared(imported(("spark_jobs",)), declared("spark")) == {}


def test_tools_and_tests_import_only_what_they_declare() -> None:
    known = declared("flights", "hdfs", "spark", "traces", "chaos", "docs", "dev")
    assert undeclared(imported(("bench", "chaos", "tools", "tests")), known) == {}


def test_everything_declared_is_pinned_and_nothing_has_an_address() -> None:
    assert declared("flights", "hdfs", "spark", "traces", "chaos", "dev") - PINNED == {"twinlog"}
    assert "://" not in (ROOT / "requirements" / "main.txt").read_text(encoding="utf-8")
