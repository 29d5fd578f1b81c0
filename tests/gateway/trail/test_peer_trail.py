"""Two trails that speak to each other: each has the other's role changes once, and a line by which a cut end is found."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from gateway.trail.entry import TrailEntry, TrailHead, Who
from gateway.trail.events import BEGUN, ENDED, PEER_CHANGE, PEER_HEAD
from gateway.trail.peer import ANCHOR_S, LINES_MAX, PeerTrail
from gateway.trail.roles import RoleTrail
from gateway.trail.trail import Trail
from remote_log.replication.messages import TrailChange, TrailNote
from storage.clock import SystemClock
from tests.gateway.trail.trail_rig import entries, stored, until, verdict_on
from tests.storage.disk.memory_files import MemoryFiles
from twinlog.errors import LogError, PeerError

ANNA = Who("anna", "token", "10.0.0.7", "anna@laptop")


class At(SystemClock):
    now_s = 1000.0

    def monotonic_s(self) -> float:
        return self.now_s


class SwitchingSite:
    peer, role, epoch, mode = "b", "DOWNGRADE_ACTIVE", 3, "async"


@dataclass
class Site:
    files: MemoryFiles
    trail: Trail
    peers: PeerTrail
    clock: At

    async def lines(self) -> list[TrailEntry]:
        await until(lambda: not self.trail._queue)
        return [entry for entry in entries(stored(self.files)) if entry.event in (PEER_CHANGE, PEER_HEAD)]


class Sites:
    def __init__(self) -> None:
        self.open: dict[str, Site] = {}
        self.disks = {"a": MemoryFiles(), "b": MemoryFiles()}

    @contextlib.asynccontextmanager
    async def life(self, name: str) -> AsyncIterator[Site]:
        other = "b" if name == "a" else "a"

        async def ask(note: TrailNote, timeout_s: float) -> TrailNote:
            if other not in self.open:
                raise PeerError("it is lost")
            return await self.open[other].peers.answer(note)

        clock, files = At(), self.disks[name]
        trail = Trail(files, clock, pair="p", site=name)
        peers = PeerTrail(trail, clock, other, ask)
        await trail.open()
        site = self.open[name] = Site(files, trail, peers, clock)
        try:
            yield site
        finally:
            del self.open[name]
            await trail.close()

    async def speak(self, name: str) -> None:
        await self.open[name].peers.speak()


async def change(site: Site, operation: str, *, to: str = "a") -> None:
    begun = await site.trail.write(BEGUN, ANNA, "begun", {"kind": "failover", "to": to}, operation=operation)
    await site.trail.write(ENDED, ANNA, "done", {"kind": "failover", "to": to}, operation=operation, of=begun)


@pytest.fixture
def sites() -> Sites:
    return Sites()


async def test_a_role_change_is_in_both_trails_once_with_who_asked_for_it(sites: Sites) -> None:
    async with sites.life("a") as a, sites.life("b") as b:
        await change(a, "o-1")
        for _ in range(3):
            await sites.speak("a")
            await sites.speak("b")
        found = await b.lines()
        own = {entry.number: entry for entry in entries(stored(a.files))}
        assert [(line.what["event"], line.operation) for line in found] == [(BEGUN, "o-1"), (ENDED, "o-1")]
        assert all(own[line.what["number"]].event == line.what["event"] for line in found)
        said = found[0].what
        assert (said["who"], said["who_kind"], said["address"], said["says"]) == ("anna", "token", "10.0.0.7", "anna@laptop")
        assert found[0].who == Who("site a", "site")


async def test_a_site_that_was_lost_hears_it_when_it_comes_back_also_after_a_restart_of_the_other(sites: Sites) -> None:
    async with sites.life("a") as a:
        with pytest.raises(PeerError):
            await sites.speak("a")
        await change(a, "o-1")
    async with sites.life("a"), sites.life("b") as b:
        await sites.speak("b")
        assert [line.operation for line in await b.lines() if line.event == PEER_CHANGE] == ["o-1"] * 2
    async with sites.life("a"), sites.life("b") as b:
        await sites.speak("b")
        assert [line.operation for line in await b.lines() if line.event == PEER_CHANGE] == ["o-1"] * 2  # and no second time


async def test_an_end_that_was_cut_is_found_by_the_trail_of_the_other_site(sites: Sites) -> None:
    async with sites.life("a") as a, sites.life("b") as b:
        await a.trail.write("table.drop", ANNA, "done", {"table": "t"})
        await sites.speak("b")
        anchors = [TrailHead(line.what["number"], line.what["sha256"]) for line in await b.lines() if line.event == PEER_HEAD]
    assert anchors
    assert not verdict_on(stored(sites.disks["a"]), anchors).faults
    name, data = stored(sites.disks["a"])[0]
    cut = data.splitlines(keepends=True)[: anchors[-1].number - 1]
    assert "its end was cut" in verdict_on([(name, b"".join(cut))], anchors).faults[0].what


async def test_two_sites_that_do_nothing_write_nothing_about_each_other(sites: Sites) -> None:
    async with sites.life("a") as a, sites.life("b") as b:
        await a.trail.write("table.drop", ANNA, "done")
        for _ in range(20):
            for site in (a, b):
                site.clock.now_s += ANCHOR_S + 1
                await sites.speak(site.trail.site)
        assert len(await b.lines()) == 1
        assert len(await a.lines()) == 0


async def test_a_trail_that_went_back_is_a_line_with_what_was_known(sites: Sites) -> None:
    async with sites.life("a") as a, sites.life("b") as b:
        await change(a, "o-1")
        await sites.speak("b")
        known = (await b.lines())[-1].what["number"]
    sites.disks["a"] = MemoryFiles()
    async with sites.life("a") as a, sites.life("b") as b:
        await a.trail.write("table.drop", ANNA, "done")
        await sites.speak("b")
        assert (await b.lines())[-1].what["went_back_from"] == known


async def test_a_caller_who_says_whatever_he_likes_makes_no_more_than_so_many_lines_a_minute(sites: Sites) -> None:
    async with sites.life("b") as b:
        for number in range(1, 1000):
            said = TrailChange(
                number, f"{number:064x}", 0, BEGUN, "begun", f"o-{number}", "failover", "a", "eve", "token", "", ""
            )
            await b.peers.answer(TrailNote("a", number, said.sha256, 0, [said]))
        assert len(await b.lines()) <= LINES_MAX
        before = len(await b.lines())
        await b.peers.answer(TrailNote("c", 1 << 40, "0" * 64, 0, []))  # not the other site
        assert len(await b.lines()) == before


async def test_more_changes_than_a_note_holds_come_with_the_next_ones(sites: Sites) -> None:
    async with sites.life("a") as a, sites.life("b") as b:
        for number in range(15):
            await change(a, f"o-{number}")
        for _ in range(2):
            await sites.speak("b")
        found = [line for line in await b.lines() if line.event == PEER_CHANGE]
        assert [line.operation for line in found] == [f"o-{number // 2}" for number in range(30)]


async def test_a_step_of_the_role_table_is_told_where_no_operation_tells_it(sites: Sites) -> None:
    async with sites.life("a") as a, sites.life("b") as b:
        running: list[str | None] = [None, "o-7"]
        kept = RoleTrail(a.trail, SwitchingSite(), lambda: running.pop(0))
        kept.changed("downgrade_recorded", "ACTIVE", "the policy")
        kept.changed("opened_async", "SWITCHING", "a failover")
        await until(lambda: a.trail.head.number == 3)
        await sites.speak("b")
        assert [line.what["kind"] for line in await b.lines() if line.event == PEER_CHANGE] == ["downgrade_recorded"]


def role_change(number: int) -> TrailChange:
    return TrailChange(number, f"{number:064x}", 0, BEGUN, "begun", f"o-{number}", "failover", "a", "anna", "token", "", "")


def note_of(*numbers: int, seen: int = 0) -> TrailNote:
    return TrailNote("a", numbers[-1], f"{numbers[-1]:064x}", seen, [role_change(number) for number in numbers])


async def changes_told(site: Site) -> list[int]:
    return [line.what["number"] for line in await site.lines() if line.event == PEER_CHANGE]


async def test_a_change_is_a_line_once_while_the_lines_before_it_wait_for_the_disk(sites: Sites) -> None:
    async with sites.life("b") as b:
        b.peers._take(note_of(1, 2, 3, 4))
        await until(lambda: 0 < b.peers._kept.number < 4)  # the disk has some of them
        b.peers._take(note_of(1, 2, 3, 4, 5))
        assert await changes_told(b) == [1, 2, 3, 4, 5]


async def test_a_note_that_was_on_its_way_for_longer_is_no_trail_that_went_back(sites: Sites) -> None:
    async with sites.life("b") as b:

        async def crossed(note: TrailNote, timeout_s: float) -> TrailNote:
            await b.peers.answer(note_of(1, 2, 3))  # the other site's own call, made behind its answer
            return note_of(1, 2)

        b.peers._ask = crossed
        await b.peers.speak()
        await b.peers.answer(note_of(1))
        await b.peers.answer(note_of(1, 2, 3))
        assert await changes_told(b) == [1, 2, 3]
        assert not [line for line in await b.lines() if "went_back_from" in line.what]


async def test_what_was_seen_before_is_no_line_again_where_the_disk_refused_at_the_start(
    sites: Sites, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuses(path: str, begin: int = 0) -> bytes:
        raise LogError(f"{path} cannot be read")

    async with sites.life("b") as b:
        b.peers._take(note_of(1, 2))
        assert await changes_told(b) == [1, 2]
    monkeypatch.setattr(sites.disks["b"], "read", refuses)
    async with sites.life("b") as b:
        b.peers._take(note_of(1, 2, 3))
        monkeypatch.undo()
        b.trail.put("table.drop", ANNA, "done")
        await until(lambda: b.trail.is_known)
        b.peers._take(note_of(1, 2, 3))
        assert await changes_told(b) == [1, 2, 3]
