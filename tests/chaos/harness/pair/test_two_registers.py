"""The watch of a register on two DFSs sees each decision once, knows a line that a command began, and forgives nothing else."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from chaos.harness.pair.two_registers import FOLDER, Look, PlainFiles, TwoDfsWatch
from chaos.history.history import Apart, GivenUp, ModeRecorded, Moment, Opened
from chaos.history.lines import Line
from storage.disk.sealed_json import seal, unseal
from switchover.register.dfs_folder import RegisterEntry
from switchover.register.port import PairState, Switching, update
from switchover.register.transitions import begin_plan, downgrade, open_plan, resync
from tests.processes import wait_for
from tests.switchover.register.register_world import RegisterWorld


class Watched:
    """A register in memory, the watch of its files, and the lines that it noted. `now_s` is the time of the run."""

    def __init__(self) -> None:
        self.world, self.lines, self.now_s = RegisterWorld(), list[Line](), 0.0
        self.unseen: set[str] = set()
        files = {site: self for site in "ab"}
        self.watch = TwoDfsWatch(files, "b", lambda: self.now_s, self.lines.append)  # type: ignore[arg-type]

    poll_s = 0.0

    def look(self, now_s: float) -> list[Line]:
        """One look at both DFSs, and what it brought."""
        self.now_s, before = now_s, len(self.lines)
        looks = {}
        for site in set("ab") - self.unseen:
            known = self.watch._registers.newest.get(site, (0,))[0]
            found = [(int(path[-12:]), path) for path in self.world.files(site)]
            highest = max((number for number, _ in found), default=0)
            after = known if known <= highest else 0
            new = [(number, self._entry(site, path)) for number, path in found if number > after]
            looks[site] = Look(now_s, highest, tuple(new))
        self.watch.take(looks)
        return self.lines[before:]

    def _entry(self, site: str, path: str) -> RegisterEntry:
        return unseal(bytes(self.world.disks[site].files[path].data), RegisterEntry, path, "")


async def test_a_decision_and_its_copies_are_one_change() -> None:
    watched = Watched()
    await watched.world.open_at_a()
    assert [line for line in watched.look(1.0) if isinstance(line, Opened)] == [Opened("a", 1, 1.0, "sync")]
    await update(watched.world.doors["a"], lambda now: downgrade(now, "a", 1, 5))
    (degraded,) = watched.look(2.0)
    assert isinstance(degraded, ModeRecorded)
    assert (degraded.epoch, degraded.mode) == (1, "async")
    await update(watched.world.doors["a"], lambda now: resync(now, "a", 1))
    assert [line.mode for line in watched.look(3.0) if isinstance(line, ModeRecorded)] == ["sync"]
    assert watched.watch.active == "a"
    assert watched.look(4.0) == []


async def test_several_changes_between_two_looks_are_all_seen() -> None:
    watched = Watched()
    await watched.world.open_at_a("async")
    await update(watched.world.doors["a"], lambda now: resync(now, "a", 1))
    await update(watched.world.doors["b"], lambda now: begin_plan(now, "p", "b", "takeover", 1))
    await update(watched.world.doors["b"], lambda now: open_plan(now, "p", "async", 9))
    lines = watched.look(5.0)
    modes = [line.mode for line in lines if isinstance(line, ModeRecorded)]
    assert modes == ["sync", "async", "sync", "async"]
    assert [line.site for line in lines if isinstance(line, Opened)] == ["a", "b"]
    assert not any(isinstance(line, Apart | Moment) for line in lines)


async def test_a_line_that_a_command_began_is_apart_until_both_hold_the_same() -> None:
    watched = Watched()
    await watched.world.open_at_a()
    watched.look(1.0)
    watched.world.cut("b", sites="a")
    await watched.world.doors["a"].force(lambda now: downgrade(now, "a", 1, 5))
    apart = [line for line in watched.look(2.0) if isinstance(line, Apart)]
    assert [line.site for line in apart] == ["a"]
    assert watched.look(3.0) == []
    watched.world.cut("b", sites="a", down=False)
    await watched.world.doors["a"].read()
    assert watched.look(4.0)[-1] == Moment("met", 4.0)


async def test_a_site_that_was_lost_begins_with_a_copy_which_decides_nothing() -> None:
    watched = Watched()
    await watched.world.open_at_a()
    watched.look(1.0)
    for path in watched.world.files("a"):
        del watched.world.disks["a"].files[path]
    await watched.world.doors["b"].read()  # makes the copy
    assert watched.world.files("a")
    assert watched.look(2.0) == []
    assert watched.watch.active == "a"
    for site in "ab":
        for path in watched.world.files(site):
            del watched.world.disks[site].files[path]
    assert watched.look(3.0) == [Moment("forgotten", 3.0)]


def entry(value: PairState, age_s: float = 0.0) -> RegisterEntry:
    return RegisterEntry("", "a", round((time.time() - age_s) * 1000), value)


def test_a_change_happened_after_its_author_wrote_it_and_a_copy_says_no_more_than_the_last_look() -> None:
    lines: list[Line] = []
    now_s = 100.0
    watch = TwoDfsWatch({"a": PlainFiles(Path("a")), "b": PlainFiles(Path("b"))}, "b", lambda: now_s, lines.append)
    opened = PairState(1, epoch=2, active="a", mode="sync", home="b")
    watch.take({"a": Look(99.0, 1, ((1, entry(opened)),)), "b": Look(99.0, 1, ((1, entry(opened)),))})
    degraded = replace(opened, state_id=2, mode="async", home="a")
    now_s, before = 130.0, len(lines)
    watch.take({"a": Look(129.0, 2, ((2, entry(degraded, 1.0)),))})  # the copy; b's DFS could not be looked at since 99 s
    assert lines[before:] == [ModeRecorded(2, "async", 99.0)]
    again = replace(degraded, state_id=3, mode="sync", home="b")
    now_s, before = 160.0, len(lines)
    watch.take({"a": Look(159.0, 3, ((3, entry(again, 4.0)),))})  # decided here, and not looked at for 30 s
    (mode,) = lines[before:]
    assert isinstance(mode, ModeRecorded)
    assert mode.at_s == pytest.approx(156.0, abs=0.5)


def test_a_decision_counts_before_its_copy_and_an_opening_that_is_heard_of_twice_is_one() -> None:
    lines: list[Line] = []
    watch = TwoDfsWatch({"a": PlainFiles(Path("a")), "b": PlainFiles(Path("b"))}, "b", lambda: 2.0, lines.append)
    alone = PairState(1, epoch=2, active="a", mode="async", opened_by="o", home="b")
    taking = replace(alone, state_id=2, switching=Switching("p", "b", 3, "takeover", 0))
    taken = replace(taking, state_id=3, epoch=3, active="b", opened_by="p", switching=None)
    watch.take({
        "a": Look(1.0, 2, ((1, entry(alone)), (2, entry(taken)))),
        "b": Look(1.0, 3, ((1, entry(alone)), (2, entry(taking)), (3, entry(taken)))),
    })
    assert GivenUp(2, 2.0) in lines, "the copy on a's DFS does not know of the plan"
    assert [line.epoch for line in lines if isinstance(line, Opened)] == [2, 3]
    reopened = replace(taken, state_id=4, epoch=5, active="a", opened_by="q")
    followed = replace(reopened, state_id=5, mode="sync", reason="after it")
    watch.take({"b": Look(3.0, 4, ((4, entry(reopened)),))})
    watch.take({"a": Look(3.0, 3, ((3, entry(followed)),))})
    assert [line.epoch for line in lines if isinstance(line, Opened)] == [2, 3, 5]


def test_files_of_a_directory_are_read_as_they_come_and_a_gap_is_an_error(tmp_path: Path) -> None:
    lines: list[Line] = []
    folders = {site: tmp_path / site / FOLDER.lstrip("/") for site in "ab"}
    watch = TwoDfsWatch({site: PlainFiles(tmp_path / site) for site in "ab"}, "b", time.monotonic, lines.append)
    watch.start()
    folders["b"].mkdir(parents=True)

    def put(number: int, value: PairState) -> None:
        part = folders["b"] / ".part"
        part.write_bytes(seal(RegisterEntry("", "a", 0, value)))
        part.rename(folders["b"] / f"{number:012d}")

    planned = PairState(1, epoch_allocated=2, switching=Switching("p", "a", 2, "bootstrap", 0), home="b")
    put(1, planned)
    put(2, replace(planned, state_id=2, epoch=2, active="a", opened_by="p", switching=None))
    assert wait_for(lambda: any(isinstance(line, Opened) for line in lines))
    assert watch.active == "a"
    assert not watch.error
    for number in (1, 2):
        (folders["b"] / f"{number:012d}").unlink()
    put(1, replace(planned, state_id=9, epoch=4, active="b"))  # the first on a new DFS
    assert wait_for(lambda: watch.active == "b")
    put(20, replace(planned, state_id=29, epoch=4, active="b"))
    assert wait_for(lambda: bool(watch.error))
    watch.stop()
    assert "values were missed" in watch.error
