"""The contract of every Dfs. A test module for one derives a class from `DfsContract` and gives the two fixtures."""

from __future__ import annotations

import asyncio

import pytest

from remote_log.dfs.port import Dfs, DfsWriter
from twinlog.errors import DfsError, DfsExists, DfsNotFound, LeaseLost


async def close_by_recovery(dfs: Dfs, path: str) -> None:
    await dfs.recover_lease(path)
    for _ in range(1000):
        if await dfs.is_closed(path):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{path} does not close")


async def content(dfs: Dfs, path: str) -> bytes:
    """Strips the zeros that a directory keeps behind the data (no test appends zeros)."""
    return (await dfs.read(path)).rstrip(b"\0")


class DfsFilesContract:
    """The part of the contract without writers. Fixtures to give: `dfs` and `other`, two clients of the same, empty DFS."""

    async def test_a_whole_file_is_there_with_its_content(self, dfs: Dfs, other: Dfs) -> None:
        await dfs.create_file("/p/0/claims/1", b"who")
        assert await other.read("/p/0/claims/1") == b"who"
        assert [(entry.name, entry.length, entry.is_folder) for entry in await other.list("/p/0/claims")] == [("1", 3, False)]
        assert await other.is_closed("/p/0/claims/1")

    async def test_of_many_exclusive_creates_one_wins(self, dfs: Dfs, other: Dfs) -> None:
        for round_ in range(5):
            path = f"/p/claims/{round_}"
            tries = [(dfs, other)[i % 2].create_file(path, b"%d" % i) for i in range(12)]
            results = await asyncio.gather(*tries, return_exceptions=True)
            winners = [i for i, result in enumerate(results) if result is None]
            assert len(winners) == 1
            assert all(isinstance(result, DfsExists) for result in results if result is not None)
            assert await dfs.read(path) == b"%d" % winners[0]

    async def test_list_is_sorted_and_shows_folders(self, dfs: Dfs, other: Dfs) -> None:
        for path in ("/p/0/b", "/p/0/a", "/p/0/c/d"):
            await dfs.create_file(path, b"12")
        entries = [(entry.name, entry.length, entry.is_folder) for entry in await other.list("/p/0")]
        assert entries == [("a", 2, False), ("b", 2, False), ("c", 0, True)]
        assert await other.list("/p/none") == []

    async def test_read_takes_an_offset_and_a_length(self, dfs: Dfs, other: Dfs) -> None:
        await dfs.create_file("/p/a", b"0123456789")
        assert await other.read("/p/a", 3) == b"3456789"
        assert await other.read("/p/a", 3, 4) == b"3456"
        assert await other.read("/p/a", 20, 4) == b""
        with pytest.raises(DfsNotFound):
            await other.read("/p/none")

    async def test_delete_takes_files_and_folders(self, dfs: Dfs, other: Dfs) -> None:
        await dfs.create_file("/p/0/a", b"1")
        await dfs.create_file("/p/0/b/c", b"1")
        await other.delete("/p/0/a")
        assert [entry.name for entry in await dfs.list("/p/0")] == ["b"]
        await other.delete("/p/0")
        await other.delete("/p/0")
        assert await dfs.list("/p/0") == []
        await dfs.create_file("/p/0/a", b"2")
        assert await other.read("/p/0/a") == b"2"

    async def test_probe(self, dfs: Dfs) -> None:
        await dfs.probe()
        assert await dfs.list("/p") == []


async def append_until_it_fails(writer: DfsWriter, tries: int) -> None:
    for _ in range(tries):
        await writer.append(b"y")
        await asyncio.sleep(0.01)


