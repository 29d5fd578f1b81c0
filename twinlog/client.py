"""The blocking client: one logical address for the pair, whichever site is active.

    with Client("twinlog://pair?a=http://127.0.0.1:8401&b=http://127.0.0.1:8402") as client:
        ack = client.put("flights", ("2013-01-01T10:00:00Z", "UA", 1545, "EWR"), {"dest": "IAH"})
        client.receipt(ack.receipt).outcome  # "survived"

What always holds: both clients are thin drivers of the same flow (flow.py) and the same calls (calls.py); a write gets its
idempotency key here, once, and keeps it in every attempt. Errors are those of errors.py; a write whose fate is not known at
the deadline raises OutcomeUnknown, and repeating it with the same `request_key=` settles it. A row comes back in the Python
types that went in (rows.py).
"""

from __future__ import annotations

import contextlib
import random
import secrets
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from twinlog import calls, rows
from twinlog.addresses import resolve_address, resolve_tls
from twinlog.audit_calls import AuditCalls
from twinlog.calls import Ack, ReceiptOutcome, Row, TypedCall
from twinlog.decoding import OBJECT, decoded
from twinlog.errors import PeerError, TwinlogError
from twinlog.flow import Call, PairView, Patience, Pause, Resumed, call
from twinlog.wire.exchange import Broken, Reply
from twinlog.wire.http import Http
from twinlog.wire.tls import Tls
from twinlog.wire.token import token_for

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

_T = TypeVar("_T")
EVENT_SILENCE_S = 20.0  # a stream that says nothing for so long is given up for the other site's
END_SCAN_S = 1.0  # to say that no more rows are wanted
READS_MAX = 3  # of rows whose table changes between the read of its columns and theirs


def new_key() -> str:
    """A fresh idempotency key."""
    return secrets.token_hex(16)


