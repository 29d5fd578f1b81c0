"""The table of the verbs is that of the verbs that there are; and a verb imports what it needs, and no other verb's modules."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import typer

from tools.sources import ROOT, repository_files
from twinlog.cli.main import added_verbs, all_verbs, command_of, find_verb
from twinlog.cli.verbs import VERBS

NOBODY = "twinlog://pair?a=http://127.0.0.1:1&b=http://127.0.0.1:1"
# What costs tens of milliseconds each, and what pulls it in.
NOT_IN_A_FAILOVER = {
    "anyio", "asyncio", "encodings.idna", "fastapi", "hdfs", "httpcore", "httpx", "jpype", "msgspec",
    "prometheus_client", "psycopg", "pyarrow", "pyspark", "rich._emoji_codes", "rich.live", "rocksdict", "spark_jobs",
    "sqlalchemy", "starlette", "storage", "structlog", "tenacity", "twinlog.cli.data", "uvicorn", "uvloop",
}
HUNG_UP = """
import os, signal, sys
from twinlog.cli.main import make_app
from typer.main import get_command
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # below nohup it is ignored already
group = get_command(make_app())
group.resolve_command(group.make_context("twinlog", sys.argv[1:], resilient_parsing=True), sys.argv[1:])
os.kill(os.getpid(), signal.SIGHUP)
print("lives")
"""
IMPORTED = """
import sys
from twinlog.cli.main import main
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


def declared() -> Iterator[tuple[str, str, str]]:
    """(name, module, first paragraph of the help) of every verb and group that a module of the command line makes."""
    for path in repository_files(ROOT, ".py"):
        folders = (("twinlog", "cli"), ("gateway", "cli"), ("gateway", "backup"))
        if path.parts[:-1] not in folders or path.stem in ("__init__", "main"):
            continue
        yield from declared_in(".".join(path.with_suffix("").parts))
    yield from declared_in("gateway.cli.main")


def declared_in(name: str) -> Iterator[tuple[str, str, str]]:
    module = importlib.import_module(name)
    for made in vars(module).values():
        if not isinstance(made, typer.Typer):
            continue
        if isinstance(made.info.help, str):
            group = next(verb for verb, row in all_verbs().items() if row.module == name and getattr(module, row.app) is made)
            yield group, name, made.info.help
            continue
        for one in made.registered_commands:
            assert one.callback is not None
            text = inspect.getdoc(one.callback) or ""
            yield one.name or one.callback.__name__, name, text.split("\n\n")[0].replace("\n", " ")


def test_the_tables_have_every_verb_with_its_own_line() -> None:
    assert {name: (verb.module, verb.help) for name, verb in all_verbs().items()} == {
        name: (module, text) for name, module, text in declared()
    }


def test_each_distribution_names_its_own_verbs() -> None:
    assert {verb.module.split(".")[0] for verb in VERBS.values()} == {"twinlog"}
    assert {verb.module.split(".")[0] for verb in added_verbs().values()} == {"gateway"}
    assert VERBS.keys() & added_verbs().keys() == set()


def test_only_a_verb_that_the_client_does_not_have_is_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def unexpected(**_: str) -> None:
        raise AssertionError("the entry points were read")

    added_verbs.cache_clear()
    monkeypatch.setattr(importlib.metadata, "entry_points", unexpected)
    assert find_verb("status") is VERBS["status"]
    with pytest.raises(AssertionError, match="entry points"):
        find_verb("failover")


@pytest.mark.parametrize("name", all_verbs())
def test_every_verb_can_be_called(name: str) -> None:
    command = command_of(name, all_verbs()[name])
    assert command.name == name
    assert all_verbs()[name].help in (command.help or "").replace("\n", " ")


@pytest.mark.parametrize("words", [
    ["status"], ["status", "--json"], ["failover", "--to", "b", "--dry-run"], ["failover", "--to", "b", "--dry-run", "--json"],
    ["switchover", "--to", "b", "--dry-run"], ["history"],
], ids=" ".join)
def test_what_is_typed_in_the_middle_of_a_failover_imports_little(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, *words, "--config", NOBODY], capture_output=True, text=True, check=False
    )
    assert done.returncode == 4, done.stderr
    imported = set(done.stderr.splitlines()[-1].split())
    assert "twinlog.cli.main" in imported
    tops = {name.split(".")[0] for name in imported} | imported
    assert sorted(tops & NOT_IN_A_FAILOVER) == []
    assert ("importlib.metadata" in imported) == (words[0] not in VERBS)


@pytest.mark.parametrize("line", ["twinlog fail", "twinlog failover --to ", "twinlog switchover --", "twinlog status --"])
def test_so_does_a_tab_there(line: str) -> None:
    words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_TWINLOG_COMPLETE": "complete_bash"}
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED], env={**os.environ, **words, "TWINLOG_CONFIG": NOBODY}, capture_output=True, text=True,
        check=False,
    )
    assert (done.returncode, bool(done.stdout.strip())) == (0, True), done.stderr
    imported = set(done.stderr.splitlines()[-1].split())
    assert sorted(({name.split(".")[0] for name in imported} | imported) & NOT_IN_A_FAILOVER) == []


@pytest.mark.parametrize("verb", ["serve", "demo", "monitor", "failover", "audit", "load"])
def test_a_verb_of_the_server_outlives_its_terminal(verb: str) -> None:
    """The end of a terminal, or of the connection to a machine, is no decision about a site."""
    done = subprocess.run([sys.executable, "-c", HUNG_UP, verb], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "lives\n"), done.stderr
