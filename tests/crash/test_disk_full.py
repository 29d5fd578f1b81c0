"""A site's disk fills up under load, and gets room again: nothing untrue is told, nothing is lost, nobody restarts anything."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.crash.processes import OTHER, Processes
from tests.needs import need_root

pytestmark = pytest.mark.long

MIB = 1 << 20
PADDING = 200_000


class SmallDisk:
    """The data of one site on a disk of its own (engine, WAL, journal, notes, cursors); the remote log of the other is not."""

    def __init__(self, pair: Processes, site: str) -> None:
        self.pair, self.site = pair, site
        self.folder = pair.directory / site / "data"
        self._ballast = self.folder / "ballast"

    def fill(self) -> None:
        """Take all the room that is left."""
        with self._ballast.open("ab", buffering=0) as file:
            for piece in (MIB, 4096):
                try:
                    while file.write(bytes(piece)) == piece:
                        pass
                except OSError:
                    continue

    def free(self) -> None:
        self._ballast.unlink()

    def until_failed(self) -> None:
        """The disk stays full, whatever lets go of some room, until the storage says that it failed."""
        def has_failed() -> bool:
            self.fill()
            self.pair.write("a", padding=PADDING)
            return "storage" in (self.pair.cluster(self.site).get("waiting_for") or "")

        self.pair.until("the storage failed", has_failed)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[..., SmallDisk]]:
    with ExitStack() as stack:
        def make(site: str, *, flushes_at_once: bool = True) -> SmallDisk:
            need_root("mounting a small disk")
            pair = Processes(tmp_path)
            for config in pair.configs.values() if flushes_at_once else ():  # by need it meets the full disk minutes later
                config.write_text(config.read_text().replace("[engine]\n", "[engine]\nflush_interval_s = 1.0\n"))
                assert "flush_interval_s" in config.read_text()
            disk = SmallDisk(pair, site)
            disk.folder.mkdir(parents=True)
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128m", "tmpfs", str(disk.folder)], check=True)
            stack.callback(subprocess.run, ["umount", str(disk.folder)], check=True)
            stack.callback(pair.close)
            for name in OTHER:
                pair.start(name)
            pair.until_roles("ACTIVE", "STANDBY")
            pair.create_table("a")
            return disk

        yield make


def until_level(pair: Processes, active: str = "a") -> None:
    """Roles as they were, a write goes through, every row is where it has to be, at both sites."""
    pair.until_roles(*("ACTIVE", "STANDBY") if active == "a" else ("STANDBY", "ACTIVE"))
    assert pair.write(active)
    pair.check(active)


def switch_over(pair: Processes, to: str) -> None:
    """Nothing of the full disk stays behind in journal, logs or notes."""
    ended = pair.operate(to, "switchover", to)
    assert ended["state"] == "succeeded", ended
    until_level(pair, to)


def test_the_active_serves_again_once_there_is_room(small_disk: Callable[..., SmallDisk]) -> None:
    disk = small_disk("a")
    pair = disk.pair
    for _ in range(3):  # a disk may fill up again
        for _ in range(10):
            assert pair.write("a")
        disk.until_failed()
        pair.until("the site is closed", lambda: pair.role("a") == "CLOSED")
        for _ in range(3):
            assert not pair.write("a", padding=PADDING)
            assert pair.last == (503, "not_applied")
        disk.free()
        until_level(pair)
    switch_over(pair, "b")
    switch_over(pair, "a")


def test_with_the_usual_settings_the_active_names_its_full_disk(small_disk: Callable[..., SmallDisk]) -> None:
    """Its log meets the full disk long before the storage is flushed. Seen: it sent the operator to the other site's DFS."""
    disk = small_disk("a", flushes_at_once=False)
    pair = disk.pair
    assert pair.write("a")

    def names_it() -> bool:
        disk.fill()
        pair.write("a", padding=PADDING)
        serving = pair.cluster("a").get("serving") or {"reads": True}
        return not serving["reads"] and "No space" in str(serving["why"]) and "see to the disk of site a" in str(serving["do"])

    pair.until("the site answers nobody and names its disk", names_it)
    disk.free()
    until_level(pair)
    pair.until("nothing is left of it", lambda: pair.cluster("a")["troubles"] == [])


def test_with_the_usual_settings_the_standby_names_its_full_disk(small_disk: Callable[..., SmallDisk]) -> None:
    disk = small_disk("b", flushes_at_once=False)
    pair = disk.pair
    disk.until_failed()
    assert "No space left on device" in pair.cluster("b")["serving"]["why"]
    assert pair.write("a", padding=PADDING), "the active continues"
    disk.free()
    until_level(pair)


def test_the_standby_follows_again_once_there_is_room(small_disk: Callable[..., SmallDisk]) -> None:
    disk = small_disk("b")
    pair = disk.pair
    for _ in range(2):
        disk.until_failed()
        assert pair.role("b") == "STANDBY"
        for _ in range(10):
            assert pair.write("a", padding=PADDING)  # the active goes on
        refused = pair.operate("b", "switchover", "b")
        assert refused.get("state") != "succeeded", refused
        disk.free()
        until_level(pair)
    switch_over(pair, "b")
