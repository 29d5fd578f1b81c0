"""Writes that do not stop while something is audited: rows of a table changed, made and deleted, at a rate, from a thread.

What always holds: of every five writes three change a row, one makes one, and one deletes a row that was made before; a batch
counts once it is acknowledged, with its time, so what was written during an audit is known afterwards; a write that fails
for good is raised by the next question, never swallowed.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, pairwise
from types import TracebackType
from typing import Any, NamedTuple, Self

from twinlog import AsyncClient

LANES = 4  # batches in flight; each lane has rows of its own
BATCH_ROWS = 250
BURST_S = 1.0  # a pause is caught up as far as this
MADE = 1_000_000  # added to a key's number: rows that are made are beside those that were there
STOP_S = 60.0
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Written:
    """The acknowledged writes of a stretch of time. `longest_gap_s`: the longest time without an acknowledgement."""

    rows: int
    seconds: float
    longest_gap_s: float

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds


class Target(NamedTuple):
    """A table, `number` an integer column of its `key`, and `changed` one that is not in it."""

    table: str
    key: tuple[str, ...]
    number: str
    changed: str


class Writes:
    """`with Writes(...) as writes:` - the thread writes until the end of the block.

    `address`: of the pair, as clients take it. `rows` of the table are what is changed, a thousand or more; nobody else may
    write them. `rate`: rows a second.
    """

    def __init__(self, address: str, target: Target, rows: Sequence[Row], rate: int) -> None:
        self._address, self._target, self._rows, self._rate = address, target, rows, rate
        self._acknowledged: list[tuple[float, int]] = []
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="writes", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join(STOP_S)
        if kind is None:
            self.check()

    def check(self) -> None:
        """Raises what ended the writes, if something did."""
        if self._failure is not None:
            raise self._failure

    def between(self, begin_s: float, end_s: float) -> Written:
        """Returns the writes between two times of the clock time.monotonic."""
        self.check()
        found = [(at_s, rows) for at_s, rows in list(self._acknowledged) if begin_s <= at_s < end_s]
        moments = sorted([begin_s, *(at_s for at_s, _ in found), end_s])
        return Written(
            sum(rows for _, rows in found), end_s - begin_s, max(after - before for before, after in pairwise(moments))
        )

    def _run(self) -> None:
        try:
            asyncio.run(self._write())
        except BaseException as error:  # raised where somebody asks
            self._failure = error

    async def _write(self) -> None:
        async with AsyncClient(self._address) as client, asyncio.TaskGroup() as lanes:
            for lane in range(LANES):
                lanes.create_task(self._lane(client, self._rows[lane::LANES]))

    async def _lane(self, client: AsyncClient, rows: Sequence[Row]) -> None:
        size = max(1, min(BATCH_ROWS, self._rate // LANES // 4))  # four batches a second at least
        due_s = time.monotonic()
        for batch in _batches(self._target, rows, size):
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            if self._ended.is_set():
                return
            await client.mutate(self._target.table, batch)
            self._acknowledged.append((time.monotonic(), len(batch)))
            due_s = max(due_s + size * LANES / self._rate, time.monotonic() - BURST_S)


def _batches(target: Target, rows: Sequence[Row], size: int) -> Iterator[list[dict[str, Any]]]:
    """Yields batches for ever, round and round; the mutations of a batch are of different rows."""
    made: deque[Row] = deque()
    batch: list[dict[str, Any]] = []
    for number, row in enumerate(cycle(rows)):
        if number % 5 == 3:
            other = {**row, target.number: row[target.number] + MADE}
            made.append(other)
            batch.append({"op": "upsert", "row": {**other, target.changed: number}})
        elif number % 5 == 4 and len(made) > size:
            gone = made.popleft()
            batch.append({"op": "delete", "key": {name: gone[name] for name in target.key}})
        else:
            batch.append({"op": "upsert", "row": {**row, target.changed: number}})
        if len(batch) == size:
            yield batch
            batch = []
