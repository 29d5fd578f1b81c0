"""The writer of a trail on a disk that fails: the next life finds what it said is written, whatever happened to the disk."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.trail import trail as room
from gateway.trail.chain import FOLDER, ChainVerifier, file_name
from gateway.trail.entry import TrailEntry, TrailHead, line_of
from gateway.trail.events import GAP, OPENED
from gateway.trail.trail import Trail
from storage.clock import SystemClock
from storage.disk import os_files
from storage.disk.os_files import OsFiles
from tests.gateway.trail.trail_rig import ANNA, entries, head_of, opened, stored, until, verdict_on
from tests.storage.disk.memory_files import MemoryFile, MemoryFiles, MemoryLogFile, Pending
from twinlog.errors import SyncFailed

FIRST = f"{FOLDER}/{file_name(1)}"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits of a moment, where a real disk gets seconds."""
    for name in ("DEADLINE_S", "RETRY_S", "FAULT_WAIT_S"):
        monkeypatch.setattr(room, name, 0.05)


def acts(files: MemoryFiles) -> list[str]:
    return [entry.event for entry in entries(stored(files)) if entry.event != OPENED]


async def test_lines_stand_in_their_order_and_a_life_continues_the_one_before() -> None:
    files = MemoryFiles()
    for _ in range(3):
        async with opened(files) as trail:
            for number in range(4):
                begun = await trail.write("table.drop", ANNA, "begun", {"n": number})
                assert begun.is_written
                trail.put("table.drop", ANNA, "done", of=begun)
    found = entries(stored(files))
    assert [entry.number for entry in found] == list(range(1, len(found) + 1))
    assert [entry.event for entry in found].count(OPENED) == 3
    ends = [entry for entry in found if entry.outcome == "done"]
    assert [(found[end.of - 1].outcome, end.of) for end in ends] == [("begun", end.number - 1) for end in ends]
    assert len(ends) == 12
    verdict = verdict_on(stored(files), [head_of(stored(files))])
    assert (verdict.faults, verdict.remarks) == ([], [])


async def test_the_log_has_each_line_with_its_number_and_hash() -> None:
    files = MemoryFiles()
    with capture_logs() as logs:
        async with opened(files) as trail:
            await trail.write("table.drop", ANNA, "done", {"table": "t"}, operation="o-1")
    said = [line for line in logs if line["event"] == "trail"]
    assert (said[-1]["number"], said[-1]["sha256"]) == (head_of(stored(files)).number, head_of(stored(files)).sha256)
    expected = {"act": "table.drop", "who": "anna", "kind": "token", "address": "10.0.0.7", "says": "anna@laptop",
                "outcome": "done", "operation": "o-1", "what": {"table": "t"}}
    assert expected.items() <= said[-1].items()


async def test_a_full_file_ends_and_the_chain_goes_on_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.trail.chain.FILE_BYTES_MAX", 2000)
    files = MemoryFiles()
    async with opened(files) as trail:
        for number in range(30):
            await trail.write("table.alter", ANNA, "done", {"n": number})
    assert len(stored(files)) > 3
    assert all(len(data) <= 2000 for _, data in stored(files))
    assert not verdict_on(stored(files)).faults


def left_of(pending: Pending) -> list[bytes]:
    """Returns what a crash may leave of an append: each beginning, its end behind zeros, and zeros alone."""
    data = pending.data
    beginnings = [data[:length] for length in range(len(data) + 1)]
    middle = len(data) // 2
    return [*beginnings, bytes(middle) + data[middle:], bytes(len(data)), bytes(len(data) - 1) + data[-1:]]


async def test_a_crash_in_the_middle_of_an_append_leaves_a_torn_line_that_the_next_life_declares() -> None:
    files = MemoryFiles()
    trail = Trail(files, SystemClock(), pair="p", site="a")
    await trail.open()
    await trail.write("table.drop", ANNA, "done", {"table": "kept"})
    kept = head_of(stored(files))
    files.hold = True
    trail.put("table.drop", ANNA, "done", {"table": "torn"})
    await until(lambda: files.files[FIRST].pending)
    pending = files.files[FIRST].pending[0]
    for number, left in enumerate(left_of(pending)):
        disk = files.crashed(lambda _, left=left: left)  # type: ignore[misc]
        for life in range(2):
            async with opened(disk) as after:
                assert (await after.write("table.drop", ANNA, "done", {"life": life})).is_written
        verdict = verdict_on(stored(disk), [kept, head_of(stored(disk))])
        assert not verdict.faults, (number, left)
        whole = left == pending.data
        assert [remark.file for remark in verdict.remarks] == ([] if whole or not left else [file_name(1)]), (number, left)
        assert [entry.what.get("table") for entry in entries(stored(disk)) if "table" in entry.what] == (
            ["kept", "torn"] if whole else ["kept"]
        )
    files.hold = False
    files.sync(FIRST)
    await trail.close()


