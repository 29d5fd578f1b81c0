"""Trails for tests: written by the product's own writer on a disk in memory, or made line by line."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from hashlib import sha256

import msgspec

from gateway.trail.chain import FOLDER, ChainVerifier, FileOpening, Leftover, Verdict, file_name
from gateway.trail.entry import Line, TrailEntry, TrailHead, Who, line_of, read_line
from gateway.trail.events import OPENED
from gateway.trail.trail import Trail
from storage.clock import SystemClock
from storage.disk.port import Files
from tests.storage.disk.memory_files import MemoryFiles

ANNA = Who("anna", "token", "10.0.0.7", "anna@laptop")
SITE = Who("site a", "site")
Stored = list[tuple[str, bytes]]


@contextlib.asynccontextmanager
async def opened(files: Files) -> AsyncIterator[Trail]:
    """One life of a gateway, as far as its trail is concerned."""
    trail = Trail(files, SystemClock(), pair="p", site="a")
    await trail.open()
    try:
        yield trail
    finally:
        await trail.close()


async def until(ready: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not ready():  # noqa: ASYNC110 - the writer is a task, and says nothing when it is done
            await asyncio.sleep(0)


def stored(files: MemoryFiles) -> Stored:
    """The trail's files as a disk has them."""
    names = sorted(path for path in files.files if path.startswith(f"{FOLDER}/"))
    return [(path.rpartition("/")[2], bytes(files.files[path].durable)) for path in names]


def verdict_on(files: Stored, anchors: Iterable[TrailHead] = (), begins_at: int = 1) -> Verdict:
    verifier = ChainVerifier(begins_at, anchors)
    for name, data in files:
        verifier.file(name, data)
    return verifier.end()


def entries(files: Stored) -> list[TrailEntry]:
    """Those that are part of the trail."""
    found: list[TrailEntry] = []
    verifier = ChainVerifier(seen=found.append)
    for name, data in files:
        verifier.file(name, data)
    verifier.end()
    return found


def made(sizes: Sequence[int], torn: Sequence[bytes] = ()) -> Stored:
    """Files with so many lines behind their first one. `torn`: what stands behind the end of each, as the next one declares."""
    files, head = Stored(), TrailHead()
    left: list[Leftover] = []
    for ordinal, count in enumerate(sizes, 1):
        what = msgspec.to_builtins(FileOpening(head.sha256, left))
        data = b""
        for place in range(count + 1):
            event, said = (OPENED, what) if not place else ("table.alter", {"table": f"t{ordinal}", "change": {"n": place}})
            line, head = line_of(TrailEntry(head.number + 1, 1_700_000_000_000, event, ANNA, "noted", said), head.digest)
            data += line
        rest = torn[ordinal - 1] if ordinal <= len(torn) else b""
        left = [Leftover(file_name(ordinal), len(data), len(rest), _sha(rest), "torn")] if rest else []
        files.append((file_name(ordinal), data + rest))
    return files


def head_of(files: Stored) -> TrailHead:
    last = next(line for _, data in reversed(files) for line in map(read_line, reversed(data.split(b"\n"))) if line)
    return last.head


def last_line_of(files: Stored) -> Line:
    found = read_line(files[-1][1].rstrip(b"\n").rpartition(b"\n")[2])
    assert found is not None
    return found


def _sha(data: bytes) -> str:
    return sha256(data).hexdigest()
