"""The audit trail of real sites: entries of every kind, in both trails; sites that are killed; a disk that refuses."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway.access.token_file import changing, new_token
from gateway.access.tokens import with_token, without_token
from gateway.trail.chain import FOLDER
from gateway.trail.events import (
    ACCESS,
    BEGUN,
    ENDED,
    OPENED,
    PEER_CHANGE,
    PEER_HEAD,
    REFUSED,
    STARTED,
    STEP,
    STOPPED,
)
from tests.crash.processes import TABLE, Processes
from tests.gateway.cli.cli_rig import invoke

pytestmark = pytest.mark.pair
NOW = datetime(2026, 11, 24, tzinfo=UTC)
EVERYTHING = ["reader:*", "writer:*", "admin:*", "operator", "auditor", "metrics"]


class Kept(Processes):
    """A pair whose sites know two identities; the tests ask as `anna`, who may do everything."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.tokens = directory / "tokens.json"
        self.reader = new_token()
        self.anna = new_token()
        self.change_tokens(anna=(self.anna, EVERYTHING), rita=(self.reader, ["reader:*"]))
        for config in self.configs.values():
            config.write_text(config.read_text() + f'\n[access]\ntokens = "{self.tokens}"\npeer_calls = "plain"\n')
        self.http.headers["Authorization"] = f"Bearer {self.anna}"

    def change_tokens(self, *gone: str, **new: tuple[str, list[str]]) -> None:
        with changing(self.tokens) as (tokens, store):
            for name in gone:
                tokens = without_token(tokens, name)
            for name, (token, grants) in new.items():
                tokens = with_token(tokens, name, token, grants, NOW, None)
            store(tokens)

    def trail(self, site: str, *more: str) -> tuple[int, list[dict[str, Any]]]:
        """The exit code of `twinlog trail`, its entries and, last, its verdict."""
        result = invoke("trail", "--config", str(self.configs[site]), "--json", "--limit", "0", *more)
        return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()]

    def entries(self, site: str, *events: str) -> list[dict[str, Any]]:
        return [entry for entry in self.trail(site)[1][:-1] if entry["event"] in events]

    def stop(self, site: str) -> None:
        process = self.running.pop(site)
        process.terminate()
        process.join()

    def check(self, active: str = "") -> None:
        """Each trail is sound, by itself, by its log, and by the trail of the other site."""
        for site, other in (("a", "b"), ("b", "a")):
            log, theirs = self.directory / f"{site}.log", self.directory / other / "data" / FOLDER
            code, lines = self.trail(site, "--verify", "--against", str(log), "--against", str(theirs))
            assert code == 0, lines
            assert lines[-1]["known_elsewhere"] > 0


def test_what_happens_is_in_the_trail_of_its_site_and_role_changes_are_in_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = Kept(tmp_path)
    try:
        pair.start("a")
        pair.start("b")
        pair.until_roles("ACTIVE", "STANDBY")
        pair.create_table("a")
        refused = pair.http.post(f"{pair.urls['a']}/v1/tables", json=TABLE, headers={"Authorization": f"Bearer {pair.reader}"})
        assert refused.status_code == 403
        assert httpx.get(f"{pair.urls['a']}/v1/tables").status_code == 401
        pair.change_tokens("rita", nils=(new_token(), ["metrics"]))
        pair.until("the tokens were read again", lambda: len(pair.entries("a", ACCESS)) == 2)

        pair.http.headers["Twinlog-Actor"] = "anna@laptop"
        assert pair.operate("b", "switchover", "b")["state"] == "succeeded"
        pair.until_roles("STANDBY", "ACTIVE")
        pair.kill("b")
        assert pair.operate("a", "failover", "a", accept_data_loss="unknown", reason="b burnt")["state"] == "succeeded"
        pair.start("b")
        pair.until_roles("ACTIVE", "STANDBY")
        of_failover = {entry["operation"] for entry in pair.entries("a", BEGUN) if entry["what"]["kind"] == "failover"}
        pair.until("site b has heard of the failover", lambda: of_failover <= {
            entry.get("operation") for entry in pair.entries("b", PEER_CHANGE)  # a role change may have none
        })
        pair.until("each site has a line of how far the other has come", lambda: all(
            pair.entries(site, PEER_HEAD) or pair.entries(site, PEER_CHANGE) for site in "ab"
        ))
        shown = pair.http.get(f"{pair.urls['a']}/v1/trail").json()
        assert shown["entries"][-1]["number"] == shown["number"]
        monkeypatch.setenv("TWINLOG_TOKEN", pair.anna)
        screen = invoke("trail", "--config", ",".join(pair.urls.values()), "--site", "a")
        assert screen.exit_code == 0
        assert "failover to a" in screen.output
        pair.stop("a")

        who = {"name": "anna", "kind": "token", "address": "127.0.0.1", "says": "anna@laptop"}
        begun = [entry for entry in pair.entries("b", BEGUN) if entry["what"]["kind"] == "switchover"]
        assert [entry["who"] for entry in begun] == [who]
        heard = [entry["what"] for entry in pair.entries("a", PEER_CHANGE) if entry["operation"] == begun[0]["operation"]]
        assert [(said["event"], said["who"], said["who_kind"], said["says"]) for said in heard] == [
            (BEGUN, "anna", "token", "anna@laptop"), (ENDED, "anna", "token", "anna@laptop"),
        ]
        forced = next(entry for entry in pair.entries("a", BEGUN) if entry["what"]["kind"] == "failover")
        assert (forced["who"], forced["what"]["options"]["accept_data_loss"]) == (who, "unknown")
        assert {entry["who"]["name"] for entry in pair.entries("a", REFUSED)} == {"rita", "nobody"}
        changed = pair.entries("a", ACCESS)[-1]["what"]
        assert (list(changed["added"]), list(changed["removed"])) == (["nils"], ["rita"])
        assert [entry["what"].get("before") for entry in pair.entries("b", STARTED)] == [None, "ended without a stop"]
        assert pair.entries("a", STOPPED)
        assert pair.entries("a", STEP)
        pair.check()
    finally:
        pair.close()


