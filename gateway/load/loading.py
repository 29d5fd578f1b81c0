"""Loading a source through the client: batches in flight, resumable, nothing twice, alive through a failover.

What always holds: batch n of a load has the idempotency key `<load id>-<n>`, so what is sent twice is applied once; a
batch stands in the state file (synced) only after it was acknowledged; the load id and the cut of the batches stand
there too, so that a resumed load sends the same rows under the same keys.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from gateway.load.sources import Source, open_source
from twinlog import AsyncClient
from twinlog.calls import Ack
from twinlog.client import new_key
from twinlog.decoding import decoded
from twinlog.errors import Conflict, InvalidInput, TwinlogError, words
from twinlog.flow import Patience
from twinlog.terminal import progress_bar

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

ATTEMPT_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """The settings of a load: source, table and pace. `rows_max` 0: all; `rate` rows a second at most, 0: as fast as it goes.

    `deadline_s` is for each batch.
    """

    source: str
    address: str
    table: str = ""
    key: tuple[str, ...] = ()
    rows_max: int = 0
    batch_rows: int = 1000
    in_flight: int = 4
    rate: int = 0
    deadline_s: float = 300.0
    state: Path | None = None
    acks: Path | None = None


class LoadHead(msgspec.Struct, frozen=True):
    """First line of a state file; each further line is the number of an acknowledged batch."""

    load: str
    source: str
    table: str
    batch_rows: int
    rows_max: int


class LoadState:
    """The batches that are acknowledged, kept in a file when there is one. Use as a context."""

    def __init__(self, path: Path | None, head: LoadHead) -> None:
        self.head = head
        self.acknowledged: set[int] = set()
        self._file: IO[bytes] | None = None
        if path is None:
            return
        if path.exists() and path.stat().st_size:
            self._take_up(path)
        self._file = path.open("ab")
        if self._file.tell() == 0:
            self._write(msgspec.json.encode(self.head) + b"\n")

    def _take_up(self, path: Path) -> None:
        content = path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        try:
            first, *rest = whole.splitlines()
            head = decoded(partial(msgspec.json.decode, type=LoadHead), first, ValueError)
            self.acknowledged = {int(line) for line in rest}
        except ValueError as error:
            raise InvalidInput(f"{path} is no state file of a load: {words(error)}; name another, or delete it") from error
        if replace(self.head, load=head.load) != head:
            raise Conflict(
                f"{path} belongs to another load ({head.source} into {head.table}, {head.batch_rows} rows a batch, "
                f"{head.rows_max or 'all'} rows): use the same options, or another --state file"
            )
        self.head = head
        if len(whole) != len(content):  # the last line was cut by a crash: its batch is sent again, under its old key
            os.truncate(path, len(whole))

    def __enter__(self) -> LoadState:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def note(self, batch: int) -> None:
        """Durable when it returns."""
        self.acknowledged.add(batch)
        if self._file is not None:
            self._write(b"%d\n" % batch)

    def _write(self, line: bytes) -> None:
        assert self._file is not None
        self._file.write(line)
        self._file.flush()
        os.fdatasync(self._file.fileno())


@dataclass(slots=True)
class Tally:
    """The counts of the summary."""

    began_s: float
    last_ack_s: float
    rows: int = 0
    batches: int = 0
    skipped: int = 0
    longest_gap_s: float = 0.0
    modes: dict[str, int] = field(default_factory=dict)

    def note(self, now_s: float, rows: int, ack: Ack) -> None:
        self.rows, self.batches = self.rows + rows, self.batches + 1
        self.longest_gap_s = max(self.longest_gap_s, now_s - self.last_ack_s)
        self.last_ack_s = now_s
        self.modes[ack.mode] = self.modes.get(ack.mode, 0) + 1

    def summary(self, now_s: float) -> dict[str, Any]:
        seconds = now_s - self.began_s
        return {
            "rows": self.rows, "batches": self.batches + self.skipped, "acknowledged": self.batches,
            "acknowledged_before": self.skipped, "modes": self.modes, "seconds": round(seconds, 3),
            "rows_per_s": round(self.rows / seconds) if seconds > 0 else 0, "longest_gap_s": round(self.longest_gap_s, 3),
        }


def run_load(plan: LoadPlan) -> dict[str, Any]:
    """Load, with a progress bar on standard error. The summary. Raises TwinlogError when a batch fails for good."""
    return asyncio.run(load(plan))


async def load(plan: LoadPlan) -> dict[str, Any]:
    """As `run_load`, in a running event loop."""
    source = await asyncio.to_thread(open_source, plan.source, plan.table, plan.key)
    head = LoadHead(new_key(), source.name, source.table, plan.batch_rows, plan.rows_max)
    patience = Patience(deadline_s=plan.deadline_s, attempt_timeout_s=min(ATTEMPT_TIMEOUT_S, plan.deadline_s))
    with contextlib.ExitStack() as stack:
        state = stack.enter_context(LoadState(plan.state, head))
        acks = stack.enter_context(plan.acks.open("ab")) if plan.acks is not None else None
        async with AsyncClient(plan.address, patience) as client:
            source = source.fitted(await _not_null_columns(client, source))
            progress = stack.enter_context(_progress_bar())
            loader = _Loader(client, source, plan, state, acks, progress)
            await loader.run()
    return {"source": source.name, "table": source.table, "load": state.head.load, **loader.tally.summary(time.monotonic())}


async def _not_null_columns(client: AsyncClient, source: Source) -> list[str]:
    """The columns of the table that take no null. The table is created where there is none."""
    table = next((table for table in await client.tables() if table["name"] == source.table), None)
    if table is None:
        table = await client.create_table(await asyncio.to_thread(source.table_body))
    return [column["name"] for column in table["columns"] if not column["nullable"]]


def _progress_bar() -> Progress:
    return progress_bar(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("rows {task.fields[rate]}"),
        TimeRemainingColumn(),
    )


class _Loader:
    """Keeps some batches on the way at once; the first that fails for good ends the load."""

    def __init__(
        self, client: AsyncClient, source: Source, plan: LoadPlan, state: LoadState, acks: IO[bytes] | None,
        progress: Progress,
    ) -> None:
        self._client, self._source, self._plan, self._state, self._acks = client, source, plan, state, acks
        self._progress = progress
        total = min(source.rows.num_rows, plan.rows_max) if plan.rows_max else source.rows.num_rows
        self._bar = progress.add_task(f"loading {source.table}", total=total, rate="")
        now_s = time.monotonic()
        self.tally = Tally(now_s, now_s)
        self._next_s = now_s

    async def run(self) -> None:
        batches = self._source.batches(self._plan.batch_rows, self._plan.rows_max)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._plan.in_flight):
                    group.create_task(self._send_all(batches))
        except ExceptionGroup as failures:  # not `except*`: Python 3.11 up to 3.11.3 wraps what is raised there once more
            ours, others = failures.split(TwinlogError)
            raise (ours.exceptions[0] if ours is not None and others is None else failures) from None

    async def _send_all(self, batches: Iterator[tuple[int, int, pa.Table]]) -> None:
        """One of the lanes; all of them take from the same `batches`."""
        for number, first_row, rows in batches:
            if number in self._state.acknowledged:
                self.tally.skipped += 1
                self._progress.advance(self._bar, rows.num_rows)
                continue
            await self._pace(rows.num_rows)
            key = f"{self._state.head.load}-{number}"
            ack = await self._client.upsert_arrow(self._source.table, rows, request_key=key)
            self._acknowledged(number, first_row, rows.num_rows, ack)

    async def _pace(self, rows: int) -> None:
        """Hold a batch back until the rate allows it; a pause (a failover, say) is not caught up in a burst."""
        if not self._plan.rate:
            return
        now_s = time.monotonic()
        self._next_s = max(self._next_s, now_s) + rows / self._plan.rate
        await asyncio.sleep(self._next_s - now_s)

    def _acknowledged(self, number: int, first_row: int, rows: int, ack: Ack) -> None:
        now_s = time.monotonic()
        self.tally.note(now_s, rows, ack)
        if self._acks is not None:
            line = {
                "monotonic_s": now_s, "batch": number, "first_row": first_row, "rows": rows, "receipt": ack.receipt,
                "mode": ack.mode, "version": str(ack.version),
            }
            self._acks.write(msgspec.json.encode(line) + b"\n")
            self._acks.flush()
        self._state.note(number)
        rate = self.tally.rows / max(now_s - self.tally.began_s, 0.001)
        self._progress.update(self._bar, advance=rows, rate=f"at {rate:,.0f}/s")
