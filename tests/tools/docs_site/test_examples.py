"""Everything that the pages show can be typed: each command of `twinlog` and of `python -m chaos` is one, each block of Python
or TOML can be read.

The tours and the upgrade run what they can (tools/tour.py); this reads the rest too, without a pair. Audits have a test of
their own (tests/spark_jobs/audit/test_audit_docs.py).
"""

from __future__ import annotations

import ast
import re
import shlex
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import typer

from chaos.harness import arguments as harness
from chaos.harness.attach import cli as attach
from chaos.harness.incident import cli as incident
from chaos.simulate import cli as simulator
from tools.sources import ROOT, repository_files
from twinlog.cli.main import all_verbs, command_of

PAGES = [path for path in repository_files(ROOT, ".md") if path.name != "CHANGELOG.md"]  # it has what was there then
BLOCK = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL)
ENDS = re.compile(r" *(?:&&|\|\|?|2?>>?|<|;|&(?= |$))")  # of a command in a line of the shell


def blocks(page: Path, *languages: str) -> list[str]:
    found = BLOCK.finditer((ROOT / page).read_text(encoding="utf-8"))
    return [re.sub(f"^{one['indent']}", "", one["text"], flags=re.MULTILINE) for one in found if one["language"] in languages]


def typed(page: Path) -> list[str]:
    """The commands of `twinlog` in the blocks of a page, each with all of its options."""
    lines = "\n".join(re.sub(r"\\\n\s*", "", block) for block in blocks(page, "", "sh"))
    found = re.findall(r"^\$? *(?:until )?(twinlog [a-z].*)$", lines, re.MULTILINE)
    return [ENDS.split(line.partition(" # ")[0])[0].strip() for line in found]


def named(page: Path) -> list[str]:
    """The commands in the text of a page, which may leave options out."""
    text = BLOCK.sub("", (ROOT / page).read_text(encoding="utf-8"))
    return [re.sub(r"\s+", " ", command) for command in re.findall(r"`(twinlog [a-z][^`]*)`", text)]


def found_command(words: list[str]) -> tuple[Any, list[str]]:
    """The command that `words` call, and what is left of them."""
    command: Any = command_of(words[0], all_verbs()[words[0]])
    rest = words[1:]
    while rest and rest[0] in getattr(command, "commands", {}):
        command, rest = command.commands[rest[0]], rest[1:]
    return command, rest


def of_the_harness(page: Path) -> list[str]:
    """Returns what the text and the blocks of a page give to `python -m chaos`."""
    text = re.sub(r"\\\n\s*", "", (ROOT / page).read_text(encoding="utf-8"))
    found = re.findall(r"python -m chaos ([^`\n]*)", text)
    return [ENDS.split(re.split(r"\s*(?:#|\)| \.\.\.|\()", one)[0])[0].strip() for one in found]


def parsed_by_the_harness(words: list[str]) -> bool:
    """False: its parser is called by its main alone. The process ends where the words are wrong."""
    if words[0] in ("run", "matrix", "soak", "planted", "list") or (words[0] == "replay" and words[1].endswith(".json")):
        harness.arguments(words)
    elif words[0] in ("simulate", "bugs", "replay"):
        simulator.arguments(words)
    elif words[0] in ("attach", "from-journal"):
        {"attach": attach, "from-journal": incident}[words[0]].arguments(words[1:])
    else:
        return False
    return True


def of_audits(words: list[str]) -> bool:
    return words[:2] == ["audit", "run"]  # Spark's jobs read their options themselves


ALL_TYPED = sorted({(str(page), command) for page in PAGES for command in typed(page)})
ALL_NAMED = sorted({(str(page), command) for page in PAGES for command in named(page)})
OF_THE_HARNESS = sorted({
    (str(page), command) for page in PAGES for command in of_the_harness(page) if " " in command
    and not command.startswith(("fuzz ", "porcupine ", "toxiproxy ", "hdfs ", "postgres "))
})


def test_there_are_commands_to_judge() -> None:
    assert (len(ALL_TYPED) > 60, len(ALL_NAMED) > 150, len(OF_THE_HARNESS) > 20) == (True, True, True)


@pytest.mark.parametrize(("page", "command"), ALL_TYPED)
def test_a_command_in_a_block_is_taken_as_it_stands(page: str, command: str) -> None:
    words = shlex.split(command)[1:]
    if of_audits(words):
        return
    judged, rest = found_command(words)
    with suppress(typer.Exit):  # of --help, and of a group without a command, which shows its help
        judged.make_context(command, list(rest))


@pytest.mark.parametrize(("page", "command"), OF_THE_HARNESS)
def test_a_command_of_the_harness_is_taken_as_it_stands(page: str, command: str) -> None:
    assert parsed_by_the_harness(shlex.split(command))


def test_a_command_in_the_text_has_its_options() -> None:
    unknown = []
    for page, command in ALL_NAMED:
        words = re.sub(r"[\[\]]", " ", command).replace("\\|", " ").split()[1:]
        if of_audits(words):
            continue
        judged, rest = found_command(words)
        options = {name for parameter in judged.params for name in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}
        wrong = [word for word in rest if word.startswith("--") and word.partition("=")[0] not in options]
        unknown += [f"{page}: {command}: {word}" for word in wrong]
    assert unknown == []


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_python_and_toml_can_be_read(page: Path) -> None:
    for code in blocks(page, "python"):
        ast.parse(code)
    for code in blocks(page, "toml"):
        assert tomllib.loads(code), code
