"""The pages keep up with the code: every error has its line, every command that is named exists, every link leads somewhere."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from tools.sources import ROOT, repository_files
from twinlog import errors
from twinlog.cli.main import all_verbs

PAGES = [ROOT / path for path in repository_files(ROOT, ".md")]
PRODUCT = ("twinlog", "gateway", "switchover", "remote_log", "storage", "spark_jobs", "chaos")
IN_A_PATH = re.compile(rf"(?<![\w/.])((?:{'|'.join(PRODUCT)}|tests|tools|bench|docs|requirements)/[\w./*-]*)")
OPERATIONS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def test_every_error_that_a_client_can_meet_is_explained() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.TwinlogError)]
    codes = {kind.code for kind in kinds} - {"internal", "log-error", "dfs-exists", "dfs-not-found"}
    assert len(codes) > 15
    assert sorted(code for code in codes if f"`{code}`" not in OPERATIONS) == []


def test_every_command_that_is_named_exists() -> None:
    known = set(all_verbs())
    named = {verb for page in PAGES for verb in re.findall(r"[`\n]twinlog ([a-z][a-z-]*)\b", page.read_text(encoding="utf-8"))}
    assert len(named) > 8
    assert named - known == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_table_explains_a_name_twice(page: Path) -> None:
    if page.name == "track-record.md":
        return  # it lists what was found, by who found it
    for table in re.findall(r"(?:^\|.*\n)+", page.read_text(encoding="utf-8"), re.MULTILINE):
        names = re.findall(r"^\| (`[^`]+`) \|", table, re.MULTILINE)
        assert [name for name, count in Counter(names).items() if count > 1] == []


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in sorted(folder.glob("2*.md")) if f"({path.name})" not in index] == []


def test_the_readme_lists_every_page() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    pages = [path.relative_to(ROOT) for path in PAGES if path.parent == ROOT / "docs"]
    assert len(pages) > 15
    assert [str(page) for page in pages if f"]({page})" not in readme] == []


def test_every_test_that_a_table_names_exists() -> None:
    tests = [path for path in repository_files(ROOT, ".py") if path.parts[0] == "tests"]
    code = "\n".join((ROOT / path).read_text(encoding="utf-8") for path in tests)
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "tests" / "remote_log" / "README.md").read_text(encoding="utf-8")))
    assert len(named) > 30
    assert sorted(name for name in named if not re.search(rf"\bdef {name}\(", code)) == []


def test_every_test_file_that_a_page_names_exists() -> None:
    known = {path.name for path in repository_files(ROOT, ".py")}
    named = {
        (page.name, name)
        for page in PAGES
        if page.name != "CHANGELOG.md"
        for name in re.findall(r"\b(test_\w+\.py)\b", page.read_text(encoding="utf-8"))
    }
    assert len(named) > 30
    assert sorted((page, name) for page, name in named if name not in known) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_on_a_page_exists(page: Path) -> None:
    if page.name == "CHANGELOG.md":
        return  # it names what was there then
    named = {path.rstrip("./") for path in IN_A_PATH.findall(page.read_text(encoding="utf-8"))}
    assert sorted(path for path in named if not any(ROOT.glob(path))) == []


def test_the_architecture_names_every_package() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    packages = {f"{path.parent}/" for path in repository_files(ROOT, ".py") if path.parts[0] in PRODUCT}
    assert len(packages) > 40
    assert sorted(package for package in packages if f"{package}`" not in page and f"**{package}**" not in page) == []


def test_the_code_has_every_name_of_the_glossary() -> None:
    rows = re.findall(r"^\| \*\*.*\|([^|]*)\|$", (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    named = {name for cell in rows for name in re.findall(r"`(\w+)`", cell)}
    assert len(named) > 35
    defined: set[str] = set()
    for path in repository_files(ROOT, ".py"):
        if path.parts[0] in PRODUCT:
            for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                    defined.add(node.name)
                elif isinstance(node, ast.AnnAssign | ast.Assign):
                    targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
                    defined.update(target.id for target in targets if isinstance(target, ast.Name))
    assert sorted(named - defined) == []