async def test_a_crash_while_a_file_is_begun_leaves_a_file_that_the_next_life_declares() -> None:
    files = MemoryFiles()
    for _ in range(2):
        async with opened(files) as trail:
            await trail.write("table.drop", ANNA, "done")
    kept, (name, data) = head_of(stored(files)), stored(files)[-1]
    line = data.split(b"\n")[0] + b"\n"
    for length in range(len(line)):
        disk = files.crashed(lambda pending: pending.data)
        disk.files[f"{FOLDER}/{name}"] = MemoryFile(bytearray(line[:length]), length)
        async with opened(disk) as after:
            await after.write("table.drop", ANNA, "done")
        async with opened(disk) as after:
            await after.write("table.drop", ANNA, "done")
        assert not verdict_on(stored(disk)).faults, length
    assert kept.number == 4


async def test_a_disk_that_refuses_holds_nobody_up_and_gets_every_line_later(quick: None) -> None:
    files = MemoryFiles()
    with capture_logs() as logs:
        async with opened(files) as trail:
            assert (await trail.write("one", ANNA)).is_written
            files.full = True
            files.hold = True
            second = asyncio.ensure_future(trail.write("two", ANNA))
            await until(lambda: files.files[FIRST].pending)
            files.fail(FIRST, lambda pending: pending.data[:20])
            assert not (await second).is_written
            assert "failed" in str(trail.fault)
            assert not (await trail.write("three", ANNA)).is_written
            assert "disk full" in str(trail.fault)
            files.full = files.hold = False
            fourth = await trail.write("four", ANNA)
            await until(lambda: acts(files)[-1:] == ["four"])
            assert fourth.written.done()
            assert trail.fault is None
    assert acts(files) == ["one", "two", "three", "four"]
    unwritten = [line["act"] for line in logs if line["event"] == "trail unwritten"]
    assert unwritten[:2] == ["two", "three"]
    verdict = verdict_on(stored(files), [head_of(stored(files))])
    assert not verdict.faults
    assert "the disk refused it" in verdict.remarks[0].what


async def test_a_line_that_the_disk_may_have_after_all_does_not_count_and_is_written_again(quick: None) -> None:
    """A sync that failed says nothing of what a later look finds: the whole line, none of it, or half."""
    for left in (b"", b"half", None):
        files = MemoryFiles()
        async with opened(files) as trail:
            await trail.write("one", ANNA)
            files.hold = True
            second = asyncio.ensure_future(trail.write("two", ANNA))
            await until(lambda files=files: files.files[FIRST].pending)
            files.fail(FIRST, lambda pending, left=left: pending.data if left is None else left)
            files.hold = False
            await second
            await trail.write("three", ANNA)
            await until(lambda files=files: acts(files)[-1:] == ["three"])
        for later in (bytes(files.files[FIRST].durable), bytes(files.files[FIRST].durable)[:600]):
            files.files[FIRST].durable[:] = later
        found = [entry.event for _, entry in sorted((entry.number, entry) for entry in entries(stored(files)))]
        assert not verdict_on(stored(files)).faults
        assert found.count("three") == 1


async def test_a_disk_that_hangs_holds_nobody_up_beyond_the_deadline(quick: None) -> None:
    files = MemoryFiles()
    async with opened(files) as trail:
        await trail.write("one", ANNA)
        files.hold = True
        async with asyncio.timeout(5):
            placed = await trail.write("two", ANNA)
        assert not placed.is_written
        assert trail.fault == "the disk does not answer"
        files.hold = False
        files.sync(FIRST)
        await until(lambda: placed.is_written)
        assert trail.fault is None
        await trail.write("three", ANNA)
    assert acts(files) == ["one", "two", "three"]
    assert not verdict_on(stored(files)).faults


async def test_what_waits_is_bounded_and_what_was_left_out_is_counted(monkeypatch: pytest.MonkeyPatch, quick: None) -> None:
    monkeypatch.setattr(room, "QUEUE_MAX", 10)
    files = MemoryFiles()
    files.full = True
    with capture_logs() as logs:
        async with opened(files) as trail:
            for number in range(25):
                trail.put("table.drop", ANNA, "done", {"n": number})
                await asyncio.sleep(0)
            files.full = False
            await until(lambda: trail.head.number == 12)
    found = entries(stored(files))
    assert [entry.event for entry in found][:2] == [OPENED, GAP]
    assert found[1].what["left_out"] == 15
    assert [entry.what["n"] for entry in found[2:]] == list(range(10))
    assert sum(line["event"] == "trail unwritten" for line in logs) == 25