class Client(AuditCalls):
    """The blocking client. Safe to use from several threads."""

    def __init__(
        self, address: str | Mapping[str, str], patience: Patience | None = None, http: Http | None = None, *,
        tls: Tls | None = None, token: str | None = None,
    ) -> None:
        """`address`: `twinlog://PAIR?a=URL&b=URL`, the path of an operator's configuration or a demo.json, or site -> url.
        `tls`: for https; None: what the address's file and the environment say (addresses.py). `token`: who asks, as a text or
        `file:PATH`; left out, TWINLOG_TOKEN has it, or the file at `address`; empty: nobody."""
        self.view = PairView(resolve_address(address))
        self.patience = patience or Patience()
        self._http = http or Http(tls or resolve_tls(address), token_for(address, self.view.urls, token))
        self._columns: dict[str, calls.KnownColumns] = {}  # of the tables that were read, as they last were
        self._threads = ThreadPoolExecutor(len(self.view.urls), "twinlog-probe")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections. Leaving the `with` block does the same."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._http.close()

    # tables
    def create_table(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """`body` as in the API. An equal table that exists is fine. Raises Conflict on a different one."""
        return self._run(calls.create_table(body, new_key()))

    def alter_table(self, table: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Changes a table; `body` as in the API. Returns the changed table."""
        return self._run(calls.alter_table(table, body, new_key()))

    def drop_table(self, table: str, *, confirm: str | None = None) -> None:
        """`confirm`: the table's name once more. Raises Conflict for a table that holds rows without it."""
        self._run(calls.drop_table(table, confirm, new_key()))

    def restore_table(self, table: str) -> dict[str, Any]:
        """The table that was dropped under this name last, with its rows. Raises NotFound when none is kept, Conflict."""
        return self._run(calls.restore_table(table, new_key()))

    def table(self, table: str) -> dict[str, Any]:
        """One table, with its columns. Raises NotFound."""
        return self._run(calls.get_table(table))

    def table_figures(self, table: str) -> dict[str, Any]:
        """About how many rows one table has, how large they are, and how its schema stands at the other site: with `rows_are`
        `estimated` they were not counted, and what is not known is None. Raises NotFound."""
        return self._run(calls.table_figures(table))

    def tables(self) -> list[dict[str, Any]]:
        """All tables that the caller may know of."""
        return self._run(calls.list_tables())

    def dropped_tables(self) -> list[dict[str, Any]]:
        """Those that `restore_table` brings back, the last one first: name, kept_as, dropped_at, kept_until and columns."""
        return self._run(calls.list_dropped_tables())

    # rows
    def put(
        self, table: str, key: Any, row: Mapping[str, Any], *, if_version: int | None = None, if_absent: bool = False,
        request_key: str | None = None, deadline_s: float | None = None,
    ) -> Ack:
        """Upsert a whole row. A composite `key` is a tuple. Raises PreconditionFailed when a condition does not hold."""
        conditions = calls.preconditions(if_version, if_absent)
        return self._run(calls.put(table, key, row, request_key or new_key(), conditions), deadline_s)

    def update(
        self, table: str, key: Any, columns: Mapping[str, Any], *, if_version: int | None = None,
        request_key: str | None = None, deadline_s: float | None = None,
    ) -> Ack:
        """Change some columns of a row that exists. Raises NotFound."""
        conditions = calls.preconditions(if_version, False)
        return self._run(calls.update(table, key, columns, request_key or new_key(), conditions), deadline_s)

    def delete(
        self, table: str, key: Any, *, if_version: int | None = None, request_key: str | None = None,
        deadline_s: float | None = None,
    ) -> Ack:
        """Deletes a row. Raises NotFound, and PreconditionFailed when the row has another version."""
        conditions = calls.preconditions(if_version, False)
        return self._run(calls.delete(table, key, request_key or new_key(), conditions), deadline_s)

    def mutate(
        self, table: str, mutations: Sequence[Mapping[str, Any]], *, request_key: str | None = None,
        deadline_s: float | None = None,
    ) -> Ack:
        """All or nothing: {"op": "upsert"|"insert"|"update", "row": {...}} or {"op": "delete", "key": {...}} each."""
        return self._run(calls.mutate(table, mutations, request_key or new_key()), deadline_s)

    def upsert_arrow(
        self, table: str, batch: pa.RecordBatch | pa.Table, *, request_key: str | None = None, deadline_s: float | None = None
    ) -> Ack:
        """All rows of `batch` or none: the fast way in."""
        return self._run(calls.upsert_arrow(table, batch, request_key or new_key()), deadline_s)

    def check(
        self, table: str, key: Any, body: Mapping[str, Any], *, request_key: str | None = None, deadline_s: float | None = None
    ) -> Ack:
        """Check-and-mutate; `body` as in the API. Raises PreconditionFailed."""
        return self._run(calls.check(table, key, body, request_key or new_key()), deadline_s)

    def get(
        self, table: str, key: Any, *, columns: Sequence[str] | None = None, as_of: int | str | None = None,
        deadline_s: float | None = None,
    ) -> Row:
        """One row. Raises NotFound."""
        found, (row,) = self._read(table, calls.get(table, key, columns, as_of), lambda found: [found.row], deadline_s)
        return Row(row, found.version)

    def scan(
        self, table: str, *, start: Any = None, end: Any = None, where: Sequence[calls.Where] = (),
        columns: Sequence[str] | None = None, as_of: int | str | None = None, reverse: bool = False, page_rows: int = 1000,
        snapshot: bool = False, deadline_s: float | None = None,
    ) -> Generator[dict[str, Any], None, None]:
        """Rows of [start, end) in key order, page by page; the deadline is for each page. `snapshot`: all are of one moment.
        Whoever stops early closes the generator, which lets the snapshot go.

        Raises HistoryNotHeld where the site holds that moment no longer: begin anew.
        """
        token: str | None = None
        while True:
            asked = calls.scan(
                table, start=start, end=end, where=where, columns=columns, limit=page_rows, as_of=as_of, reverse=reverse,
                snapshot=snapshot, page_token=token,
            )
            page, found = self._read(table, asked, lambda page: page.rows, deadline_s)
            token = page.next_page_token
            try:
                yield from found
            except GeneratorExit:
                if snapshot and token is not None:
                    with contextlib.suppress(TwinlogError):  # the site lets it go by itself, a minute later
                        self._run(calls.end_scan(table, token), END_SCAN_S)
                raise
            if token is None:
                return

    def receipt(self, receipt: str) -> ReceiptOutcome:
        """The fate of an acknowledged write, as either site knows it."""
        return self._run(calls.receipt(receipt))

    # the pair
    def cluster(self) -> dict[str, Any]:
        """The pair as the active (or whoever answers) sees it."""
        return self._run(calls.cluster())

    def cluster_events(self) -> Iterator[dict[str, Any]]:
        """The cluster document at once, then one at each change, for ever; this client follows what they say."""
        for pauses, url in enumerate(for_ever(self.view)):
            with contextlib.suppress(TwinlogError):  # the other site is asked next
                for data in self._http.events(f"{url}/v1/cluster/events", EVENT_SILENCE_S):
                    yield followed(self.view, data)
            time.sleep(min(self.patience.retry_max_s, 0.05 * (1 + pauses)))

    def _read(
        self, table: str, asked: TypedCall[_T], rows_of: Callable[[_T], list[rows.Row]], deadline_s: float | None
    ) -> tuple[_T, list[rows.Row]]:
        """An answer, and its rows in Python's types. It is read again when the table changed between it and its columns."""
        for _ in range(READS_MAX):
            reply = self.send(asked.call, deadline_s)
            schema, known = calls.schema_of(reply), self._columns.get(table)
            if known is None or known.schema != schema:
                known = self._columns[table] = self._run(calls.table_columns(table))
            if known.schema == schema:
                answer = asked.parse(reply)
                return answer, rows.to_python(rows_of(answer), known.types)
        raise changing(table)

    def _run(self, asked: TypedCall[_T], deadline_s: float | None = None) -> _T:
        return asked.parse(self.send(asked.call, deadline_s))

    def send(self, request: Call, deadline_s: float | None = None) -> Reply:
        """The reply (2xx) to any request of the API, by the flow of every other call. Raises as those do."""
        flow = call(self.view, request, within(self.patience, deadline_s), time.monotonic(), random.random)
        step = next(flow)
        while True:
            answers: tuple[Reply | Broken, ...] = ()
            if isinstance(step, Pause):
                time.sleep(step.duration_s)
            elif len(step.requests) == 1:
                answers = (self._http.send(step.requests[0]),)
            else:
                answers = tuple(self._threads.map(self._http.send, step.requests))
            try:
                step = flow.send(Resumed(time.monotonic(), answers))
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]


def within(patience: Patience, deadline_s: float | None) -> Patience:
    return patience if deadline_s is None else replace(patience, deadline_s=deadline_s)


def for_ever(view: PairView) -> Iterator[str]:
    """The sites' addresses in turn."""
    while True:
        yield from list(view.urls.values())


def followed(view: PairView, data: str) -> dict[str, Any]:
    """A cluster event's document, after `view` has learnt from it."""
    document = decoded(OBJECT, data, lambda what: PeerError(f"a cluster event is not JSON: {what}; is it a twinlog gateway?"))
    view.learn(document.get("active"))
    return document


def changing(table: str) -> TwinlogError:
    """The error of a read that met other columns each time."""
    return PeerError(f"table {table!r} changed {READS_MAX} times between an answer and its columns: read it again")
