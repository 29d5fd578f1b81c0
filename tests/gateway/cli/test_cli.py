"""The command line as a user meets it: help, screens, JSON, exit codes, errors without a traceback."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.cli.screens import detail_words
from gateway.demo.files import write_files
from tests.gateway.cli.cli_rig import Run, invoke
from tests.gateway.two_sites import TwoSites, refused_for_loss
from twinlog import Client
from twinlog.cli import data
from twinlog.cli.status import blockers
from twinlog.errors import Conflict
from twinlog.flow import Patience
from twinlog.sites import who
from twinlog.wire.exchange import Broken, Reply, SiteRequest
from twinlog.wire.http import Http

VERBS = [
    "serve", "demo", "load", "status", "tables", "put", "get", "scan", "delete", "drop-table", "restore-table",
    "validate", "switchover",
    "failover", "rejoin", "degrade", "resync", "resume", "abort", "history", "receipt", "version", "advise", "monitor",
    "backup", "backup ls", "backup verify", "backup prune", "backup release", "restore", "log ls", "log cat", "log verify",
    "config check", "config show",
]
TABLE = {
    "name": "things",
    "columns": [{"name": "id", "type": "int64"}, {"name": "name", "type": "string"}, {"name": "weight", "type": "float64"}],
    "primary_key": ["id"],
}


@pytest.fixture
def sites() -> Iterator[TwoSites]:
    with TwoSites() as pair:
        yield pair


@pytest.fixture
def run(sites: TwoSites, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("TWINLOG_CONFIG", sites.address)
    monkeypatch.setenv("COLUMNS", "100")
    return invoke


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_that_fits(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    result = invoke(*verb.split(), "--help")
    assert result.exit_code == 0
    assert max(len(line) for line in result.output.splitlines()) <= 100
    alone = ("serve", "demo", "version", "restore", "backup ls", "backup verify", "backup prune")
    takes_pair = verb not in alone and not verb.startswith(("log", "config"))
    assert ("--json" in result.output) == (verb != "serve")
    assert ("twinlog://" in result.output) == takes_pair


def test_status_shows_roles_mode_lag_and_what_is_unknown(run: Run, sites: TwoSites) -> None:
    result = run("status")
    assert result.exit_code == 0
    assert "site a is active" in result.stdout
    assert "12 records, sampled 400 ms ago" in result.stdout
    assert [line.split()[:2] for line in result.stdout.splitlines() if sites.urls["b"] in line] == [["b", "STANDBY"]]
    holds = next(line for line in result.stdout.splitlines() if "remote log holds" in line)
    assert holds.split()[-1] == "unknown", "what is not known is not 0"
    assert json.loads(run("status", "--json").stdout)["blockers"] == []


def test_status_names_what_stands_in_the_way(run: Run, sites: TwoSites) -> None:
    sites.mode = "async"
    sites.stop("b")
    result = run("status")
    assert result.exit_code == 1
    assert "unreachable" in result.stdout
    assert "twinlog resync" in result.stdout
    sites.stop("a")
    assert run("status").exit_code == 4
    assert run("status", "--json").exit_code == 4


def test_a_switchover_is_asked_followed_and_reported(run: Run) -> None:
    refused = run("switchover", typed="n\n")
    assert (refused.exit_code, "Nothing was changed" in refused.stderr) == (1, True)
    unanswered = run("switchover", typed="")
    assert (unanswered.exit_code, "--yes" in unanswered.stderr) == (1, True), "a script has nobody who answers"
    result = run("switchover", "--to", "b", "--reason", "test", "--yes")
    assert result.exit_code == 0
    assert "open" in result.stdout
    assert "op-1: succeeded" in result.stdout
    document = json.loads(run("switchover", "--to", "b", "--yes", "--json").stdout)
    assert (document["kind"], document["to"], document["state"]) == ("switchover", "b", "succeeded")
    listed = run("history").stdout
    assert listed.count("switchover to b") == 2
    assert "test" in listed


def test_a_dry_run_is_the_same_request_and_asks_nothing(run: Run, sites: TwoSites) -> None:
    result = run("switchover", "--dry-run")
    assert (result.exit_code, "would begin now" in result.stdout) == (0, True)
    assert ["would", "claim", "lock", "every"] in [line.split()[:4] for line in result.stdout.splitlines()]
    (document,) = sites.doors["b"].operations.documents.values()
    assert (document.kind, document.dry_run) == ("switchover", True)


def test_validate_shows_every_check_with_its_fix_and_begins_nothing(run: Run, sites: TwoSites) -> None:
    result = run("validate")
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[0][:2] == ["ok", "peer.answers"]
    assert lines[1][:2] == ["warning", "clock.skew"]
    assert "-> check NTP at both sites" in result.stdout
    assert "A switchover to b would begin now: 1 ok, 1 warning. Nothing was changed." in result.stdout
    found = json.loads(run("validate", "--for", "failover", "--to", "b", "--json").stdout)
    assert [check["id"] for check in found["checks"]] == ["peer.answers", "clock.skew"]
    assert run("validate", "--for", "nonsense").exit_code == 2
    assert run("validate", "--to", "c").exit_code == 2
    sites.doors["b"].operations.refusal = refused_for_loss()
    refused = run("validate", "--for", "failover", "--to", "b")
    assert (refused.exit_code, "A failover to b would be refused now" in refused.stdout) == (1, True)
    assert not sites.doors["b"].operations.documents
    sites.stop("b")
    silent = run("validate")
    assert (silent.exit_code, silent.stdout.split()[:2]) == (1, ["failed", "site.answers"])
    sites.stop("a")
    assert run("validate").exit_code == 4


def test_a_site_that_hangs_is_not_waited_for_by_validate(
    run: Run, sites: TwoSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checks may take half a minute, so it is asked first whether it is there."""
    asked: list[str] = []
    send = Http.send

    def hangs_at_b(self: Http, request: SiteRequest) -> Reply | Broken:
        if not request.url.startswith(sites.urls["b"]):
            return send(self, request)
        asked.append(request.url.removeprefix(sites.urls["b"]))
        return Broken(True, "no answer in time")

    monkeypatch.setattr(Http, "send", hangs_at_b)
    result = run("validate", "--for", "failover", "--to", "b")
    assert (result.exit_code, result.stdout.split()[:2]) == (1, ["failed", "site.answers"])
    assert asked == ["/health/live"]


