"""A `~user` whom the machine does not know is an error in the product's words, wherever a path can be written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.config.loading import load_site_config
from gateway.load.sources import open_source
from tools.laws.error_words import PRODUCT
from tools.sources import ROOT, repository_files
from twinlog.addresses import resolve_address, resolve_tls
from twinlog.cli.main import make_app
from twinlog.errors import ConfigError
from twinlog.wire.home_paths import at_home, expanded
from twinlog.wire.token import Token

NOBODY = "~nobody-is-called-so/x"
WHY = "names the home folder ~nobody-is-called-so, which this machine does not know: write the whole path"
HERE = "twinlog/wire/home_paths.py"


def test_home_folders_are_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/srv/ann")
    found = {path: str(at_home(path)) for path in ("~/x", "~", "x/~y", "./~y", "/x")}
    assert found == {"~/x": "/srv/ann/x", "~": "/srv/ann", "x/~y": "x/~y", "./~y": "~y", "/x": "/x"}


def test_an_unknown_user_is_named_with_the_option() -> None:
    with pytest.raises(ConfigError, match=f"--out {WHY}"):
        expanded(Path(NOBODY), "--out")


@pytest.mark.parametrize(("words", "name"), [
    (("serve", "--config", NOBODY), "--config"), (("demo", "--dir", NOBODY), "--dir"),
    (("config", "check", "--config", NOBODY), "--config"), (("token", "list", "--tokens", NOBODY), "--tokens"),
    (("audit", "ls", "--audits", NOBODY), "--audits"), (("status", "--config", NOBODY), "--config"),
])
def test_commands_name_the_option_and_show_no_traceback(words: tuple[str, ...], name: str) -> None:
    done = CliRunner().invoke(make_app(), [*words], env={"COLUMNS": "400"})
    assert (done.exit_code, f"{name} {WHY}" in done.output) == (2, True), done.output


def test_keys_and_references_of_files_are_faults_of_the_key(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text(f'data_dir = "{NOBODY}"\n[coordinator]\nurl = "file:{NOBODY}"\n', encoding="utf-8")
    with pytest.raises(ConfigError) as raised:
        load_site_config(file, {})
    faults = raised.value.fields["faults"]
    assert isinstance(faults, list)
    named = {fault["key"] for fault in faults if fault["problem"].startswith(WHY)}
    assert named == {"data_dir", "coordinator.url"}


def test_what_clients_and_loads_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=WHY):
        resolve_address(f"{NOBODY}.toml")
    with pytest.raises(ConfigError, match=f"the token's file {WHY}"):
        Token(f"file:{NOBODY}", ())
    with pytest.raises(ConfigError, match=f"the file {WHY}"):
        open_source(f"{NOBODY}.csv", "", ())
    monkeypatch.setenv("TWINLOG_CA", NOBODY)
    with pytest.raises(ConfigError, match=f"TWINLOG_CA {WHY}"):
        resolve_tls("twinlog://demo?a=http://a&b=http://b")


def test_nobody_else_expands_them() -> None:
    """Path.expanduser raises a RuntimeError for such a user, which no command shows in words."""
    bare = re.compile(r"\bexpanduser\(")
    found = [
        str(path) for path in repository_files(ROOT, ".py")
        if path.parts[0] in (*PRODUCT, "chaos") and str(path) != HERE and bare.search((ROOT / path).read_text(encoding="utf-8"))
    ]
    assert found == []
