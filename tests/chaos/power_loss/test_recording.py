"""Whatever a process does to its files is in the record, or the loss of power is refused; and a cut is a moment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.crash_states.model import Model, Place
from chaos.power_loss.losing import PowerLoss
from chaos.power_loss.table import VARIABLE
from tests.chaos.power_loss.rig import Rig, rig_at
from tests.processes import wait_for
from twinlog.errors import Unavailable

ENDS = 12


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    with rig_at(tmp_path) as made:
        yield made


def all_kept(model: Model) -> tuple[str, dict[Place, int]]:
    return "all of it kept", model.places()


@pytest.mark.parametrize("program", ["wal", "rocks", "site_files", "directory_dfs"])
def test_everything_that_the_product_does_to_its_files_is_seen(tmp_path: Path, program: str) -> None:
    root, record = tmp_path / "root", tmp_path / "power"
    for folder in ("coordinator", "dfs"):
        (root / folder).mkdir(parents=True)
    power = PowerLoss(record, {root: ""})
    command = [sys.executable, "-m", f"tests.chaos.crash_states.programs.{program}", str(root), str(tmp_path / "marks")]
    subprocess.run(command, check=True, env={**os.environ, **power.processes.environ()})
    assert (record / "record").stat().st_size > 10_000
    power.lose([root], all_kept, time.monotonic_ns())


def test_each_way_of_writing_is_recorded_with_its_bytes(rig: Rig) -> None:
    rig.do(("make", "/a"), ("make-or-find", "/a"), ("make-or-find", "/b"), ("sync-folder", "/"))
    rig.do(("write-parts", 0, 1024), ("sync", 0))
    rig.do(("write-there", 0, "end", "/a", "O_APPEND"), ("write-there", 0, "here", "/b", "O_RDONLY"), ("datasync", 2))
    assert rig.left() == {"a": b"".join(b"%04d" % part for part in range(1024)) + b"endend!", "b": b"herehere!"}
    left = rig.lost()
    assert left == {"a": b"".join(b"%04d" % part for part in range(1024)), "b": b"herehere!"}


@pytest.mark.parametrize("flag", ["O_SYNC", "O_DSYNC"])
def test_a_descriptor_that_syncs_each_write_needs_no_other_sync(rig: Rig, flag: str) -> None:
    rig.do(("make", "/a"), ("sync-folder", "/"), ("write-there", 0, "safe", "/a", flag), ("write", 0, 600, "lost"))
    assert rig.lost() == {"a": b"safesafe!"}


def test_what_a_loss_left_is_durable(rig: Rig) -> None:
    rig.do(("make", "/a"), ("write", 0, 0, "kept"))
    assert rig.lost(all_kept) == {"a": b"kept"}
    assert rig.lost() == {"a": b"kept"}


def test_the_inode_of_a_file_that_is_gone_may_be_that_of_the_next_one(rig: Rig) -> None:
    for turn in range(20):
        rig.do(("make", "/a"), ("write", 0, 0, f"turn {turn}"), ("sync", 0), ("sync-folder", "/"), ("unlink", "/a"), ("end",))
    rig.do(("make", "/a"), ("write", 0, 0, "last"), ("sync", 0))
    assert rig.lost() == {"a": b"turn 19"}


def test_what_one_process_left_unsynced_the_next_one_may_sync(tmp_path: Path) -> None:
    with rig_at(tmp_path) as rig:
        rig.do(("make", "/a"), ("make", "/b"), ("sync-folder", "/"), ("write", 0, 0, "one"), ("write", 1, 0, "other"))
        rig.cut()
        rig.kill()
        program = "import os; os.fsync(os.open('a', os.O_RDONLY))"
        subprocess.run(
            [sys.executable, "-c", program], check=True, cwd=rig.root, env={**os.environ, **rig.power.processes.environ()},
        )
        rig.cut_ns = 0  # the next one has ended since
        assert rig.lost() == {"a": b"one", "b": b""}


def test_names_of_one_folder_can_be_lost_in_order(tmp_path: Path) -> None:
    def only_the_last(model: Model) -> tuple[str, dict[Place, int]]:
        return "the last name of each folder kept", {place: 1 for place in model.places() if place[1] == "two"}

    with rig_at(tmp_path, in_order="ordered") as rig:
        rig.do(("mkdir", "/ordered"), ("mkdir", "/other"), ("sync-folder", "/"))
        rig.do(*(("make", f"/{folder}/{name}") for folder in ("ordered", "other") for name in ("one", "two")))
        assert sorted(rig.lost(only_the_last)) == ["ordered", "ordered/one", "ordered/two", "other", "other/two"]


def test_a_change_that_the_library_does_not_see_is_noticed(rig: Rig) -> None:
    rig.do(("make", "/a"), ("write", 0, 0, "seen"), ("map", "/a"))
    with pytest.raises(Unavailable, match="does not show all that was done to a in"):
        rig.lost()
    assert rig.left() == {"a": b"Seen"}


def test_a_folder_that_somebody_else_made_anew_is_known_when_it_is_renewed(rig: Rig) -> None:
    rig.do(("make", "/a"), ("sync-folder", "/"))
    shutil.rmtree(rig.root)
    rig.root.mkdir()
    (rig.root / "b").write_bytes(b"there")
    rig.power.renewed(rig.root)
    rig.do(("write", 0, 0, "into a file without a name"), ("make", "/c"), ("end",))
    assert rig.lost() == {"b": b"there"}


def test_nothing_begins_behind_a_cut_and_what_was_said_to_be_synced_is_left(rig: Rig) -> None:
    rig.said("threads", "/", 3)  # they speak at the same time
    assert rig.power.processes.is_attached(rig.pid)
    assert wait_for(lambda: all(len(content or b"") > 400 for content in rig.left().values()) and len(rig.left()) == 3)
    rig.cut()
    cut = rig.left()
    assert not wait_for(lambda: rig.left() != cut, 0.3)
    said = [line.split() for line in rig.kill().splitlines() if " " in line]
    assert rig.left() == cut
    left = rig.lost()
    last = {name: max(int(number) for each, number in said if each == name) for name in ("0", "1", "2")}
    for name, number in last.items():
        numbers = [b"%08d" % each for each in range(1, number + 2)]
        assert left[name] in (b"".join(numbers[:-1]), b"".join(numbers)), (name, number)  # what it was about to say, too


@pytest.mark.parametrize("end", ["kill-itself", "exit-itself"])
def test_what_threads_do_when_their_process_ends_itself_is_seen(tmp_path: Path, end: str) -> None:
    for turn in range(ENDS):  # each has some chance to end beside a write
        with rig_at(tmp_path / f"{turn}") as rig:
            rig.do(("writers", "/", 3))
            assert wait_for(lambda: len(rig.left()) == 3 and all(rig.left().values()))
            assert rig.said(end) == ""
            rig.kill()
            rig.lost(all_kept)


def test_a_record_that_could_not_be_written_is_an_error(tmp_path: Path) -> None:
    with rig_at(tmp_path) as rig:
        rig.kill()
        rig.power.processes.record.unlink()
        rig.power.processes.record.symlink_to("/dev/full")
        with subprocess.Popen(
            [sys.executable, "-c", "open('a', 'w').close(); input()"], cwd=rig.root, stdin=subprocess.PIPE,
            env={**os.environ, **rig.power.processes.environ()},
        ) as process:
            assert wait_for((rig.root / "a").exists)
            with pytest.raises(Unavailable, match="has a gap: look whether its disk is full"):
                rig.power.processes.cut(process.pid)
            process.kill()


@pytest.mark.parametrize("content", [None, b"", bytes(100)])
def test_a_table_that_is_missing_or_broken_is_shown_and_nothing_is_touched(tmp_path: Path, content: bytes | None) -> None:
    with rig_at(tmp_path) as rig:
        if content is not None:
            (tmp_path / "table").write_bytes(content)
        environ = {**os.environ, **rig.power.processes.environ(), VARIABLE: str(tmp_path / "table")}
        done = subprocess.run(
            [sys.executable, "-c", "open('a', 'w').write('b')"], cwd=rig.root, env=environ, capture_output=True, text=True,
            check=True,
        )
        assert "nothing is recorded" in done.stderr
        assert rig.left() == {"a": b"b"}
