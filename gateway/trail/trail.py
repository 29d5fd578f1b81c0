"""The writer of a site's audit trail: one line after the other, each on the disk before the next one is begun.

What always holds:
- lines stand in the file in the order in which they were put; one that could be written only later says how much later;
- `write` ends by DEADLINE_S, whatever the disk does: it returns False where the line is not known to be on the disk by then,
  and whoever asked decides what that means (docs/decisions, a trail that cannot be written);
- a file is written by one process, for one life, and never changed: a start, a full file and an append that failed each begin
  the next one, whose first line says where the one before ended;
- the structured log has each line too, under the event `trail` with its number and hash; what cannot be written stands there
  at once, under the event `trail unwritten`;
- what waits is bounded: beyond QUEUE_MAX entries are left out of the trail, counted, and a line says how many.
"""

from __future__ import annotations

import asyncio
import traceback
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import structlog

from gateway.trail.chain import (
    FOLDER,
    ChainVerifier,
    FileOpening,
    Leftover,
    file_name,
    is_full,
    last_line,
    leftover,
    ordinal_of,
    whole_bytes,
)
from gateway.trail.entry import Outcome, TrailEntry, TrailHead, Who, bounded, line_of, read_line
from gateway.trail.events import GAP, OPENED
from storage.clock import Clock
from storage.disk.port import Files, LogFile
from twinlog.errors import LogError, TwinlogError

DEADLINE_S = 2.0
RETRY_S = 2.0
QUEUE_MAX = 2000
SHOWN_BYTES, SHOWN_FILES = 512 << 10, 100  # of the newest that a request gets
FAULT_WAIT_S = 0.2  # while the disk is known to refuse: an answer that comes at once
LOOK_BACK_BYTES = 4 << 20  # of older files, for the listeners at a start
BROKEN_MAX = 5  # faults that a start names; `twinlog trail --verify` names all
log = structlog.get_logger("twinlog.trail")


class Placed:
    """An entry that was put. `written`: True once it is on the disk, False where that failed or it was left out. `number`: of
    its line, once it has one."""

    __slots__ = ("event", "number", "of", "operation", "outcome", "time_ms", "what", "who", "written")

    def __init__(
        self, event: str, who: Who, outcome: Outcome, what: dict[str, Any], operation: str, of: Placed | None, time_ms: int
    ) -> None:
        self.event, self.who, self.outcome, self.what = event, who, outcome, what
        self.operation, self.of, self.time_ms = operation, of, time_ms
        self.number = 0
        self.written: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    @property
    def is_written(self) -> bool:
        return self.written.done() and self.written.result()

    def settle(self, written: bool) -> None:
        if not self.written.done():
            self.written.set_result(written)


