"""The data directory: one process, one pair, one site."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from storage.disk.data_dir import RESTORING_NAME, end_restore, open_data_dir
from tools.sources import ROOT
from twinlog.errors import DataDirectoryError


def test_one_that_is_made_is_its_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        open_data_dir(tmp_path / "new/a", "p", "a").close()
    finally:
        os.umask(old)
    assert oct((tmp_path / "new/a").stat().st_mode & 0o777) == "0o700"


def test_a_first_start_founds_it_and_later_ones_find_it(tmp_path: Path) -> None:
    first = open_data_dir(tmp_path / "new/a", "p", "a")
    first.close()
    first.close()
    founded = (tmp_path / "new/a/twinlog.json").read_text()
    identity = json.loads(founded)
    assert (identity["pair"], identity["site"]) == ("p", "a")
    open_data_dir(tmp_path / "new/a", "p", "a").close()
    assert (tmp_path / "new/a/twinlog.json").read_text() == founded
    open_data_dir(tmp_path / "b", "p", "b").close()
    assert json.loads((tmp_path / "b/twinlog.json").read_text())["id"] != identity["id"]


def test_it_stays_its_site_s(tmp_path: Path) -> None:
    open_data_dir(tmp_path, "p", "a").close()
    with pytest.raises(DataDirectoryError, match="belongs to site 'a', and this is site 'b'"):
        open_data_dir(tmp_path, "p", "b")
    with pytest.raises(DataDirectoryError, match="belongs to pair 'p', and this is pair 'q'"):
        open_data_dir(tmp_path, "q", "a")
    open_data_dir(tmp_path, "p", "a").close()  # neither refusal kept the lock


def test_somebody_else_s_directory_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(DataDirectoryError, match=r"holds 'thesis\.tex'"):
        open_data_dir(tmp_path, "p", "a")
    assert not (tmp_path / "twinlog.json").exists()


def test_an_identity_that_cannot_be_read_is_an_error_not_a_first_start(tmp_path: Path) -> None:
    (tmp_path / "twinlog.json").write_text('{"pair": "p"')
    with pytest.raises(DataDirectoryError, match=r"twinlog\.json cannot be read"):
        open_data_dir(tmp_path, "p", "a")
    assert (tmp_path / "twinlog.json").read_text() == '{"pair": "p"'


def test_a_path_that_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataDirectoryError, match="cannot be used as data directory"):
        open_data_dir(tmp_path / "file", "p", "a")


def test_it_is_taken_while_held_here(tmp_path: Path) -> None:
    held = open_data_dir(tmp_path, "p", "a")
    with pytest.raises(DataDirectoryError, match=f"pid {os.getpid()}"):
        open_data_dir(tmp_path, "p", "a")
    held.close()
    open_data_dir(tmp_path, "p", "a").close()


HOLD = """
import sys
from pathlib import Path
from storage.disk.data_dir import open_data_dir
open_data_dir(Path(sys.argv[1]), "p", "a")
print("held", flush=True)
sys.stdin.read()
"""


def test_a_running_process_is_named_and_a_killed_one_holds_nothing(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(DataDirectoryError, match=f"used by a running process, pid {holder.pid}") as caught:
            open_data_dir(tmp_path, "p", "a")
        assert caught.value.fields["pid"] == holder.pid
        holder.kill()
    open_data_dir(tmp_path, "p", "a").close()


def test_what_a_restore_has_begun_is_no_site_s_before_its_end(tmp_path: Path) -> None:
    open_data_dir(tmp_path / "a", "p", "a", restores=True).close()
    (tmp_path / "a/rows").write_text("half of them")
    with pytest.raises(DataDirectoryError, match="holds half of a backup"):
        open_data_dir(tmp_path / "a", "p", "a")
    open_data_dir(tmp_path / "a", "p", "a", restores=True).close()  # begins anew, whatever is there
    end_restore(tmp_path / "a")
    open_data_dir(tmp_path / "a", "p", "a").close()
    with pytest.raises(DataDirectoryError, match="holds 'rows': a restore fills an empty directory only"):
        open_data_dir(tmp_path / "a", "p", "a", restores=True)
    assert not (tmp_path / "a" / RESTORING_NAME).exists()
