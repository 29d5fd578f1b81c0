"""A frame that is marked as synchronous before the register says so is reported as it is written."""

from __future__ import annotations

from chaos.simulate.looks.decisions import Decisions
from chaos.simulate.looks.marks import Marks
from chaos.simulate.twins.process import Process
from storage.log.frame import Flags
from storage.log.segment import wal_name
from tests.chaos.simulate.looks.a_world import a_world
from tests.storage.log.frames import a_frame

SYNC, ASYNC = Flags.NONE, Flags.ASYNC


def said(*marks: int, synced_s: float | None = None, epoch: int = 1) -> list[str]:
    """Returns what is said of the frames of epoch 1, in the WAL of `epoch`. `synced_s`: when the register said sync again."""
    world, found, process = a_world(), list[str](), Process("a.1")
    decisions = Decisions(world, found.append)
    Marks(world, decisions, found.append)
    if synced_s is not None:
        decisions.synced_s[1] = synced_s
    for number, flags in enumerate(marks, 1):
        world.machines["a"].disk.logged(process, f"wal/{wal_name(epoch, 1)}", a_frame(number, flags=flags).data)
    return found


def test_the_mark_changes_once_the_register_says_sync() -> None:
    assert said(SYNC, SYNC, ASYNC, ASYNC) == []
    assert said(ASYNC, ASYNC, SYNC, SYNC, synced_s=0.0) == []
    early = ["Site a marks frames of epoch 1 as synchronous before the register says sync."]
    assert said(ASYNC, SYNC, SYNC) == early
    assert said(SYNC, ASYNC, SYNC, synced_s=-1.0) == early, "it said so before the degrade, and not since"


def test_copies_of_an_older_epoch_are_as_they_were() -> None:
    assert said(ASYNC, SYNC, epoch=2) == []


def test_what_is_no_frame_has_no_mark() -> None:
    world = a_world()
    Marks(world, Decisions(world, lambda sentence: None), lambda sentence: None)
    world.machines["a"].disk.logged(Process("a.1"), f"wal/{wal_name(1, 1)}", b"a header")
