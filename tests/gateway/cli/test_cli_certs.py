"""`twinlog certs` and what `twinlog config check` says of its files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gateway.config.test_config import GOOD, write


def twinlog(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "twinlog", *words]
    environ = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.long
def test_a_pair_is_set_up_with_three_commands_and_the_files_are_sound(tmp_path: Path) -> None:
    made = twinlog(tmp_path, "certs", "init", "--pair", "shop")
    assert made.returncode == 0, made.stderr
    assert "The CA of pair shop is valid until" in made.stdout
    assert "certs/ca.key" in made.stdout
    for site in "ab":
        hosts = ("--host", "127.0.0.1", "--host", "gw.example")
        done = twinlog(tmp_path, "certs", "site", site, "--pair", "shop", *hosts, "--json")
        assert set(json.loads(done.stdout)) == {"certificate", "key", "not_after"}
    files = 'certificate = "certs/site-a.pem"\nkey = "certs/site-a.key"\n'
    path = write(tmp_path, f'{GOOD}[http.tls]\n{files}[peer_http]\n{files}ca = "certs/ca.pem"\ncrl = "certs/crl.pem"\n')
    (tmp_path / "certs/site-a.key").chmod(0o644)
    checked = twinlog(tmp_path, "config", "check", "--config", str(path))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "is a sound site's configuration" in checked.stdout
    assert "others on this machine may read (mode 0644)" in " ".join(checked.stdout.split())
    (tmp_path / "certs/site-a.pem").write_bytes((tmp_path / "certs/site-b.pem").read_bytes())
    wrong = twinlog(tmp_path, "config", "check", "--config", str(path), "--json")
    assert wrong.returncode == 2
    assert {fault["key"] for fault in json.loads(wrong.stdout)["error"]["faults"]} == {"http.tls.key", "peer_http.key"}


def test_a_slip_replaces_nothing_and_a_name_is_checked(tmp_path: Path) -> None:
    twinlog(tmp_path, "certs", "init", "--pair", "shop")
    again = twinlog(tmp_path, "certs", "init", "--pair", "shop")
    assert again.returncode == 1
    assert "nothing was written: --replace" in " ".join(again.stderr.split())
    for words in (
        ("certs", "init", "--pair", "../up", "--dir", "x"), ("certs", "site", "c", "--pair", "shop", "--host", "h"),
        ("certs", "client", "../ann"),
    ):
        assert twinlog(tmp_path, *words).returncode == 2
    assert not (tmp_path / "x").exists()


def test_a_certificate_is_revoked_by_its_file(tmp_path: Path) -> None:
    twinlog(tmp_path, "certs", "init", "--pair", "shop")
    twinlog(tmp_path, "certs", "client", "ann@shop")
    done = twinlog(tmp_path, "certs", "revoke", "certs/client-ann@shop.pem")
    assert done.returncode == 0, done.stderr
    assert "is revoked by certs/crl.pem" in done.stdout
    assert "`peer_http.crl`" in done.stdout
