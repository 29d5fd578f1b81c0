"""The file of tokens: no token in it, for its owner alone, whole at any moment, and read again when it changes."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from gateway.access.authenticator import Presented
from gateway.access.gate import Gate
from gateway.access.limits import LimitSettings
from gateway.access.token_file import TokenFile, changing, load_tokens, new_token
from gateway.access.tokens import TokenEntry, TokenIndex, TokenList, read_tokens, with_token, without_token, write_tokens
from tests.gateway.access.rig import NOW, Clock, token_file
from twinlog.errors import ConfigError, Conflict, InvalidInput, NotFound, Unauthenticated

MOMENTS = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))
ENTRIES = st.builds(
    TokenEntry, name=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,10}", fullmatch=True),
    sha256=st.binary(min_size=32, max_size=32).map(bytes.hex),
    grants=st.lists(st.sampled_from(["reader:*", "writer:a_*", "operator"]), max_size=3), created_at=MOMENTS,
    expires_at=st.none() | MOMENTS,
)
LISTS = st.lists(ENTRIES, max_size=5, unique_by=lambda entry: entry.name).map(TokenList)


@given(LISTS)
def test_a_list_comes_back_as_it_was_written(tokens: TokenList) -> None:
    assert read_tokens(write_tokens(tokens)) == tokens


@given(st.binary(max_size=200) | st.recursive(
    st.none() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["tokens", "name", "sha256", "grants"]), inner, max_size=4
    ), max_leaves=8,
).map(lambda value: json.dumps(value).encode()))
def test_what_is_no_such_file_is_a_config_error_or_a_list(data: bytes) -> None:
    with contextlib.suppress(ConfigError):
        assert isinstance(read_tokens(data), TokenList)


@given(LISTS, st.text(max_size=50))
def test_an_unknown_token_is_never_found(tokens: TokenList, token: str) -> None:
    assert TokenIndex(tokens).find(token) is None


def test_tokens_whose_digests_begin_alike_are_kept_apart() -> None:
    token = new_token()
    own = with_token(TokenList(), "own", token, ["operator"], NOW, None).tokens[0]
    other = TokenEntry("other", own.sha256[:62] + "00", ["admin:*"], NOW)
    index = TokenIndex(TokenList([other, own]))
    found = index.find(token)
    assert found is not None
    assert found.name == "own"
    assert TokenIndex(TokenList([other])).find(token) is None


@pytest.mark.parametrize("data", [
    b'{"tokens": [{"name": "a", "sha256": "00", "grants": [], "created_at": "2026-01-01T00:00:00Z"}]}',
    b'{"tokens": [{"name": "a b", "sha256": "%s", "grants": [], "created_at": "2026-01-01T00:00:00Z"}]}' % (b"0" * 64),
    b'{"tokens": [{"name": "a", "sha256": "%s", "grants": ["root"], "created_at": "2026-01-01T00:00:00Z"}]}' % (b"0" * 64),
    b'{"tokens": [{"name": "a", "sha256": "%s", "grants": [], "created_at": "2026-01-01T00:00:00Z", "x": 1}]}' % (b"0" * 64),
    b'{"tokens": [], "more": 1}', b"", b"[]",
])
def test_a_file_that_says_more_or_less_is_refused(data: bytes) -> None:
    with pytest.raises(ConfigError):
        read_tokens(data)


def test_a_name_stands_in_it_once() -> None:
    one = with_token(TokenList(), "app", new_token(), [], NOW, None)
    with pytest.raises(Conflict, match="revoke it first"):
        with_token(one, "app", new_token(), [], NOW, None)
    with pytest.raises(ConfigError, match="twice"):
        read_tokens(write_tokens(TokenList([*one.tokens, *one.tokens])))
    assert without_token(one, "app") == TokenList()
    with pytest.raises(NotFound, match="the file has app"):
        without_token(one, "ap")


def test_a_token_that_was_over_before_it_began_is_refused() -> None:
    with pytest.raises(InvalidInput, match="never be valid"):
        with_token(TokenList(), "app", new_token(), [], NOW, NOW)


def test_the_file_has_no_token_and_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    before = os.umask(0)
    try:
        tokens = token_file(path)
    finally:
        os.umask(before)
    text = path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert len(tokens) == len(set(tokens.values())) > 3
    assert all(token not in text and token.removeprefix("twinlog_") not in text for token in tokens.values())
    assert os.listdir(tmp_path) == ["tokens.json"]


def test_two_commands_at_once_lose_neither_change(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"

    def add(name: str) -> None:
        with changing(path) as (tokens, store):
            store(with_token(tokens, name, new_token(), ["operator"], NOW, None))

    threads = [threading.Thread(target=add, args=(f"t{number}",)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {entry.name for entry in load_tokens(path).tokens} == {f"t{number}" for number in range(12)}


def test_a_change_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tokens.json"
    token_file(path, {"a": ["operator"]})
    before = path.read_bytes()

    def fail(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(ConfigError, match="No space left"):
        token_file(path, {"b": ["operator"]})
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["tokens.json"]


async def test_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    tokens = token_file(path, {"a": ["operator"], "b": ["metrics"]})
    file = TokenFile(path, Clock())
    assert not await file.refresh()
    with changing(path) as (found, store):
        store(without_token(found, "a"))
    assert await file.refresh()
    with pytest.raises(Unauthenticated):
        await file.authenticate(Presented(tokens["a"]))
    proof = await file.authenticate(Presented(tokens["b"]))
    assert proof is not None
    assert (proof.caller.name, proof.caller.kind, proof.caller.grants.texts()) == ("b", "token", ["metrics"])


@pytest.mark.parametrize("spoil", ["remove", "no JSON", "a folder"])
async def test_a_file_that_cannot_be_read_changes_nothing_and_is_said_once(tmp_path: Path, spoil: str) -> None:
    structlog.reset_defaults()
    path = tmp_path / "tokens.json"
    tokens = token_file(path, {"a": ["operator"]})
    file = TokenFile(path, Clock())
    path.unlink()
    if spoil == "no JSON":
        path.write_text("{")
    elif spoil == "a folder":
        path.mkdir()
    with capture_logs() as logged:
        for _ in range(3):
            assert not await file.refresh()
    assert [entry["log_level"] for entry in logged].count("error") == 1
    assert await file.authenticate(Presented(tokens["a"])) is not None
    gate = Gate([file], LimitSettings(), wall_s=Clock(), now_s=Clock())
    [said] = gate.notices()
    assert str(path) in said
    assert "stay valid" in said
    if spoil == "a folder":
        path.rmdir()
    path.unlink(missing_ok=True)
    token_file(path, {"a": ["operator"]})
    assert await file.refresh()
    assert gate.notices() == []


async def test_a_token_ends_at_its_time(tmp_path: Path) -> None:
    path, clock = tmp_path / "tokens.json", Clock()
    tokens = token_file(path, {"a": ["operator"]}, NOW + timedelta(hours=1))
    file = TokenFile(path, clock)
    proof = await file.authenticate(Presented(tokens["a"]))
    assert proof is not None
    assert proof.until_s == clock.s + 3600
    clock.s += 3600
    with pytest.raises(Unauthenticated) as refused:
        await file.authenticate(Presented(tokens["a"]))
    assert "expired" in refused.value.refusal
    assert "expired" not in refused.value.message


async def test_what_is_no_token_of_ours_is_left_to_others(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    token_file(path)
    assert await TokenFile(path, Clock()).authenticate(Presented("a.b.c")) is None
    assert await TokenFile(path, Clock()).authenticate(Presented("", ("PEM",))) is None


def test_others_who_may_read_it_are_warned_of(tmp_path: Path) -> None:
    structlog.reset_defaults()
    path = tmp_path / "tokens.json"
    token_file(path)
    path.chmod(0o644)
    with capture_logs() as logged:
        TokenFile(path, Clock())
    assert [entry["mode"] for entry in logged] == ["644"]


def test_a_missing_file_says_how_it_is_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="twinlog token create"):
        TokenFile(tmp_path / "tokens.json", Clock())