@pytest.mark.parametrize(("detail", "said"), [
    ({"records_behind": 0, "active_silent_s": 0.2}, "records behind 0, active silent 200 ms"),
    ({"held_bytes": 2048, "applied_seq": 1200, "is_whole": True}, "held 2.0 KiB, applied seq 1,200, is whole yes"),
    ({"done": 1, "total": 4, "unit": "records", "eta_s": 90}, "1 of 4 records (25 %), ETA 1 min 30 s"),
])
def test_a_step_says_what_it_found_with_units(detail: dict[str, Any], said: str) -> None:
    assert detail_words(detail) == said


def test_a_failed_operation_says_how_to_go_on(run: Run, sites: TwoSites) -> None:
    sites.operations_end = "failed"
    result = run("switchover", "--yes")
    assert result.exit_code == 1
    assert "the standby is behind" in result.stderr
    assert "twinlog resume op-1" in result.stderr
    assert "by itself" not in result.stderr
    sites.operations_end = "interrupted"
    assert "resumes by itself when the gateway of site b is started" in run("switchover", "--yes").stderr
    sites.operations_end = "succeeded"
    assert run("resume", "op-1", "--yes").exit_code == 0
    assert run("abort", "op-1", "--yes").exit_code == 0
    missing = run("history", "op-9")
    assert (missing.exit_code, "twinlog history" in missing.stderr) == (1, True)


