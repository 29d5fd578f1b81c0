"""A Tab, as each shell asks for it: what may be typed next, from a pair that runs; and nothing, quickly, where none answers."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.two_sites import TwoSites
from twinlog import Client
from twinlog.cli import completion
from twinlog.cli.main import all_verbs, command_of
from twinlog.sites import Sites

COLUMNS = [{"name": name, "type": "string"} for name in ("tail", "maker", "model")]
BASH = """
eval "$(twinlog --show-completion bash)"
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_twinlog_completion twinlog
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def pair() -> Iterator[TwoSites]:
    with TwoSites() as opened:
        with Client(opened.address) as client:
            for name in ("planes", "planets"):
                client.create_table({"name": name, "columns": COLUMNS, "primary_key": ["tail"]})
        yield opened


@pytest.fixture(scope="module")
def operation(pair: TwoSites) -> str:
    """The id of a switchover that succeeded at b."""
    sites = Sites(pair.address)
    begun = sites.ask("b", "POST", "/v1/operations", {"kind": "switchover", "to": "b", "options": {}, "dry_run": False})
    sites.close()
    return str(begun["id"])


def tab(config: str, **asked: str) -> list[str]:
    """The lines that a Tab of this environment answers. Nothing may be said beside them."""
    environ = {name: text for name, text in os.environ.items() if name != "TWINLOG_CONFIG"}
    path = f"{Path(sys.executable).parent}:{environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-m", "twinlog"], env={**environ, **asked, "TWINLOG_CONFIG": config, "PATH": path},
        capture_output=True, text=True, check=False, timeout=30,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split("\n") if done.stdout.strip() else []


def bash(config: str, line: str) -> list[str]:
    words = line.split(" ")
    found = tab(config, _TWINLOG_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1))
    return [word for word in found if word]


@pytest.mark.parametrize(("line", "expected"), [
    ("twinlog swi", ["switchover"]),
    ("twinlog switchover --to ", ["a", "b"]),
    ("twinlog failover --to b", ["b"]),
    ("twinlog rejoin ", ["a", "b"]),
    ("twinlog log skip ", ["a", "b"]),
    ("twinlog get plan", ["planes", "planets"]),
    ("twinlog tables plane", ["planes", "planets"]),
    ("twinlog drop-table --confirm planet", ["planets"]),
    ("twinlog load x.csv --table planes", ["planes"]),
    ("twinlog audit run compare --tables planets,", ["planets,planes"]),
    ("twinlog put planes N1 m", ["maker=", "model="]),
    ("twinlog put planes N1 maker=", []),
    ("twinlog scan planes --where mak", ["maker"]),
    ("twinlog scan planes --columns tail,m", ["tail,maker", "tail,model"]),
    ("twinlog alter-table planes --rename mo", ["model="]),
    ("twinlog alter-table planes --drop ", ["tail", "maker", "model"]),
    ("twinlog get nothing N1 --columns ", []),
])
def test_bash_is_answered_what_there_is(pair: TwoSites, line: str, expected: list[str]) -> None:
    assert bash(pair.address, line) == expected


def test_the_pair_of_the_command_line_is_the_one_that_is_asked(pair: TwoSites) -> None:
    nobody = "http://127.0.0.1:1,http://127.0.0.1:1"
    assert bash(nobody, f"twinlog get --config {pair.address} planet") == ["planets"]
    assert bash(pair.address, f"twinlog get --config {nobody} planet") == []


def test_operations_are_offered_with_what_they_are_where_the_shell_shows_it(pair: TwoSites, operation: str) -> None:
    line = "twinlog history "
    assert operation in bash(pair.address, line)
    fish = tab(
        pair.address, _TWINLOG_COMPLETE="complete_fish", _TYPER_COMPLETE_FISH_ACTION="get-args", _TYPER_COMPLETE_ARGS=line
    )
    assert any(one.startswith(f"{operation}\tswitchover ") for one in fish)
    zsh = tab(pair.address, _TWINLOG_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS=line)
    assert f'"{operation}":"switchover ' in "\n".join(zsh)
    assert tab(pair.address, _TWINLOG_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS="twinlog get planet") == [
        "_arguments '*: :((\"planets\"))'", ""
    ]


@pytest.mark.parametrize(("words", "expected"), [
    (["twinlog", "switchover", "--to", "="], ["a", "b"]),
    (["twinlog", "scan", "planes", "--columns", "=", "tail,ma"], ["tail,maker"]),
    (["twinlog", "get", "--config", "http", ":", "//127.0.0.1", ":", "{a},http", ":", "//127.0.0.1", ":", "{b}", "planet"],
     ["planets"]),
])
def test_a_real_bash_which_divides_words_at_equals_and_colons(pair: TwoSites, words: list[str], expected: list[str]) -> None:
    ports = {site: url.rpartition(":")[2] for site, url in pair.urls.items()}
    environ = {**os.environ, "TWINLOG_CONFIG": pair.address, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "--norc", "--noprofile", "-c", BASH, "bash", *(word.format(**ports) for word in words)],
        env=environ, capture_output=True, text=True, check=False, timeout=30,
    )
    assert (done.stdout.split(), done.stderr) == (expected, "")


def test_where_no_site_answers_nothing_is_offered_and_nothing_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as hangs:  # it takes connections, and answers none
        address = f"http://127.0.0.1:{hangs.getsockname()[1]},http://127.0.0.1:1"
        assert bash(address, "twinlog get ") == []
        assert bash(address, "twinlog history ") == []
    for wrong in ("", "absent.toml", "twinlog://pair"):
        assert bash(wrong, "twinlog get ") == []
        assert bash(wrong, "twinlog switchover --to ") == []
    assert completion.DEADLINE_S <= 1.0


class Context:
    """Stands for the command line as a completer sees it."""

    def __init__(self, **params: Any) -> None:
        self.params, self.args = params, ["t"]


@pytest.mark.parametrize("answer", [
    {"tables": [{"name": "$(reboot)"}, {"name": "a b"}, {"name": "x'y"}, {"name": "t", "columns": [{"name": "`id`"}]}]},
    {"tables": None}, {"tables": [None]}, {}, {"operations": [{"id": "$(reboot)", "kind": "k", "state": "s", "created_ms": 1}]},
    {"operations": [{}]}, {"operations": 7},
])
def test_no_name_is_offered_that_a_shell_would_run(monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any]) -> None:
    monkeypatch.setattr(completion, "_answers", lambda ctx, path: iter([answer]))
    context: Any = Context(table="t")
    offered = [*completion.tables(context), *completion.columns(context), *completion.operations()(context)]
    assert set(offered) <= {"t"}


COMPLETED = {"site", "to", "table", "tables", "operation", "confirmed", "where", "drop", "rename", "values"}


@pytest.mark.parametrize("name", all_verbs())
def test_every_site_table_operation_and_column_of_a_verb_is_completed(name: str) -> None:
    """`create-table` names columns that there are not yet."""
    command = command_of(name, all_verbs()[name])
    for verb in getattr(command, "commands", {"": command}).values():
        for param in verb.params:
            if param.name in COMPLETED or (param.name == "columns" and name != "create-table"):
                assert param._custom_shell_complete is not None, f"{name} {verb.name}: {param.name}"
