"""The section [access]: what it must say, and that no secret of it is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.access.log_in.log_in import LogIn
from gateway.access.opening import apply, open_gate
from gateway.access.settings import AccessSettings
from gateway.config.changes import differences
from gateway.config.loading import load_operator_config, load_site_config
from gateway.config.reading import effective
from gateway.config.security import config_warnings
from gateway.demo.files import write_files
from twinlog.errors import ConfigError, InvalidInput

OIDC = '[access.oidc]\nissuer = "https://id"\naudience = "shop"\n'
KEYS = 'jwks_url = "https://id/keys"\n'
CLIENT, REDIRECT = 'client_id = "page"\n', 'redirect_url = "https://127.0.0.1:8401/ui/login/callback"\n'
LOGIN = OIDC + KEYS + "[access.oidc.login]\n"


def _load(tmp_path: Path, access: str) -> Any:
    path = write_files(tmp_path, {"a": 1, "b": 2}, engine="rocksdb", peer_ports={"a": 3, "b": 4})["a"]
    path.write_text(path.read_text() + access)
    return load_site_config(path, {})


@pytest.mark.parametrize(("access", "key", "said"), [
    ("[access]\n", "access", "knows nobody"),
    ('[access.certificates]\n"ann" = "operator"\n', "access.certificates", "what kind of name"),
    ('[access.certificates]\n"cn:ann" = "root"\n', "access.certificates", "no grant"),
    (OIDC, "access.oidc.jwks_url", "one of the two"),
    (OIDC + 'jwks_url = "https://id/keys"\njwks_file = "keys"\n', "access.oidc.jwks_url", "one of the two"),
    (OIDC + 'jwks_url = "http://id.example/keys"\n', "access.oidc.jwks_url", "not encrypted"),
    (OIDC + 'jwks_url = "https://id/keys"\n[access.oidc.grants]\ndba = "root"\n', "access.oidc.grants", "no grant"),
    (LOGIN + REDIRECT, "access.oidc.login.client_id", "is missing"),
    (LOGIN + REDIRECT + 'client_id = ""\n', "access.oidc.login.client_id", "is empty"),
    (LOGIN + CLIENT, "access.oidc.login.redirect_url", "is missing"),
    (LOGIN + CLIENT + 'redirect_url = "https://gateway-a.example/ui"\n', "access.oidc.login.redirect_url", "callback alone"),
    (LOGIN + CLIENT + 'redirect_url = "https://other.example/ui/login/callback"\n', "access.oidc.login.redirect_url",
     "not known by that name"),
    (LOGIN + CLIENT + REDIRECT.replace("https://127.0.0.1", "http://192.0.2.1"), "access.oidc.login.redirect_url",
     "not encrypted"),
    (LOGIN + CLIENT + REDIRECT + 'client_secret = "hidden"\n', "access.oidc.login.client_secret", "plain text"),
    (LOGIN + CLIENT + REDIRECT + 'client_secret = "env:NONE"\n', "access.oidc.login.client_secret", "not set"),
    (LOGIN + CLIENT + REDIRECT + 'token_url = "https://id/t"\n', "access.oidc.login.authorization_url", "is missing"),
    (LOGIN + CLIENT + REDIRECT + 'authorization_url = "https://id/a"\n', "access.oidc.login.token_url", "is missing"),
    (LOGIN + CLIENT + REDIRECT + 'authorization_url = "https://id/a"\ntoken_url = "http://id/t"\n',
     "access.oidc.login.token_url", "not encrypted"),
    (LOGIN + CLIENT + REDIRECT + 'scopes = ["profile"]\n', "access.oidc.login.scopes", "no 'openid'"),
    (LOGIN + CLIENT + REDIRECT + 'scopes = ["openid", "a b"]\n', "access.oidc.login.scopes", "has 'a b'"),
    (LOGIN + CLIENT + REDIRECT + 'session_s = -1\n', "access.oidc.login.session_s", "out of range"),
    (LOGIN.replace("https://id\"", "http://id\"") + CLIENT + REDIRECT, "access.oidc.issuer", "an encrypted address alone"),
    (OIDC + KEYS + 'ca = "none.pem"\n', "access.oidc.ca", "cannot be used"),
    ('[access]\ntokens = "t"\npeer_calls = "open"\n', "access.peer_calls", "is 'open'"),
    ('[access]\ntokens = "t"\n[access.limits]\nrequests_per_s = -1\n', "access.limits.requests_per_s", "out of range"),
    ('[access]\ntokens = "t"\ntoken = "t"\n', "access.token", "did you mean access.tokens"),
])
def test_what_is_wrong_is_named(tmp_path: Path, access: str, key: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _load(tmp_path, access)
    faults = caught.value.fields["faults"]
    assert isinstance(faults, list)
    assert [(fault["key"], said in fault["problem"]) for fault in faults] == [(key, True)]


def test_without_a_listener_of_its_own_the_other_site_needs_a_word_to_come_in(tmp_path: Path) -> None:
    path = write_files(tmp_path, {"a": 1, "b": 2}, engine="rocksdb")["a"]
    plain = path.read_text()
    path.write_text(plain + '[access]\ntokens = "t"\n')
    with pytest.raises(ConfigError) as caught:
        load_site_config(path, {})
    assert [fault["key"] for fault in caught.value.fields["faults"]] == ["access.peer_calls"]  # type: ignore[index, union-attr]
    path.write_text(plain + '[access]\ntokens = "t"\npeer_calls = "plain"\n')
    assert [each["key"] for each in config_warnings(load_site_config(path, {}))] == ["access.peer_calls"]


def test_paths_are_beside_the_file_and_defaults_deny(tmp_path: Path) -> None:
    access = _load(tmp_path, '[access]\ntokens = "t.json"\n').access
    assert access.tokens == tmp_path / "a" / "t.json"
    assert access.peer_calls == "certificate"
    assert _load(tmp_path / "other", "").access is None


def test_a_loopback_issuer_needs_no_encryption(tmp_path: Path) -> None:
    for host in ("127.0.0.1:9", "localhost", "[::1]:9"):
        assert _load(tmp_path / host, OIDC + f'jwks_url = "http://{host}/keys"\n').access.oidc is not None


def test_a_gate_that_knows_nobody_does_not_open(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="knows nobody"):
        open_gate(AccessSettings())
    with pytest.raises(ConfigError, match="twinlog token create"):
        open_gate(AccessSettings(tokens=tmp_path / "none"))
    with pytest.raises(InvalidInput, match="no distribution adds"):
        open_gate(_load(tmp_path, '[access.plugin]\nname = "ldap"\n').access)


# ---- the operator's file
def _operator(tmp_path: Path, token: str, environ: dict[str, str] | None = None) -> Any:
    write_files(tmp_path, {"a": 1, "b": 2}, engine="rocksdb")
    path = tmp_path / "operator.toml"
    path.write_text(f'token = "{token}"\n' + path.read_text())
    return load_operator_config(path, environ or {})


def test_the_token_of_an_operator_is_a_reference_and_shown_to_nobody(tmp_path: Path) -> None:
    tmp_path.joinpath("mine").write_text("twinlog_secret\n")
    config = _operator(tmp_path, "file:mine")
    assert config.token == "twinlog_secret"
    assert "secret" not in repr(config)
    assert ("token", "***", str(tmp_path / "operator.toml")) in list(effective(config))


def test_the_variable_of_clients_is_no_setting(tmp_path: Path) -> None:
    tmp_path.joinpath("mine").write_text("twinlog_secret")
    assert _operator(tmp_path, "file:mine", {"TWINLOG_TOKEN": "twinlog_other"}).token == "twinlog_secret"


@pytest.mark.parametrize(("token", "content", "said"), [
    ("twinlog_secret", "", "plain text"), ("file:none", "", "cannot be read"), ("file:mine", "a\nb", "newline"),
])
def test_a_token_that_cannot_be_sent_is_a_fault(tmp_path: Path, token: str, content: str, said: str) -> None:
    tmp_path.joinpath("mine").write_text(content)
    with pytest.raises(ConfigError) as caught:
        _operator(tmp_path, token)
    faults = caught.value.fields["faults"]
    assert isinstance(faults, list)
    assert [(fault["key"], said in fault["problem"]) for fault in faults] == [("token", True)]
    assert "twinlog_secret" not in repr(faults)


def test_a_log_in_by_an_issuer_and_its_secret_is_shown_nowhere(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "secret").write_text("hidden\n")
    config = _load(tmp_path, LOGIN + CLIENT + REDIRECT + 'client_secret = "file:secret"\nscopes = ["openid", "groups"]\n')
    login = config.access.oidc.login
    assert (login.client_secret, login.scopes, login.session_s) == ("hidden", ("openid", "groups"), 0.0)
    shown = dict((key, value) for key, value, _ in effective(config))
    assert shown["access.oidc.login.client_secret"] == "***"
    assert "hidden" not in repr(config)


async def test_a_gate_with_a_log_in_by_an_issuer_takes_what_changes_at_run_time(tmp_path: Path) -> None:
    access = _load(tmp_path, LOGIN + CLIENT + REDIRECT).access
    gate = open_gate(access)
    log_in = next(one for one in gate.authenticators if isinstance(one, LogIn))
    assert log_in.fault == ""
    other = _load(tmp_path / "other", LOGIN + CLIENT + REDIRECT + "session_s = 60\n").access
    apply(gate, other)
    assert log_in._login.session_s == 60
    assert {change.change.key: change.at_run_time for change in differences(access, other)} == {"oidc.login.session_s": True}
    await gate.close()