def test_a_failover_without_the_coordinator_shows_its_risk_and_needs_the_word(run: Run, sites: TwoSites) -> None:
    unanswered = run("failover", "--to", "b", "--without-coordinator", "--yes", typed="")
    assert (unanswered.exit_code, "--count" in unanswered.stderr) == (1, True)
    wrong = run("failover", "--to", "b", "--without-coordinator", "--yes", typed="yes\n")
    assert (wrong.exit_code, "No register decides" in wrong.stderr) == (2, True)
    assert sites.doors["b"].operations.documents == {}
    assert run("failover", "--to", "b", "--without-coordinator", "--yes", typed="unknown\n").exit_code == 0
    (asked,) = sites.doors["b"].operations.documents.values()
    assert asked.options == {"accept_data_loss": "unknown", "without_coordinator": True}


def test_a_failover_that_may_lose_writes_needs_the_flag_and_the_count(run: Run, sites: TwoSites) -> None:
    sites.doors["b"].operations.refusal = refused_for_loss()
    plain = run("failover", "--to", "b", "--yes")
    assert plain.exit_code == 1
    assert "Records at risk: at least 17" in plain.stderr
    assert not sites.doors["b"].operations.documents
    unanswered = run("failover", "--to", "b", "--accept-data-loss", "--yes", typed="")
    assert (unanswered.exit_code, "--count" in unanswered.stderr) == (1, True)
    wrong = run("failover", "--to", "b", "--accept-data-loss", "--yes", typed="16\n")
    assert (wrong.exit_code, "Records at risk: at least 17" in wrong.stderr) == (1, True)
    assert run("failover", "--to", "b", "--accept-data-loss", "--yes", typed="many\n").exit_code == 2
    assert not sites.doors["b"].operations.documents
    right = run("failover", "--to", "b", "--accept-data-loss", "--yes", typed="17\n")
    assert right.exit_code == 0
    assert sites.doors["b"].operations.documents["op-1"].options == {"accept_data_loss": 17}
    assert sites.doors["b"].operations.documents["op-1"].actor.split()[0] == who(), "who asks stands in the history"
    assert run("failover", "--to", "b", "--accept-data-loss", "--count", "17", "--yes").exit_code == 0
    sites.doors["b"].operations.refusal = None
    assert run("failover", "--to", "b", "--accept-data-loss", "--count", "unknown", "--yes").exit_code == 0
    assert sites.doors["b"].operations.documents["op-3"].options == {"accept_data_loss": "unknown"}
    assert "this continues as a failover without loss" in run("failover", "--to", "b", "--accept-data-loss", "--yes").stderr
    assert sites.doors["b"].operations.documents["op-4"].options == {}


