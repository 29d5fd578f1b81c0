"""Each action does what it says, on each call that it names, below its prefix alone, and as long as the rule is in force."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from chaos.disk_faults.control import DiskFaults, Rule, failing, failing_sync, freezing, full, slow
from tests.chaos.disk_faults.child import Child, child
from tests.chaos.disk_faults.programs.calls import CALLS
from tests.processes import wait_for

LOOKS = {"read", "pread", "open", "stat", "lstat", "listdir", "statvfs"}
SPACE = {"write", "writev", "pwrite", "pwritev2", "pwritev2-grows", "pwritev2-syncs", "ftruncate", "fallocate", "fsync",
         "fdatasync", "create", "create-at", "empty", "link", "mkdir"}
CHANGES = SPACE | {"rename", "replace", "unlink", "unlink-at", "rmdir"}
EVERY = sorted(CHANGES | LOOKS | {"open-to-write"})
MEETS = {"EIO": CHANGES, "EROFS": CHANGES | {"open-to-write"}, "ENOSPC": SPACE}


class Rig:
    """A child with the library; files of 1,000 bytes in `inside`, which rules name, and in `outside`."""

    def __init__(self, folder: Path, faults: DiskFaults, program: Child) -> None:
        self.folder, self.faults, self.program = folder, faults, program

    def file(self, place: str, name: str) -> Path:
        """A new file, held open by the child, with all that the calls on it need."""
        path = self.folder / place / name
        for each in (path, Path(f"{path}-beside")):
            each.write_bytes(bytes(1000))
        Path(f"{path}-empty").mkdir()
        assert self.said("hold", path) == "ok"
        return path

    def said(self, name: str, path: Path) -> str:
        return self.program.ask(f"{name} {path}").removeprefix(f"{name} {path} ")

    def begin(self, rule: Rule, place: str = "inside") -> int:
        return self.faults.begin(self.folder / place, rule)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    for place in ("inside", "outside"):
        (tmp_path / place).mkdir()
    with DiskFaults(tmp_path / "table") as faults, child("calls", faults.environ()) as program:
        yield Rig(tmp_path, faults, program)
        assert program.end() == ""


def test_every_call_of_the_program_is_tried() -> None:
    assert set(EVERY) == set(CALLS) - {"hold", "release", "is-full", "append", "write-at-end"}


def test_without_a_rule_every_call_succeeds(rig: Rig) -> None:
    assert {name: rig.said(name, rig.file("inside", name)) for name in EVERY} == dict.fromkeys(EVERY, "ok")


@pytest.mark.parametrize("error", sorted(MEETS))
def test_calls_that_change_something_fail_as_long_as_the_rule_is_there(rig: Rig, error: str) -> None:
    files = {(place, name): rig.file(place, name) for place in ("inside", "outside") for name in EVERY}
    number = rig.begin(failing(error))
    inside = {name: rig.said(name, files["inside", name]) for name in EVERY}
    assert inside == {name: error if name in MEETS[error] else "ok" for name in EVERY}
    assert rig.faults.hits(number) == len(MEETS[error])
    assert {name: rig.said(name, files["outside", name]) for name in EVERY} == dict.fromkeys(EVERY, "ok")
    rig.faults.end(number)
    again = {name: rig.said(name, files["inside", name]) for name in MEETS[error]}
    assert again == dict.fromkeys(MEETS[error], "ok")


def test_a_call_that_failed_has_changed_nothing(rig: Rig) -> None:
    files = {name: rig.file("inside", name) for name in CHANGES - {"pwritev2-syncs"}}
    before = sorted((rig.folder / "inside").iterdir())
    rig.begin(failing("EIO"))
    assert {rig.said(name, path) for name, path in files.items()} == {"EIO"}
    assert sorted((rig.folder / "inside").iterdir()) == before
    assert {path.read_bytes() for path in files.values()} == {bytes(1000)}


@pytest.mark.parametrize("name", EVERY)
def test_a_frozen_call_goes_on_when_the_rule_ends(rig: Rig, name: str) -> None:
    inside, outside = rig.file("inside", name), rig.file("outside", name)
    number = rig.begin(freezing())
    rig.program.send(f"{name} {inside}")
    assert wait_for(lambda: rig.faults.hits(number))
    assert rig.said(name, outside) == "ok"  # and not the answer of the call that came first
    rig.faults.end(number)
    assert rig.program.hear() == f"{name} {inside} ok"


def test_a_slow_call_takes_longer(rig: Rig) -> None:
    paths = {name: rig.file("inside", name) for name in EVERY}
    number = rig.begin(slow(30))
    began_s = time.monotonic()
    assert {rig.said(name, path) for name, path in paths.items()} == {"ok"}
    assert time.monotonic() - began_s >= 0.030 * len(EVERY)
    assert rig.faults.hits(number) >= len(EVERY)


def test_on_a_full_disk_files_do_not_grow_and_are_written_over(rig: Rig) -> None:
    path, other = rig.file("inside", "one"), rig.file("inside", "other")
    rig.begin(full(0))
    assert rig.said("is-full", path) == "ok"
    assert [rig.said(name, path) for name in ("pwrite", "pwritev2-syncs", "fsync", "create", "rename")] == ["ok"] * 5
    assert [rig.said(name, other) for name in ("pwritev2-grows", "fallocate", "append", "write-at-end")] == ["ENOSPC"] * 4
    assert rig.said("pwritev2-grows", rig.file("outside", "one")) == "ok"


@pytest.mark.parametrize("name", ["unlink", "ftruncate", "replace", "empty"])
def test_what_goes_away_makes_room_on_a_full_disk(rig: Rig, name: str) -> None:
    path, other = rig.file("inside", "one"), rig.file("inside", "other")
    rig.begin(full(4))
    assert rig.said("pwritev2-grows", path) == "ENOSPC"  # by 5 bytes
    assert rig.said(name, other) == "ok"
    assert rig.said("pwritev2-grows", path) == "ok"


def test_a_name_of_several_makes_no_room_until_the_last_one_goes(rig: Rig) -> None:
    path, other = rig.file("inside", "one"), rig.file("inside", "other")
    rig.begin(full(0))
    assert rig.said("link", other) == "ok"
    assert [rig.said("unlink", other), rig.said("append", path)] == ["ok", "ENOSPC"]
    assert [rig.said("unlink", Path(f"{other}-linked")), rig.said("append", path)] == ["ok", "ok"]


@pytest.mark.parametrize("name", ["fsync", "fdatasync", "pwritev2-syncs"])
def test_one_sync_fails_and_whoever_uses_the_descriptor_again_is_seen(rig: Rig, name: str) -> None:
    path, other = rig.file("inside", name), rig.file("inside", "other")
    number = rig.begin(failing_sync(after=1))
    assert [rig.said(name, path) for _ in range(2)] == ["ok", "EIO"]
    assert path.read_bytes()[:10] == (b"0123456789" if name == "pwritev2-syncs" else bytes(10))
    assert rig.said(name, other) == "ok"
    assert (rig.faults.hits(number), rig.faults.used_again(number)) == (1, 0)
    assert rig.said("fsync", path) == rig.said("write", path) == "ok"
    assert rig.faults.used_again(number) == 2
    assert rig.said("release", path) == "ok"
    assert rig.said("hold", path) == rig.said("fsync", path) == "ok"
    assert rig.faults.used_again(number) == 2


def test_a_prefix_counts_through_links_and_for_names_beside(rig: Rig) -> None:
    path = rig.file("inside", "journal.db-wal")
    (rig.folder / "linked").symlink_to(rig.folder / "inside")
    number = rig.begin(failing("EIO"), "linked/journal.db")
    assert rig.said("unlink", rig.folder / "linked" / "journal.db-wal") == "EIO"
    assert rig.said("write", path) == "EIO"
    assert rig.said("mkdir", rig.folder / "inside" / ".." / "inside" / "journal.db") == "EIO"
    assert rig.faults.hits(number) == 3
    assert rig.said("write", rig.file("inside", "journal")) == "ok"
