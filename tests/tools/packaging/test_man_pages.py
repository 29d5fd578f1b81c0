"""Every verb has a manual page with every option, argument and exit code, and groff sets them without a warning."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.needs import need_program
from tools.packaging import man_pages
from twinlog.cli.main import all_verbs, command_of

DATE = "2026-11-24"


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return man_pages.pages(DATE)


def set_by_groff(text: str) -> str:
    """Returns what a reader sees, on one line. Every warning is an error."""
    groff = need_program("groff", "groff-base")
    done = subprocess.run(
        [groff, "-man", "-ww", "-Tascii", "-P-cbou", "-rHY=0", "-rLL=5000n"], input=text, capture_output=True, text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return " ".join(done.stdout.split())


def test_every_verb_has_a_page_and_the_first_page_names_each(pages: dict[str, str]) -> None:
    assert pages.keys() == {"twinlog.1", *(f"twinlog-{name}.1" for name in all_verbs())}
    first = set_by_groff(pages["twinlog.1"])
    assert [name for name in all_verbs() if f" twinlog-{name}(1)" not in first] == []
    assert "twinlog-serve(1) *" in first
    assert "--version" in first


@pytest.mark.parametrize("name", all_verbs())
def test_a_page_has_all_that_the_help_has(pages: dict[str, str], name: str) -> None:
    command = command_of(name, all_verbs()[name])
    shown = set_by_groff(pages[f"twinlog-{name}.1"])
    assert shown.count(f"twinlog-{name} - ") == 1, "whatis(1) finds its line"
    commands: dict[str, Any] = getattr(command, "commands", {})
    alone = {"": command} if command.params or not commands else {}  # `twinlog backup --to` is a call of a group
    for below, one in {**alone, **commands}.items():
        assert f"twinlog {name} {below}".strip() in shown
        for param in one.params:
            entry = param.opts[0] if param.param_type_name == "option" else man_pages.shown_value(param)
            assert f" {entry} " in shown
            assert " ".join((param.help or "").replace("`", "").replace(r"\[", "[").split()) in shown
            assert param.envvar is None or f"Environment: {param.envvar}." in shown
        assert (one.epilog or "Exit codes") in shown


def test_text_is_text_and_no_request_of_roff() -> None:
    page = man_pages._text(".so /etc/passwd") + "\n" + man_pages._text("'x \\n[.pid] ~ ^ -") + "\n"
    shown = set_by_groff('.TH X 1 2026-11-24 x "x"\n.SH NAME\n' + page)
    assert ".so /etc/passwd 'x \\n[.pid] ~ ^ -" in shown


def test_the_pages_of_some_verbs_alone(tmp_path: Path) -> None:
    man_pages.write(tmp_path / "man1", DATE, {"", "get"})
    assert {path.name for path in (tmp_path / "man1").iterdir()} == {"twinlog.1", "twinlog-get.1"}
