"""A real pair with identities: what nobody may, what the operator may, and that no token stands anywhere."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench.pair import TWINLOG, Pair

pytestmark = pytest.mark.pair
BODY = {"name": "t", "columns": [{"name": "k", "type": "string"}, {"name": "v", "type": "string"}], "primary_key": ["k"]}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with Pair(tmp_path_factory.mktemp("access") / "pair", ["--access"]) as opened:
        yield opened


def _run(pair: Pair, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    config = ["--config", str(pair.folder / "operator.toml")]
    given = {**os.environ, **environment}
    return subprocess.run([*TWINLOG, *words, *config], capture_output=True, text=True, env=given, timeout=120, check=False)


def _json(done: subprocess.CompletedProcess[str]) -> Any:
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def _token(pair: Pair) -> str:
    return (pair.folder / "token").read_text().strip()


def test_nobody_does_anything_and_the_pair_goes_on(pair: Pair) -> None:
    with httpx.Client(base_url=f"http://{pair.host}:{pair.port}", trust_env=False) as http:
        assert http.get("/health/primary").status_code == 200
        assert http.put("/v1/tables/t/rows/a", json={}).status_code == 401
        assert http.post("/v1/tables", json=BODY).status_code == 401
        assert http.post("/v1/operations", json={"kind": "switchover", "to": "b"}).status_code == 401
        assert http.get("/v1/cluster", headers={"Authorization": "Bearer twinlog_wrong"}).status_code == 401
    refused = _run(pair, "status", "--json", TWINLOG_TOKEN="twinlog_wrong")
    assert refused.returncode == 1, "both answered, and showed nothing"
    assert "not valid here" in refused.stdout


def test_the_operators_commands_find_the_token_by_themselves(pair: Pair) -> None:
    _json(_run(pair, "create-table", "rows", "k:string", "v:string", "--key", "k", "--json"))
    _json(_run(pair, "put", "rows", "a", "v=1", "--json"))
    _json(_run(pair, "switchover", "--to", "b", "--yes", "--json"))
    assert _json(_run(pair, "get", "rows", "a", "--json"))["row"]["v"] == "1"
    found = _json(_run(pair, "history", "--json"))
    assert "token demo, as " in json.dumps(found)


def test_a_token_stands_in_no_log_no_file_of_a_site_and_no_process_list(pair: Pair) -> None:
    token = _token(pair)
    _json(_run(pair, "status", "--json"))
    secret = token.encode()
    holders = [path for path in pair.folder.rglob("*") if path.is_file() and secret in path.read_bytes()]
    assert {path.name for path in holders} == {"token", "token.header"}
    assert secret not in pair.log.read_bytes()
    for pid in (pair.root_pid, *pair.pids.values()):
        assert secret not in Path(f"/proc/{pid}/cmdline").read_bytes()
        assert secret not in Path(f"/proc/{pid}/environ").read_bytes()


def test_a_token_that_is_revoked_is_refused_by_the_running_sites(pair: Pair) -> None:
    tokens = ["--tokens", str(pair.folder / "tokens.json")]
    made = subprocess.run(
        [*TWINLOG, "token", "create", "app", "reader:*", *tokens, "--json"], capture_output=True, text=True, check=True
    )
    headers = {"Authorization": f"Bearer {json.loads(made.stdout)['token']}"}

    def status(wanted: int) -> int:
        """Asks until the site has read the file again, which takes it a second."""
        with httpx.Client(base_url=f"http://{pair.host}:{pair.port}", trust_env=False, headers=headers) as http:
            for _ in range(10_000):
                found = http.get("/v1/cluster").status_code
                if found == wanted:
                    break
        return found

    assert status(200) == 200
    subprocess.run([*TWINLOG, "token", "revoke", "app", *tokens, "--yes"], capture_output=True, check=True)
    assert status(401) == 401
