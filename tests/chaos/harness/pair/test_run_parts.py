"""Whole runs on other parts: without a coordinator, on PostgreSQL, on HDFS. A clean pair holds, and a planted bug is found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chaos.harness.pair.parts import LINKS, Parts
from tests.chaos.harness.test_run import executed, left_by

pytestmark = [pytest.mark.pair, pytest.mark.long]

ALONE = "workload sets\nseconds 10\nat 2 black-hole a>b for 2\nat 3 crash a for 4\nat 3.2 failover b\n"
DATABASES = (
    "needs postgresql\nworkload sets\nseconds 18\nat 2 crash pg-a for 2\nat 7 pause pg-b for 2\nat 11 reset a>pg-a for 1\n"
    "at 13 crash a for 3\nat 13.2 failover b\n"
)
SERVERS = (
    "needs hdfs\nworkload sets\nseconds 30\nat 2 crash dn-b for 2\nat 9 pause nn-b for 3\nat 16 down a>dfs-b for 2\n"
    "at 22 crash a for 4\nat 22.2 failover b\n"
)
COORDINATOR = (
    "needs coordinator-server\nworkload sets\nseconds 35\nat 2 crash pg-w for 9\nat 14 black-hole a>pg-w for 8\n"
    "at 26 crash toxiproxy for 1\nat 29 crash a for 4\nat 29.2 failover b\n"
)
SECURED = (
    "needs secured\nworkload sets\nseconds 10\nat 1 certificate-renewed a\nat 2 token-revoked clients\n"
    "at 3 black-hole a>b for 1\nat 8.5 switchover b\n"
)
PARTS: dict[tuple[str, ...], str] = {
    ("--coordinator", "no"): ALONE, ("--engine", "postgresql"): DATABASES, ("--dfs", "hdfs"): SERVERS,
    ("--secured",): SECURED,
}


def used_links(folder: Path) -> set[str]:
    """The links at which somebody connected."""
    told = (folder / "out" / "toxiproxy" / "toxiproxy.log").read_bytes().splitlines()
    lines = [json.loads(line) for line in told if line.startswith(b"{")]
    return {line["name"] for line in lines if line.get("message") == "Accepted client"}


def links_of(report: dict[str, Any]) -> set[str]:
    parts = msgspec.convert(report["parts"], Parts)
    return set(parts.link_targets) & set(LINKS)


@pytest.mark.parametrize("options", sorted(PARTS), ids=" ".join)
def test_a_pair_of_other_parts_holds(tmp_path: Path, options: tuple[str, ...]) -> None:
    code, said, report = executed(tmp_path, PARTS[options], *options)
    assert code == 0, said
    states = {each["checker"]: each["state"] for each in report["verdicts"]}
    held = {name for name, state in states.items() if state == "held"}
    assert held >= {"acknowledged", "one_active", "prefix", "convergence", "receipts", "stuck", "drained", "honest"}
    assert [span["skipped"] for span in report["faults"] if span["skipped"]] == []
    assert report["totals"]["acknowledged"] > 50
    assert used_links(tmp_path) == links_of(report), "each server is reached through its links, and nothing passes them"
    assert not left_by(tmp_path)


def test_writes_continue_while_the_coordinators_server_is_away(tmp_path: Path) -> None:
    code, said, report = executed(tmp_path, COORDINATOR, "--coordinator", "server")
    assert code == 0, said
    assert [span["skipped"] for span in report["faults"] if span["skipped"]] == []
    away = {
        span["target"]: cost["without_writes_s"] / (span["to_s"] - span["from_s"])
        for span, cost in zip(report["faults"], report["costs"], strict=True) if span["target"] in ("pg-w", "a>pg-w")
    }
    assert len(away) == 2
    assert max(away.values()) < 0.5, "of a time that is longer than a busy machine keeps a client waiting"
    assert used_links(tmp_path) == links_of(report)
    assert "coordinator in PostgreSQL" in said
    assert not left_by(tmp_path)


LOST = {"acknowledged", "receipts", "workload:sets", "invariants"}
WOKEN = "workload registers\nseconds 12\nat 3 pause a for 7\nat 3.2 failover b\n"


@pytest.mark.parametrize(("options", "bug", "plan", "checkers"), [
    (("--coordinator", "no"), "serves-when-woken", WOKEN, {"one_active", "linearizable"}),
    (("--dfs", "hdfs", "--engine", "postgresql"), "ack-before-remote", ALONE, LOST),
], ids=["no coordinator", "servers"])
def test_a_planted_bug_is_found_on_other_parts_too(
    tmp_path: Path, options: tuple[str, ...], bug: str, plan: str, checkers: set[str]
) -> None:
    code, said, report = executed(tmp_path, plan, "--bug", bug, *options)
    assert code == 1, said
    assert {each["checker"] for each in report["violations"]} & checkers, said
    assert not left_by(tmp_path)
