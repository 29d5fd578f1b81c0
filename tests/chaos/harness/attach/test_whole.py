"""Whole runs against a pair that was started by somebody else: what holds, what is found, and what is left behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from chaos.harness.pair.asked import SITES
from chaos.harness.pair.links import Links
from chaos.harness.pair.recovery import is_whole
from chaos.harness.pair.sites import RealSites
from chaos.servers import toxiproxy
from gateway.demo.servers import child_environ
from tests.processes import wait_for

pytestmark = [pytest.mark.pair, pytest.mark.long]

CHANGES = "workload sets\nseconds 9\nat 1 latency c-ab for 2 how 20\nat 2 switchover standby\nat 5 black-hole a-b for 1\n"


@dataclass
class Theirs:
    """A pair behind a Toxiproxy."""

    sites: RealSites
    links: Links
    server: toxiproxy.Toxiproxy

    def command(self, plan: str, *options: str) -> list[str]:
        path = self.sites.folder / "plan.txt"
        path.write_text(plan)
        return [
            sys.executable, "-m", "chaos", "attach", "--config", str(self.sites.operator_config), "--plan", str(path), "--yes",
            "--toxiproxy", f"{self.server.host}:{self.server.port}", "--out", str(self.out), *options,
        ]

    def attach(self, plan: str) -> tuple[int, str, dict[str, Any]]:
        done = subprocess.run(self.command(plan), capture_output=True, text=True, check=False, env=child_environ())
        return done.returncode, done.stdout + done.stderr, self.report()

    def report(self) -> dict[str, Any]:
        path = self.out / "report.json"
        return json.loads(path.read_bytes()) if path.exists() else {}

    @property
    def out(self) -> Path:
        return self.sites.folder / "out"

    def tables(self) -> list[str]:
        active = next(site for site, document in self.sites.documents().items() if document["role"] == "ACTIVE")
        return [table["name"] for table in self.sites.direct.ask(active, "GET", "/v1/tables")["tables"]]

    def toxics(self) -> list[str]:
        return [name for proxy in self.links._control.proxies().values() for name in proxy.toxics()]


@pytest.fixture
def theirs(tmp_path: Path) -> Iterator[Callable[[str], Theirs]]:
    toxiproxy.fetch()
    with ExitStack() as around:
        def start(bug: str = "") -> Theirs:
            sites, server = RealSites(tmp_path, bug), toxiproxy.Toxiproxy(tmp_path / "toxiproxy")
            around.callback(server.stop)
            server.start()
            sites.configure()
            links = around.enter_context(Links(server, sites.upstream, sites.links).opened())
            around.callback(sites.end)
            for site in SITES:
                sites.start(site)
            assert wait_for(lambda: is_whole(sites.documents()))
            sites.direct.ask("a", "POST", "/v1/tables", {
                "name": "sets", "columns": [{"name": "id", "type": "string"}], "primary_key": ["id"],
            })
            return Theirs(sites, links, server)

        yield start


def test_a_pair_without_a_bug_holds_and_is_left_as_it_was(theirs: Callable[[str], Theirs]) -> None:
    pair = theirs("")
    pids = [pair.sites.pid(site) for site in SITES]
    code, said, report = pair.attach(CHANGES)
    assert code == 0, said
    states = {each["checker"]: each["state"] for each in report["verdicts"]}
    held = {name for name, state in states.items() if state == "held"}
    assert held >= {
        "linearizable", "acknowledged", "phantom", "convergence", "one_active", "honest", "receipts", "deadline", "scans",
        "porcupine", "workload:sets", "stuck", "drained", "status",
    }
    unseen = {name for name, state in states.items() if state == "not checked"}
    assert unseen >= {"prefix", "bounded", "two_copies", "processes", "invariants", "stopping"}
    assert report["totals"]["acknowledged"] > 50
    assert sorted(span["kind"] for span in report["faults"] if not span["skipped"]) == ["black-hole", "latency", "switchover"]
    assert [each["command"].split()[1] for each in report["commands"]] == ["switchover"]
    assert [pair.sites.pid(site) for site in SITES] == pids
    assert is_whole(pair.sites.documents())
    assert pair.tables() == ["sets"], "a table of theirs, of the same name as the workload's"
    assert not pair.toxics()


def test_a_planted_bug_is_found_from_outside(theirs: Callable[[str], Theirs]) -> None:
    plan = "workload registers\nseconds 8\nat 1 latency c-ab for 5 how 20/10\n"
    code, said, report = theirs("answer-of-another").attach(plan)
    assert code == 1, said
    assert {each["checker"] for each in report["violations"]} & {"linearizable", "phantom"}


def test_somebody_who_ends_it_early_finds_the_pair_as_it_was_and_a_report(theirs: Callable[[str], Theirs]) -> None:
    pair = theirs("")
    plan = "workload bank\nseconds 90\nat 1 bandwidth a-b for 80\nat 1 black-hole c>b for 80\n"
    with subprocess.Popen(
        pair.command(plan), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=child_environ()
    ) as attached:
        assert attached.stdout is not None
        assert next((line for line in attached.stdout if "at 1.0 black-hole c>b" in line), "")
        assert wait_for(lambda: len(pair.toxics()) == 6)
        attached.send_signal(signal.SIGINT)
        said = attached.stdout.read()
    assert attached.returncode == 3, said
    assert "it was ended before its time" in said
    assert not pair.toxics()
    assert pair.tables() == ["sets"]
    assert not pair.report()["violations"]
    assert {each["checker"]: each["state"] for each in pair.report()["verdicts"]}["acknowledged"] == "held"