async def test_a_site_starts_on_a_disk_that_refuses_even_to_be_read(quick: None) -> None:
    class Unreadable(MemoryFiles):
        async def list(self, folder: str) -> list[str]:
            raise SyncFailed("the disk is gone")

    async with opened(Unreadable()) as trail:
        assert trail.fault == "the disk is gone"
        assert not (await trail.write("one", ANNA)).is_written


async def test_a_trail_that_was_changed_between_two_lives_stays_broken_and_the_next_life_says_so() -> None:
    files = MemoryFiles()
    async with opened(files) as trail:
        for number in range(3):
            await trail.write("table.drop", ANNA, "done", {"n": number})
    durable = files.files[FIRST].durable
    durable[:] = durable.replace(b'"n":1', b'"n":7')
    with capture_logs() as logs:
        async with opened(files) as trail:
            await trail.write("table.drop", ANNA, "done")
    assert [(fault.file, fault.line) for fault in verdict_on(stored(files)).faults] == [(file_name(1), 3)]
    assert [line["line"] for line in logs if line["event"] == "the trail is broken"] == [3]
    assert entries(stored(files))[4].what["broken"] == [{"file": file_name(1), "line": 3}]


async def test_a_disk_that_refuses_again_and_again_costs_no_descriptor_and_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: None
) -> None:
    def held() -> tuple[int, int]:
        threads = sum(thread.name.startswith("sync trail") for thread in threading.enumerate())
        return threads, sum("trail-" in os.readlink(f"/proc/self/fd/{name}") for name in open_descriptors())

    def open_descriptors() -> list[str]:
        return [name for name in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{name}")]

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(room, "DEADLINE_S", 60.0)  # this disk answers at once: how busy it is decides nothing here
    files = OsFiles(tmp_path)
    async with opened(files) as trail:
        for number in range(4):
            assert (await trail.write("one", ANNA, what={"n": number})).is_written
            with monkeypatch.context() as broken:
                broken.setattr(os_files, "write_synced", full)
                assert not (await trail.write("two", ANNA, what={"n": number})).is_written
            await until(lambda: trail.fault is None)
        assert max(held()) <= 1
    await files.close()
    assert held() == (0, 0)
    verifier = ChainVerifier()
    for path in sorted((tmp_path / FOLDER).iterdir()):
        verifier.file(path.name, path.read_bytes())
    assert not verifier.end().faults


async def test_an_entry_that_breaks_the_writer_is_left_out_and_counted_and_the_next_ones_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = MemoryFiles()

    def broken(entry: TrailEntry, before: bytes) -> tuple[bytes, TrailHead]:
        if entry.event == "bad":
            raise ZeroDivisionError
        return line_of(entry, before)

    monkeypatch.setattr(room, "line_of", broken)
    with capture_logs() as logs:
        async with opened(files) as trail:
            assert not (await trail.write("bad", ANNA)).is_written
            assert (await trail.write("good", ANNA)).is_written
    assert acts(files) == [GAP, "good"]
    assert "internal error" in [line["event"] for line in logs]


async def test_a_first_file_that_could_be_neither_begun_nor_removed_does_not_count(quick: None) -> None:
    class Stubborn(MemoryFiles):
        """Leaves the first file there, with its whole line, and says that it failed."""

        async def create_log(self, path: str, header: bytes, size_bytes: int) -> MemoryLogFile:
            made = await super().create_log(path, header, size_bytes)
            if path == FIRST:
                raise SyncFailed("the folder was not synced")
            return made

    files = Stubborn()
    async with opened(files) as trail:
        await trail.write("one", ANNA)
        await until(lambda: trail.head.number == 2)
    assert acts(files) == ["one"]
    assert not verdict_on(stored(files)).faults


async def test_a_file_that_was_moved_away_is_said_and_the_next_line_begins_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, all lines until the next start went where nobody would find them."""
    monkeypatch.setattr(room, "RETRY_S", 0.01)
    files = MemoryFiles()
    async with opened(files) as trail:
        await trail.write("table.drop", ANNA, "done")
        gone = [files.files.pop(path) for path in list(files.files) if path.startswith("trail/")]
        assert gone
        refused = await trail.write("table.drop", ANNA, "done")
        assert not refused.is_written
        assert "trail-00000001.jsonl is not there any more" in str(trail.fault)
        await until(lambda: trail.fault is None)
        found = stored(files)
    assert [name for name, _ in found] == ["trail-00000002.jsonl"]
    verdict = verdict_on(found, begins_at=3)
    assert not verdict.faults
    assert verdict.lines >= 2
