"""The Files contract where nothing fails. A test module for one derives a class from `FilesContract` and gives `files`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from storage.disk.port import Files
from twinlog.errors import LogError, SyncFailed

HEADER = b"H" * 64


class FilesContract:
    """Fixture to give: `files`, on an empty disk."""

    async def test_a_new_log_is_its_header_and_zeros(self, files: Files) -> None:
        log = await files.create_log("wal/a", HEADER, 1000)
        assert await files.read("wal/a") == HEADER + bytes(936)
        assert await files.size("wal/a") == 1000
        await log.close()

    async def test_a_log_is_created_once(self, files: Files) -> None:
        log = await files.create_log("wal/a", HEADER, 1000)
        with pytest.raises(LogError, match="exists already"):
            await files.create_log("wal/a", b"other", 1000)
        assert (await files.read("wal/a"))[:64] == HEADER
        await log.close()

    async def test_appends_land_in_the_order_of_the_calls_and_may_outgrow_the_file(self, files: Files) -> None:
        log = await files.create_log("a", HEADER, 200)
        pieces = [bytes([n + 1]) * (n % 7 + 1) for n in range(100)]
        await asyncio.gather(*[log.append(piece) for piece in pieces])
        assert await files.read("a") == HEADER + b"".join(pieces)
        await log.close()
        await log.close()

    async def test_close_waits_for_what_was_queued(self, files: Files) -> None:
        log = await files.create_log("a", HEADER, 1000)
        outstanding = [asyncio.ensure_future(log.append(b"x")) for _ in range(20)]
        await log.close()
        assert await files.read("a", 64, 21) == b"x" * 20 + b"\0"
        await asyncio.gather(*outstanding)

    async def test_reading_listing_and_sizes(self, files: Files) -> None:
        await files.write_new("deep/er/x", b"0123456789")
        assert await files.read("deep/er/x") == b"0123456789"
        assert await files.read("deep/er/x", 3) == b"3456789"
        assert await files.read("deep/er/x", 3, 2) == b"34"
        assert await files.read("deep/er/x", 8, 20) == b"89"
        assert await files.read("deep/er/x", 12, 20) == b""
        assert await files.size("deep/er/x") == 10
        assert await files.list("deep") == ["er"]
        assert await files.list("absent") == []
        for missing in (files.read("absent"), files.size("absent")):
            with pytest.raises(LogError, match="cannot read absent"):
                await missing

    async def test_a_whole_file_is_replaced_at_once(self, files: Files) -> None:
        await files.write_new("x", b"old")
        await files.write_new("x", b"new and longer")
        assert await files.read("x") == b"new and longer"
        assert await files.list("") == ["x"]

    async def test_a_file_in_parts_is_whole_or_not_there(self, files: Files) -> None:
        async def parts(count: int, *, fails: bool = False) -> AsyncGenerator[bytes, None]:
            for number in range(count):
                assert (await files.read("deep/x") == b"old") if "x" in await files.list("deep") else count == 1
                yield b"part %d " % number
            if fails:
                raise SyncFailed("injected")

        await files.write_parts("deep/x", parts(1))
        assert await files.read("deep/x") == b"part 0 "
        await files.write_new("deep/x", b"old")
        with pytest.raises(SyncFailed, match="injected"):
            await files.write_parts("deep/x", parts(3, fails=True))
        assert (await files.read("deep/x"), await files.list("deep")) == (b"old", ["x"])
        await files.write_parts("deep/x", parts(3))
        assert (await files.read("deep/x"), await files.list("deep")) == (b"part 0 part 1 part 2 ", ["x"])

    async def test_a_tail_is_cut_with_zeros(self, files: Files) -> None:
        log = await files.create_log("x", HEADER, 500)
        await log.append(b"\xff" * 300)
        await log.close()
        await files.truncate_tail("x", 100)
        assert await files.read("x") == HEADER + b"\xff" * 36 + bytes(400)
        with pytest.raises(LogError):
            await files.truncate_tail("absent", 0)

    async def test_what_another_process_left_is_made_durable(self, files: Files) -> None:
        log = await files.create_log("x", HEADER, 500)
        await log.append(b"\xff" * 36)
        await log.close()
        await files.make_durable("x")
        assert await files.read("x") == HEADER + b"\xff" * 36 + bytes(500 - len(HEADER) - 36)
        with pytest.raises(LogError):
            await files.make_durable("absent")

    async def test_delete_and_rename(self, files: Files) -> None:
        await files.write_new("one/x", b"1")
        await files.write_new("two/y", b"2")
        await files.rename("one/x", "two/y")
        assert await files.list("one") == []
        assert await files.read("two/y") == b"1"
        await files.delete("two/y")
        await files.delete("two/y")
        assert await files.list("two") == []
        with pytest.raises(SyncFailed, match="cannot rename gone"):
            await files.rename("gone", "here")