class Trail:
    """`head`: the last line that is on the disk. `is_known`: the files were read to their end.
    `fault`: why the next line is not written, None where all is well."""

    def __init__(self, files: Files, clock: Clock, *, pair: str, site: str) -> None:
        self._files, self._clock, self._pair, self.site = files, clock, pair, site
        self.head = TrailHead()
        self.last: TrailEntry | None = None  # before this life
        self.is_known = False  # where the files end
        self.fault: str | None = None
        self.listeners: list[Callable[[TrailEntry, TrailHead], None]] = []  # of each line, those that a start finds too
        self.carried: dict[str, Any] = {}  # what each file's first line says, too, so that a start need not read all files
        self._found_broken: list[dict[str, Any]] = []
        self._ordinal, self._written_bytes = 0, 0
        self._torn: list[Leftover] = []
        self._file: LogFile | None = None
        self._queue: deque[Placed] = deque()
        self._left_out, self._left_out_ms = 0, 0
        self._wake, self._closing = asyncio.Event(), False
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Finds where the trail ends, and begins to write. A disk that refuses is no reason not to start."""
        try:
            await self._find_end()
        except TwinlogError as error:
            self._fail(error.message)
        self._task = asyncio.get_running_loop().create_task(self._write_all(), name="trail")

    async def close(self) -> None:
        """Writes what waits, for DEADLINE_S at most."""
        self._closing = True
        self._wake.set()
        if self._task is not None:
            await asyncio.wait((self._task,), timeout=DEADLINE_S)
            self._task.cancel()
            await asyncio.wait((self._task,), timeout=DEADLINE_S)
        if self._file is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(DEADLINE_S):
                    await self._file.close()

    @property
    def this_site(self) -> Who:
        """The gateway, where it acts by itself."""
        return Who(f"site {self.site}", "site")

    def figures(self) -> dict[str, float]:
        """Returns figures for metrics."""
        lines = {"trail_lines": float(self.head.number)} if self.is_known else {}
        return {"trail_ok": float(self.fault is None), **lines}

    # ---- for those who act
    def put(
        self, event: str, who: Who, outcome: Outcome = "noted", what: dict[str, Any] | None = None, *, operation: str = "",
        of: Placed | None = None,
    ) -> Placed:
        """Gives the entry its place in the order. `of`: the entry of its beginning."""
        placed = Placed(event, who, outcome, bounded(what or {}), operation, of, self._clock.wall_ms())
        if len(self._queue) >= QUEUE_MAX:
            self._leave_out(placed, self.fault or "too many entries wait")
            return placed
        if self.fault is not None:
            _log_unwritten(placed, self.fault)
        self._queue.append(placed)
        self._wake.set()
        return placed

    async def write(
        self, event: str, who: Who, outcome: Outcome = "noted", what: dict[str, Any] | None = None, *, operation: str = "",
        of: Placed | None = None,
    ) -> Placed:
        """As `put`, and waits until it is written or has failed, for DEADLINE_S at most."""
        placed = self.put(event, who, outcome, what, operation=operation, of=of)
        await asyncio.wait((placed.written,), timeout=DEADLINE_S if self.fault is None else FAULT_WAIT_S)
        if not placed.written.done() and self.fault is None:
            self._fail("the disk does not answer")
            _log_unwritten(placed, "the disk does not answer")
        return placed

    async def newest(self, limit: int, since_ms: int = 0) -> list[TrailEntry]:
        """Returns at most so many of the last lines, as far as SHOWN_BYTES reach back. Raises LogError."""
        found: list[TrailEntry] = []
        left_bytes = SHOWN_BYTES
        for ordinal in list(reversed(await self._ordinals()))[:SHOWN_FILES]:
            path = f"{FOLDER}/{file_name(ordinal)}"
            begin = max(0, await self._files.size(path) - left_bytes)
            lines = map(read_line, (await self._files.read(path, begin)).split(b"\n"))
            read = [line.entry for line in lines if line is not None]
            left_bytes -= await self._files.size(path) - begin
            found = [*(entry for entry in read if entry.time_ms >= since_ms), *found][-limit:]
            if len(found) >= limit or left_bytes <= 0 or (read and read[0].time_ms < since_ms):
                break
        return found

    # ---- the writer
    async def _write_all(self) -> None:
        while not (self._closing and not self._queue):
            if not self._queue:
                self._wake.clear()
                await self._wake.wait()
                continue
            first = self._queue[0]
            try:
                await self._write_next()
            except TwinlogError as error:
                self._refused(error.message)
                await self._end_file()  # that file is not touched again
                if self._closing:
                    return
                self._wake.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(RETRY_S):
                        await self._wake.wait()
            except Exception:  # a fault of ours in one entry must not end the trail
                log.error("internal error", traceback=traceback.format_exc())
                if self._queue and self._queue[0] is first:
                    self._leave_out(self._queue.popleft(), "an internal error")

    def _leave_out(self, placed: Placed, why: str) -> None:
        self._left_out += 1
        self._left_out_ms = self._left_out_ms or placed.time_ms
        _log_unwritten(placed, why)
        placed.settle(False)

    async def _write_next(self) -> None:
        if self._file is None:
            await self._begin_file()
        placed, left_out = self._queue[0], self._left_out
        if left_out and placed.event != GAP:
            self._queue.appendleft(self._gap())
            return
        entry = self._entry(placed)
        line, head = line_of(entry, self.head.digest)
        if is_full(self._written_bytes, len(line)):
            await self._end_file()
            return
        assert self._file is not None
        await self._check_file()
        await self._file.append(line)
        self.head, self._written_bytes = head, self._written_bytes + len(line)
        self._queue.popleft()
        placed.number = head.number
        if self.fault is not None:
            log.warning("the trail is written again", number=head.number, waiting=len(self._queue))
            self.fault = None
        placed.settle(True)
        self._is_written(entry, head)

    def _is_written(self, entry: TrailEntry, head: TrailHead) -> None:
        log.info("trail", number=head.number, sha256=head.sha256, **_shown(entry))
        for listener in self.listeners:
            listener(entry, head)

    def _gap(self) -> Placed:
        what = {"left_out": self._left_out, "first_ms": self._left_out_ms, "log": "trail unwritten"}
        self._left_out = self._left_out_ms = 0
        return Placed(GAP, self.this_site, "noted", what, "", None, self._clock.wall_ms())

    def _entry(self, placed: Placed) -> TrailEntry:
        late_ms = max(0, self._clock.wall_ms() - placed.time_ms)
        return TrailEntry(
            self.head.number + 1, placed.time_ms, placed.event, placed.who, placed.outcome, placed.what, placed.operation,
            0 if placed.of is None else placed.of.number, late_ms if late_ms > DEADLINE_S * 1000 else 0,
        )

    def _refused(self, why: str) -> None:
        """The disk refused: nobody waits any longer."""
        was_well = self.fault is None
        self._fail(why)
        for placed in self._queue:
            if was_well and not placed.written.done():
                _log_unwritten(placed, why)
            placed.settle(False)

    def _fail(self, why: str) -> None:
        if self.fault is None:
            log.error("the trail cannot be written; role changes continue without it", why=why, number=self.head.number)
        self.fault = why

    # ---- files
    async def _begin_file(self) -> None:
        """Begins the next file, whose first line says where the ones before ended. Raises TwinlogError."""
        if not self.is_known:
            await self._find_end()
        torn = [*self._torn, *await self._unsynced()]
        ordinal = max([self._ordinal, *await self._ordinals()]) + 1
        what = {**msgspec.to_builtins(FileOpening(self.head.sha256, torn)), "pair": self._pair, "site": self.site, "format": 1,
                **self.carried}
        if self._found_broken:
            what["broken"] = self._found_broken
        entry = TrailEntry(self.head.number + 1, self._clock.wall_ms(), OPENED, self.this_site, what=what)
        line, head = line_of(entry, self.head.digest)
        self._file = await self._files.create_log(f"{FOLDER}/{file_name(ordinal)}", line, len(line))
        self.head, self._ordinal, self._written_bytes = head, ordinal, len(line)
        self._torn, self._found_broken = [], []
        self._is_written(entry, head)

    async def _check_file(self) -> None:
        """Looks whether the file is where it was: lines in one that was moved away are found by nobody. Raises LogError."""
        name = file_name(self._ordinal)
        if name not in await self._files.list(FOLDER):
            raise LogError(f"{FOLDER}/{name} is not there any more: somebody has moved or deleted it")

    async def _end_file(self) -> None:
        if self._file is not None:
            await self._file.close()
            self._file = None

    async def _ordinals(self) -> list[int]:
        names = await self._files.list(FOLDER)
        return sorted(ordinal for ordinal in map(ordinal_of, names) if ordinal is not None)

    async def _unsynced(self) -> list[Leftover]:
        """Returns what this process could not write: whatever the disk has of it does not count."""
        found = []
        for ordinal in await self._ordinals():
            if ordinal < self._ordinal:
                continue
            name = file_name(ordinal)
            offset = self._written_bytes if ordinal == self._ordinal else 0
            found += leftover(name, await self._files.read(f"{FOLDER}/{name}"), offset, "unsynced")
        return found

    async def _find_end(self) -> None:
        """Reads the last whole line there is; what stands behind it was torn by a crash. Raises TwinlogError."""
        torn: list[Leftover] = []
        newest: list[bytes] = []
        ordinals = await self._ordinals()
        for ordinal in reversed(ordinals):
            name = file_name(ordinal)
            if not newest:
                await self._files.make_durable(f"{FOLDER}/{name}")  # a process that died may have left it unsynced
            data = await self._files.read(f"{FOLDER}/{name}")
            if ordinal == ordinals[-1]:
                self._ordinal, self._written_bytes = ordinal, len(data)
            last = last_line(data)
            if not newest:
                torn = [*leftover(name, data, whole_bytes(data), "torn"), *torn]
                if last is None:
                    continue
                self.head, self.last = last.head, last.entry
                self._note_broken(name, data)
            newest.append(data)
            if sum(map(len, newest)) >= LOOK_BACK_BYTES:
                break
        self._torn, self.is_known = torn, True
        for raw in b"".join(reversed(newest)).split(b"\n") if self.listeners else ():
            line = read_line(raw)
            for listener in self.listeners:
                if line is not None:
                    listener(line.entry, line.head)

    def _note_broken(self, name: str, data: bytes) -> None:
        """A last file whose lines do not continue each other was changed by somebody: it stays as it is, and is said."""
        first = read_line(data.split(b"\n", 1)[0])
        verifier = ChainVerifier(begins_at=1 if first is None else first.entry.number)
        verifier.file(name, data)
        for fault in verifier.end().faults[:BROKEN_MAX]:
            log.error("the trail is broken", file=fault.file, line=fault.line, why=fault.what)
            self._found_broken.append({"file": fault.file, "line": fault.line})


def _log_unwritten(placed: Placed, why: str) -> None:
    log.error("trail unwritten", why=why, **_shown(placed))


def _shown(entry: TrailEntry | Placed) -> dict[str, Any]:
    who = {"who": entry.who.name, "kind": entry.who.kind, "address": entry.who.address, "says": entry.who.says}
    about = {"outcome": entry.outcome, "operation": entry.operation, "what": entry.what}
    return {"act": entry.event, "at_ms": entry.time_ms} | {name: value for name, value in (who | about).items() if value}
