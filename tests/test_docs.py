"""The pages keep up with the code: every error has its line, every command that is named exists, every link leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

from tools.sources import ROOT, repository_files
from twinlog import errors
from twinlog.cli.main import make_app

PAGES = [ROOT / path for path in repository_files(ROOT, ".md")]
OPERATIONS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def test_every_error_that_a_client_can_meet_is_explained() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.TwinlogError)]
    codes = {kind.code for kind in kinds} - {"internal", "log-error", "dfs-exists", "dfs-not-found"}
    assert len(codes) > 15
    assert sorted(code for code in codes if f"`{code}`" not in OPERATIONS) == []


def test_every_command_that_is_named_exists() -> None:
    command = typer.main.get_command(make_app()[0])
    assert isinstance(command, TyperGroup)
    known = set(command.commands)
    named = {verb for page in PAGES for verb in re.findall(r"[`\n]twinlog ([a-z]+)\b", page.read_text(encoding="utf-8"))}
    assert len(named) > 8
    assert named - known == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_decision_is_in_the_index() -> None:
    folder = ROOT / "docs" / "decisions"
    index = (folder / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in sorted(folder.glob("2*.md")) if f"({path.name})" not in index] == []


def test_every_test_that_a_table_names_exists() -> None:
    tests = [path for path in repository_files(ROOT, ".py") if path.parts[0] == "tests"]
    code = "\n".join((ROOT / path).read_text(encoding="utf-8") for path in tests)
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "tests" / "remote_log" / "README.md").read_text(encoding="utf-8")))
    assert len(named) > 30
    assert sorted(name for name in named if not re.search(rf"\bdef {name}\(", code)) == []
