"""A Tab, as each shell asks for it: what may be typed next, from a pair that runs; and nothing, quickly, where none answers."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.gateway.two_sites import TwoSites
from twinlog import Client
from twinlog.cli import completion
from twinlog.cli.main import all_verbs, command_of
from twinlog.sites import Sites

T = TypeVar("T")
PATIENCE_S = 40.0
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
            for name in ("planes", "planets", "trains"):
                client.create_table({"name": name, "columns": COLUMNS, "primary_key": ["tail"]})
            client.drop_table("trains")
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
        capture_output=True, text=True, check=False, timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split("\n") if done.stdout.strip() else []


def in_time(answer: Callable[[], T], expected: Callable[[T], bool]) -> T:
    """Returns what `answer` answers once it is as `expected`: a loaded machine may take longer than a Tab waits."""
    until_s = time.monotonic() + PATIENCE_S
    while not expected(found := answer()) and time.monotonic() < until_s:
        pass
    return found


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
    ("twinlog restore-table ", ["trains"]),
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
    assert in_time(lambda: bash(pair.address, line), expected.__eq__) == expected


def test_the_pair_of_the_command_line_is_the_one_that_is_asked(pair: TwoSites) -> None:
    nobody = "http://127.0.0.1:1,http://127.0.0.1:1"
    line = f"twinlog get --config {pair.address} planet"
    assert in_time(lambda: bash(nobody, line), bool) == ["planets"]
    assert bash(pair.address, f"twinlog get --config {nobody} planet") == []


def test_operations_are_offered_with_what_they_are_where_the_shell_shows_it(pair: TwoSites, operation: str) -> None:
    line = "twinlog history "
    fish = {"_TWINLOG_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args", "_TYPER_COMPLETE_ARGS": line}
    zsh = {"_TWINLOG_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": line}
    for asked, shown in ((fish, f"{operation}\tswitchover "), (zsh, f'"{operation}":"switchover ')):
        said = in_time(lambda asked=asked: "\n".join(tab(pair.address, **asked)), lambda said, shown=shown: shown in said)  # type: ignore[misc]
        assert shown in said
    assert operation in in_time(lambda: bash(pair.address, line), bool)
    zsh["_TYPER_COMPLETE_ARGS"] = "twinlog get planet"
    once = ["_arguments '*: :((\"planets\"))'", ""]
    assert in_time(lambda: tab(pair.address, **zsh), once.__eq__) == once


@pytest.mark.parametrize(("words", "expected"), [
    (["twinlog", "switchover", "--to", "="], ["a", "b"]),
    (["twinlog", "scan", "planes", "--columns", "=", "tail,ma"], ["tail,maker"]),
    (["twinlog", "get", "--config", "http", ":", "//127.0.0.1", ":", "{a},http", ":", "//127.0.0.1", ":", "{b}", "planet"],
     ["planets"]),
])
def test_a_real_bash_which_divides_words_at_equals_and_colons(pair: TwoSites, words: list[str], expected: list[str]) -> None:
    ports = {site: url.rpartition(":")[2] for site, url in pair.urls.items()}
    environ = {**os.environ, "TWINLOG_CONFIG": pair.address, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = ["bash", "--norc", "--noprofile", "-c", BASH, "bash", *(word.format(**ports) for word in words)]

    def answer() -> tuple[list[str], str]:
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=300)
        return done.stdout.split(), done.stderr

    assert in_time(answer, (expected, "").__eq__) == (expected, "")


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
    {"tables": None}, {"tables": [None]}, {}, {"dropped": [{"name": "$(reboot)"}]}, {"dropped": [{}]}, {"operations": [{}]},
    {"operations": [{"id": "$(reboot)", "kind": "k", "state": "s", "created_ms": 1}]}, {"operations": 7},
])
def test_no_name_is_offered_that_a_shell_would_run(monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any]) -> None:
    monkeypatch.setattr(completion, "_answers", lambda ctx, path: iter([answer]))
    context: Any = Context(table="t")
    offered = [*completion.tables(context), *completion.columns(context), *completion.dropped_tables(context)]
    assert {*offered, *completion.operations()(context)} <= {"t"}


COMPLETED = {"site", "to", "table", "tables", "operation", "confirmed", "where", "drop", "rename", "values"}


@pytest.mark.parametrize("name", all_verbs())
def test_every_site_table_operation_and_column_of_a_verb_is_completed(name: str) -> None:
    """`create-table` names columns that there are not yet."""
    command = command_of(name, all_verbs()[name])
    for verb in getattr(command, "commands", {"": command}).values():
        for param in verb.params:
            if param.name in COMPLETED or (param.name == "columns" and name != "create-table"):
                assert param._custom_shell_complete is not None, f"{name} {verb.name}: {param.name}"