def test_a_rejoin_waits_for_the_one_that_the_site_began_by_itself(
    run: Run, sites: TwoSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tour met that on a slow machine: a gateway that was just started rejoins already."""
    assert run("rejoin", "b", "--yes").exit_code == 0
    operations = sites.doors["b"].operations
    ended = operations.documents["op-1"]
    start = operations.start

    async def started(*given: Any, **named: Any) -> Any:
        operations.documents["op-1"] = replace(ended, state="running")
        monkeypatch.setattr(operations, "start", start)
        raise Conflict("operation op-1 (rejoin) is running: follow it, or abort it", running="op-1")

    monkeypatch.setattr(operations, "start", started)
    result = run("rejoin", "b", "--yes")
    assert result.exit_code == 0
    assert "waits for the end of operation op-1" in result.stderr
    assert "op-2: succeeded" in result.stdout


def test_degrade_goes_to_the_active_and_rejoin_to_the_site_that_comes_back(run: Run, sites: TwoSites) -> None:
    assert run("degrade", "--yes").exit_code == 0
    assert run("rejoin", "b", "--merge", "--yes").exit_code == 0
    assert [document.kind for document in sites.doors["a"].operations.documents.values()] == ["degrade"]
    assert [document.options for document in sites.doors["b"].operations.documents.values()] == [{"merge": True}]
    sites.stop("a")
    assert run("resync", "--yes").exit_code == 0, "whoever answers takes it"
    assert run("rejoin", "c", "--yes").exit_code == 2


def test_a_rejoin_of_the_active_is_refused_before_it_asks_unless_it_is_to_merge(run: Run, sites: TwoSites) -> None:
    refused = run("rejoin", "a", typed="y\n")
    assert (refused.exit_code, "site a is the active" in refused.stderr, "Cut" in refused.output) == (1, True, False)
    asked = run("rejoin", "a", "--merge", typed="n\n")
    assert "quarantine of site a" in asked.output
    assert "Cut" not in asked.output
    assert not sites.doors["a"].operations.documents
    assert run("rejoin", "a", "--merge", typed="y\n").exit_code == 0
    assert "Cut what diverges at site b" in run("rejoin", "b", typed="n\n").output


def test_a_site_that_keeps_the_register_alone_promises_no_automatic_return() -> None:
    """Seen at a stand-in: it forbade to start the other gateway, and promised that the pair becomes synchronous by itself."""
    document = {
        "role": "DOWNGRADE_ACTIVE", "active": {"site": "a"}, "mode": "async", "policy": "protect",
        "resync": {"automatic": True}, "serving": {"reads": True, "writes": True},
    }
    assert "automatically" in " ".join(blockers({"a": document}))
    trouble = {"about": "register", "seen": "site a keeps the register itself", "do": "name a new coordinator"}
    said = " ".join(blockers({"a": {**document, "troubles": [trouble]}}))
    assert "automatically" not in said
    assert "resync" not in said
    assert "until the sites share a register again" in said


def test_skip_goes_to_the_site_that_it_names(run: Run, sites: TwoSites) -> None:
    assert run("log", "skip", "b", "--epoch", "3", "--seq", "17", "--reason", "a view", "--yes").exit_code == 0
    (document,) = sites.doors["b"].operations.documents.values()
    assert (document.kind, document.to, document.options) == ("skip", "b", {"reason": "a view", "epoch": 3, "seq": 17})
    assert run("log", "skip", "b", "--epoch", "0", "--seq", "17", "--yes").exit_code == 2
    assert run("log", "skip", "c", "--epoch", "3", "--seq", "17", "--yes").exit_code == 2


def test_rows_go_in_and_out(run: Run, sites: TwoSites) -> None:
    assert "no table yet" in run("tables").stdout
    with Client(sites.address, Patience(deadline_s=5)) as client:
        client.create_table(TABLE)
    assert "in both logs" in run("put", "things", "1", "name=x y", "weight=2.5").stdout
    ack = json.loads(run("put", "things", "2", "name=[b]", "weight=null", "--json").stdout)
    assert "things" in run("tables").stdout
    assert "float64" in run("tables", "things").stdout
    assert json.loads(run("get", "things", "1", "--json").stdout)["row"] == {"id": 1, "name": "x y", "weight": 2.5}
    assert "[b]" in run("get", "things", "2").stdout
    assert "null" in run("scan", "things").stdout
    lines = run("scan", "things", "--where", "weight > 1", "--where", "name is not null", "--json").stdout.splitlines()
    assert [json.loads(line)["id"] for line in lines] == [1]
    assert "survived" in run("receipt", ack["receipt"]).stdout
    assert run("put", "things", "2", "--if-absent").exit_code == 1
    assert run("delete", "things", "2", "--yes").exit_code == 0
    assert run("get", "things", "2").exit_code == 1
    assert run("drop-table", "things", typed="thing\n").exit_code == 1
    assert run("drop-table", "things", "--confirm", "thing").exit_code == 1
    assert "--confirm answers" in run("drop-table", "things", typed="").stderr
    assert run("get", "things", "1").exit_code == 0
    assert run("drop-table", "things", typed="things\n").exit_code == 0
    assert run("drop-table", "things").exit_code == 1, "there is none"
    assert json.loads(run("tables", "--json").stdout) == {"tables": []}
    shown = run("tables", "--dropped").stdout.splitlines()
    assert [line.split()[0] for line in shown] == ["table", "things"]
    kept = json.loads(run("tables", "--dropped", "--json").stdout)["dropped"]
    assert [(one["name"], len(one["columns"])) for one in kept] == [("things", 3)]
    assert shown[1].rstrip().endswith(kept[0]["kept_as"])
    assert run("restore-table", "things").exit_code == 0
    assert run("tables", "--dropped").stdout == "No dropped table is kept.\n"
    assert run("tables", "things", "--dropped").exit_code == 2
    assert run("get", "things", "1").exit_code == 0
    assert run("restore-table", "things").exit_code == 1, "it is there"


@pytest.mark.parametrize(("option", "last"), [(["--snapshot"], "before"), ([], "after")])
def test_a_scan_shows_one_moment_where_it_is_asked_for(
    run: Run, sites: TwoSites, monkeypatch: pytest.MonkeyPatch, option: list[str], last: str
) -> None:
    """The last row changes once the first page, of 1,000 rows, is there."""
    rows_max, shown = 1001, data._shown
    with Client(sites.address, Patience(deadline_s=60)) as client:
        client.create_table(TABLE)
        rows = [{"id": number, "name": "before"} for number in range(rows_max)]
        client.mutate("things", [{"op": "upsert", "row": row} for row in rows])

        def change_and_show(row: Mapping[str, Any]) -> dict[str, Any]:
            if row["id"] == 0:
                client.put("things", rows_max - 1, {"name": "after"})
            return shown(row)

        monkeypatch.setattr(data, "_shown", change_and_show)
        lines = run("scan", "things", "--limit", "0", "--json", "--deadline", "60", *option).stdout.splitlines()
    assert len(lines) == rows_max
    assert json.loads(lines[-1])["name"] == last
    assert run("scan", "things", "--limit", "3", *option).exit_code == 0
    assert not sites.doors["a"].snapshots._held


def test_deleting_the_row_of_two_dots_deletes_that_row(run: Run, sites: TwoSites) -> None:
    """`..` folded away was the table itself."""
    with Client(sites.urls) as client:
        columns = [{"name": "id", "type": "string"}, {"name": "v", "type": "int64"}]
        client.create_table({"name": "orders", "columns": columns, "primary_key": ["id"]})
        client.put("orders", "first", {"v": 1})
    for key in ("..", ".", "", "a/../..", "%2e%2e", "=Li4"):
        assert run("put", "orders", key, "v=2").exit_code == 0, key
        assert run("get", "orders", key).exit_code == 0, key
        assert run("delete", "orders", key, "--yes").exit_code == 0, key
    rows = [json.loads(line)["id"] for line in run("scan", "orders", "--json").stdout.splitlines()]
    assert rows == ["first"]
    assert run("get", "orders", "=nonsense!").exit_code == 2


@pytest.mark.parametrize(("arguments", "code", "problem"), [
    (["get", "absent", "1"], 1, "absent"),
    (["put", "things", "1", "weight=heavy"], 2, "of type float64: 'heavy' is none"),
    (["put", "things", "1", "wieght=1"], 2, "there is no column 'wieght'"),
    (["put", "things", "1", "weight"], 2, "COLUMN=VALUE"),
    (["put", "things", "x", "weight=1"], 1, "id"),
    (["scan", "things", "--where", "weight"], 2, "is no condition"),
    (["receipt", "nonsense"], 1, "not a receipt"),
    (["load", "x.xls"], 2, ".parquet"),
    (["failover", "--to", "c", "--yes"], 2, "there is no site 'c'"),
    (["switchover", "--nonsense"], 2, "--nonsense"),
    (["log-level", "loud"], 2, "'loud' is not one of"),
])
def test_errors_say_what_is_wrong_and_end_with_their_code(
    run: Run, sites: TwoSites, arguments: list[str], code: int, problem: str
) -> None:
    with Client(sites.address, Patience(deadline_s=5)) as client:
        client.create_table(TABLE)
    result = run(*arguments)
    assert (result.exit_code, problem in result.stderr.replace("\n", " ")) == (code, True), result.stderr


def test_an_error_is_one_json_document_when_asked_for(run: Run) -> None:
    error = json.loads(run("get", "absent", "1", "--json").stdout)["error"]
    assert error["code"] == "not-found"


def test_without_a_pair_it_says_how_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TWINLOG_CONFIG", raising=False)
    for verb in (["status"], ["tables"], ["load", "flights"]):
        result = invoke(*verb)
        assert (result.exit_code, "TWINLOG_CONFIG" in result.stderr) == (2, True)


def test_config_check_and_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    path = write_files(tmp_path, {"a": 8401, "b": 8402}, engine="rocksdb")["a"]
    assert invoke("config", "check", "--config", str(path)).exit_code == 0
    assert invoke("config", "check", "--config", str(tmp_path / "operator.toml")).exit_code == 0
    shown = invoke("config", "show", "--config", str(path)).stdout
    assert "33_554_432" in shown
    assert "the file" in shown
    monkeypatch.setenv("TWINLOG_HTTP__PORT", "9")
    document = json.loads(invoke("config", "show", "--config", str(path), "--json").stdout)
    assert document["http.port"] == {"value": 9, "source": "environment TWINLOG_HTTP__PORT"}
    path.write_text(path.read_text().replace("policy", "polcy").replace('url = "http', 'url = "htp'))
    wrong = invoke("config", "check", "--config", str(path))
    assert wrong.exit_code == 2
    assert "did you mean policy?" in wrong.stderr
    assert "peer.url" in wrong.stderr


def test_an_operator_s_file_where_a_site_s_is_wanted_is_named_as_that(tmp_path: Path) -> None:
    (tmp_path / "operator.toml").write_text('[sites.a]\nurl = "http://h:1"\n[sites.b]\nurl = "http://h:2"\n')
    for words in (["log", "ls"], ["serve"]):
        result = invoke(*words, "--config", str(tmp_path / "operator.toml"))
        assert result.exit_code == 2
        assert "is an operator's configuration, which names both sites; here that of one site is wanted" in " ".join(
            result.stderr.split()
        )


def test_demo_refuses_before_it_starts_anything(sites: TwoSites, tmp_path: Path) -> None:
    port = sites.urls["a"].rpartition(":")[2]
    used = invoke("demo", "--dir", str(tmp_path / "d"), "--port-a", port, "--port-b", "1")
    assert (used.exit_code, f"port {port} cannot be used" in used.stderr.replace("\n", " ")) == (2, True)
    assert not (tmp_path / "d").exists()
    assert invoke("demo", "--dir", str(tmp_path / "d"), "--port-a", "7", "--port-b", "7").exit_code == 2
    for option, known in (("--dfs", "hdfs"), ("--dfs-sync", "hflush"), ("--engine", "postgresql")):
        refused = invoke("demo", "--dir", str(tmp_path / "d"), option, "tape")
        assert (refused.exit_code, known in refused.stderr) == (2, True)


def test_a_row_cannot_command_the_terminal(run: Run, sites: TwoSites) -> None:
    attack = "\x1b]0;owned\x07\x9b2J"
    with Client(sites.address, Patience(deadline_s=10)) as client:
        client.create_table(TABLE)
        client.put("things", 1, {"name": attack})
    for words in (["get", "things", "1"], ["scan", "things"], ["get", "things", "1", "--json"], ["scan", "things", "--json"]):
        found = run(*words)
        assert "owned" in found.output
        assert not {"\x1b", "\x07", "\x9b"} & set(found.output)


def test_h_is_help_everywhere() -> None:
    for words in ([], ["status"], ["failover"], ["log"], ["log", "ls"], ["config", "show"]):
        assert invoke(*words, "-h").output == invoke(*words, "--help").output


def test_the_version_is_shown() -> None:
    assert invoke("--version").output == invoke("version").output
    assert invoke("version").stdout.startswith("twinlog ")
    assert isinstance(json.loads(invoke("version", "--json").stdout), dict)