def test_a_site_that_is_killed_again_and_again_in_the_middle_of_its_acts_has_a_sound_trail(tmp_path: Path) -> None:
    """Every act that was answered is in the trail; a beginning without an end stays one."""
    pair = Kept(tmp_path)
    try:
        pair.start("b")
        done: list[str] = []
        for life in range(4):
            pair.start("a")
            pair.until_roles("ACTIVE", "STANDBY")
            going = threading.Thread(target=_create_tables, args=(pair, f"t{life}", done))
            before = len(done)
            going.start()
            pair.until("tables are made", lambda before=before: len(done) > before + 5)  # type: ignore[misc]
            pair.kill("a")
            going.join()
        code, lines = pair.trail("a", "--against", str(pair.directory / "a.log"))
        assert code == 0, lines[-1]
        assert [line["number"] for line in lines[:-1]] == list(range(1, len(lines)))
        ended = {line["of"] for line in lines[:-1] if line["event"] == "table.create" and line["outcome"] == "done"}
        made = {line["what"]["table"] for line in lines[:-1] if line["number"] in ended}
        assert set(done) <= made
        assert sum(line["event"] == OPENED for line in lines[:-1]) == 4
    finally:
        pair.close()


def _create_tables(pair: Kept, name: str, done: list[str]) -> None:
    headers = dict(pair.http.headers)
    with httpx.Client(headers=headers) as http:
        for number in range(10_000):
            table = f"{name}_{number}"
            try:
                http.post(f"{pair.urls['a']}/v1/tables", json={**TABLE, "name": table}).raise_for_status()
            except httpx.HTTPError:
                return
            done.append(table)


def test_a_trail_that_cannot_be_written_stops_no_role_change_and_is_on_every_screen(tmp_path: Path) -> None:
    """A file stands where the folder of the trail should be."""
    pair = Kept(tmp_path)
    try:
        for site in "ab":
            (pair.directory / site / "data").mkdir(parents=True, exist_ok=True)
        pair.start("a")
        pair.start("b")
        pair.until_roles("ACTIVE", "STANDBY")
        for site in "ab":
            pair.kill(site)
            folder = pair.directory / site / "data" / FOLDER
            folder.rename(folder.with_name("kept"))
            folder.write_text("no folder")
        pair.start("a")
        pair.start("b")
        pair.until_roles("ACTIVE", "STANDBY")
        assert pair.operate("b", "switchover", "b")["state"] == "succeeded"
        pair.until_roles("STANDBY", "ACTIVE")
        refused = pair.http.post(f"{pair.urls['b']}/v1/tables", json={**TABLE, "name": "refused"})
        assert (refused.status_code, refused.json()["outcome"]) == (503, "not_applied")
        troubles = [trouble["about"] for trouble in pair.cluster("b")["troubles"]]
        assert "audit trail" in troubles
        said = [json.loads(line) for line in (pair.directory / "b.log").read_text().splitlines()]
        unwritten = [line for line in said if line.get("event") == "trail unwritten"]
        assert BEGUN in {line["act"] for line in unwritten}

        folder = pair.directory / "b" / "data" / FOLDER
        folder.unlink()
        folder.with_name("kept").rename(folder)
        pair.until("the trail is written again", lambda: not pair.cluster("b")["troubles"])
        assert pair.http.post(f"{pair.urls['b']}/v1/tables", json={**TABLE, "name": "made"}).status_code == 201
        code, lines = pair.trail("b", "--against", str(pair.directory / "b.log"))
        assert code == 0, lines[-1]
        late = [line for line in lines[:-1] if line.get("late_ms")]
        switched = [line["outcome"] for line in lines[:-1] if line["event"] == ENDED and line["what"]["kind"] == "switchover"]
        assert switched == ["done"]
        assert late
    finally:
        pair.close()