class DfsContract(DfsFilesContract):
    """All of it. Fixtures as above."""

    async def test_a_file_for_append_is_exclusive_too(self, dfs: Dfs, other: Dfs) -> None:
        writer = await dfs.create("/p/0/s")
        with pytest.raises(DfsExists):
            await other.create("/p/0/s")
        with pytest.raises(DfsExists):
            await other.create_file("/p/0/s", b"x")
        await writer.append(b"mine")
        assert await content(other, "/p/0/s") == b"mine"
        await writer.close()

    async def test_outstanding_appends_land_in_order_and_are_read_while_open(self, dfs: Dfs, other: Dfs) -> None:
        writer = await dfs.create("/p/0/s")
        pieces = [b"%d." % i for i in range(200)]
        await asyncio.gather(*[writer.append(piece) for piece in pieces])
        assert await content(other, "/p/0/s") == b"".join(pieces)
        assert not await other.is_closed("/p/0/s")
        await writer.close()

    async def test_close_leaves_the_exact_length_and_ends_appending(self, dfs: Dfs, other: Dfs) -> None:
        writer = await dfs.create("/p/0/s")
        outstanding = [asyncio.ensure_future(writer.append(b"ab")) for _ in range(3)]
        await writer.close()
        await asyncio.gather(*outstanding)
        assert await other.is_closed("/p/0/s")
        assert await other.read("/p/0/s") == b"ababab"
        assert (await other.list("/p/0"))[0].length == 6
        with pytest.raises(DfsError):
            await writer.append(b"c")
        assert await other.read("/p/0/s") == b"ababab"

    async def test_lease_recovery_ends_the_writer_and_keeps_what_succeeded(self, dfs: Dfs, other: Dfs) -> None:
        writer = await dfs.create("/p/0/s")
        await writer.append(b"kept")
        await close_by_recovery(other, "/p/0/s")
        before = await other.read("/p/0/s")
        with pytest.raises(LeaseLost):
            await writer.append(b"late")
        with pytest.raises(DfsError):
            await writer.append(b"later")
        with pytest.raises(LeaseLost):
            await (await self._recovered_writer(dfs, other)).close()
        await writer.close()  # after a failure it only gives back what it holds
        assert before.rstrip(b"\0") == b"kept"
        assert await other.read("/p/0/s") == before

    async def test_recovery_amid_appends(self, dfs: Dfs, other: Dfs) -> None:
        """Whatever succeeded is in the file, and once closed it never changes, with several fencers at work."""
        for round_ in range(8):
            path = f"/p/0/{round_}"
            writer = await dfs.create(path)
            succeeded = 0
            fences = [asyncio.create_task(self._recover_after(client, path, round_)) for client in (other, dfs, other)]
            failure = None
            while failure is None:
                group = [writer.append(b"%06d." % (succeeded + i)) for i in range(3)]
                results = await asyncio.gather(*group, return_exceptions=True)
                failure = next((result for result in results if result is not None), None)
                succeeded += results.count(None)
            assert isinstance(failure, LeaseLost)
            seen = await asyncio.gather(*fences)
            assert len({len(data) for data in seen}) == 1
            whole = b"".join(b"%06d." % i for i in range(succeeded + 3))
            assert whole.startswith(seen[0].rstrip(b"\0"))
            assert len(seen[0].rstrip(b"\0")) >= 7 * succeeded
            assert await dfs.read(path) == seen[0]
            await writer.close()

    async def test_a_closed_file_stays_as_it_is(self, dfs: Dfs, other: Dfs) -> None:
        writer = await dfs.create("/p/0/s")
        await writer.append(b"x")
        await writer.close()
        await other.recover_lease("/p/0/s")
        assert await other.is_closed("/p/0/s")
        assert await other.read("/p/0/s") == b"x"

    async def test_recovery_of_nothing(self, dfs: Dfs) -> None:
        with pytest.raises(DfsNotFound):
            await dfs.recover_lease("/p/0/none")
        with pytest.raises(DfsNotFound):
            await dfs.is_closed("/p/0/none")

    async def test_deletion_ends_the_writer(self, dfs: Dfs, other: Dfs) -> None:
        """Also when recovery went before and its traces are gone: a writer that slept through both must not succeed."""
        for recovered_first in (False, True):
            writer = await dfs.create(f"/p/0/s{recovered_first}")
            await writer.append(b"x")
            if recovered_first:
                await close_by_recovery(other, writer.path)
            await other.delete(writer.path)
            with pytest.raises(LeaseLost):
                await append_until_it_fails(writer, tries=1 if recovered_first else 1000)
            assert await other.list("/p/0") == []
            await writer.close()

    async def test_a_name_that_is_used_again_is_not_the_old_writers(self, dfs: Dfs, other: Dfs) -> None:
        writer = await dfs.create("/p/0/s")
        await writer.append(b"old")
        await close_by_recovery(other, "/p/0/s")
        await other.delete("/p/0/s")
        await other.create_file("/p/0/s", b"new")
        with pytest.raises(LeaseLost):
            await writer.append(b"late")
        await writer.close()
        assert await other.read("/p/0/s") == b"new"

    async def _recovered_writer(self, dfs: Dfs, other: Dfs):  # type: ignore[no-untyped-def]
        writer = await dfs.create("/p/0/t")
        await writer.append(b"1")
        await close_by_recovery(other, "/p/0/t")
        return writer

    async def _recover_after(self, dfs: Dfs, path: str, turns: int) -> bytes:
        for _ in range(turns):
            await dfs.list("/p/0")
        await close_by_recovery(dfs, path)
        return await dfs.read(path)
