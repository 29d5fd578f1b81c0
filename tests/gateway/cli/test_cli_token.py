"""`twinlog token`: printed once, listed without, revoked; and what is wrong is said before anything changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gateway.access.token_file import load_tokens
from gateway.access.tokens import TokenIndex
from tests.gateway.cli.cli_rig import invoke


def _file(tmp_path: Path) -> list[str]:
    return ["--tokens", str(tmp_path / "tokens.json")]


def _create(tmp_path: Path, name: str, *more: str) -> str:
    return str(json.loads(invoke("token", "create", name, *more, *_file(tmp_path), "--json").stdout)["token"])


def test_a_token_is_printed_once_and_never_again(tmp_path: Path) -> None:
    made = invoke("token", "create", "app", "reader:*", "writer:orders_*", *_file(tmp_path))
    token = made.stdout.strip()
    assert made.exit_code == 0
    assert token.startswith("twinlog_")
    assert token not in made.stderr
    found = TokenIndex(load_tokens(tmp_path / "tokens.json")).find(token)
    assert found is not None
    assert (found.name, found.grants) == ("app", ["reader:*", "writer:orders_*"])
    for words in (["list"], ["list", "--json"]):
        shown = invoke("token", *words, *_file(tmp_path)).output
        assert "app" in shown
        assert token.removeprefix("twinlog_") not in shown
        assert found.sha256 not in shown
    assert token not in (tmp_path / "tokens.json").read_text()


def test_a_token_that_ends(tmp_path: Path) -> None:
    _create(tmp_path, "app", "operator", "--valid", "90d")
    (entry,) = load_tokens(tmp_path / "tokens.json").tokens
    assert entry.expires_at is not None
    assert (entry.expires_at - entry.created_at).days == 90


@pytest.mark.parametrize(("words", "said"), [
    (["app", "reader"], "reader:TABLE"), (["app", "root"], "is no grant"), (["app", "replicator"], "certificate alone proves"),
    (["a b", "operator"], "no name of a token"), (["there", "operator"], "revoke it first"),
    (["app", "operator", "--valid", "soon"], "--valid"), (["app", "operator", "--valid", "0d"], "--valid"),
])
def test_what_is_wrong_changes_nothing(tmp_path: Path, words: list[str], said: str) -> None:
    _create(tmp_path, "there", "metrics")
    before = (tmp_path / "tokens.json").read_bytes()
    refused = invoke("token", "create", *words, *_file(tmp_path))
    assert refused.exit_code != 0
    assert said in " ".join(refused.stderr.split())
    assert refused.stdout == ""
    assert (tmp_path / "tokens.json").read_bytes() == before


def test_a_token_is_revoked_when_that_is_confirmed(tmp_path: Path) -> None:
    token = _create(tmp_path, "app", "operator")
    assert invoke("token", "revoke", "app", *_file(tmp_path), typed="n\n").exit_code == 1
    assert TokenIndex(load_tokens(tmp_path / "tokens.json")).find(token) is not None
    assert invoke("token", "revoke", "app", *_file(tmp_path), "--yes").exit_code == 0
    assert TokenIndex(load_tokens(tmp_path / "tokens.json")).find(token) is None
    again = invoke("token", "revoke", "app", *_file(tmp_path), "--yes")
    assert (again.exit_code, "no token 'app'" in again.stderr) == (1, True)


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    missing = invoke("token", "list", *_file(tmp_path))
    assert (missing.exit_code, "twinlog token create" in " ".join(missing.stderr.split())) == (2, True)
