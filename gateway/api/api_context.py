"""Every route shares one context: the service, the limits, the row codecs, the figures, and the sign that the door closes.

What always holds: a request is decoded with the schema that the service shows at that moment; the service refuses it if the
schema has changed by the time of the write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from gateway.api.body_budget import SMALL_BODY_BYTES, BodyBudget
from gateway.api.content_coding import Expander
from gateway.api.metrics import DoorMetrics
from gateway.api.problems import Answer, answer_for, code_of, forget_frames, known
from gateway.api.request import Canonical, Head, canonical_document, deadline_s, idempotency
from gateway.service.http_settings import HttpSettings
from gateway.service.port import Condition, Configuration, Mutation, SiteService, WriteRequest, WriteResult
from gateway.traces.requests import RequestTraces
from gateway.trail.trail import Trail
from storage.engine import StoredRow
from storage.log.record import Record
from storage.rows.codec import RowCodec, RowCodecs
from storage.rows.schema import TableSchema
from storage.tracing import Span, context_of
from twinlog.errors import Forbidden, TwinlogError

if TYPE_CHECKING:  # they are made of what is here
    from gateway.ui.pages import Pages

CONTEXT = "context"  # in the scope of a request: the context of the door that it came in by
SPAN = "span"  # in the scope of a request that is traced
BODY_HOLD = "body_hold"  # in the scope of a request: its place in the budget of bodies
T = TypeVar("T")


class ApiContext:
    """Holds what the routes share. `now_s` is the clock of the measurements; `new_id` makes the number of an incident."""

    def __init__(
        self, service: SiteService, http: HttpSettings, *, now_s: Callable[[], float], new_id: Callable[[], str],
        trail: Trail | None = None, configuration: Configuration | None = None, traces: RequestTraces | None = None,
    ) -> None:
        self.service = service
        self.http = http
        self.on_forbidden: Callable[[Forbidden, Any], None] = lambda error, scope: None  # a handler found a grant missing
        self.configuration = configuration  # None: it is of no file
        self.trail = trail  # None: a door of a test or of the simulator, which keeps none
        self.traces = traces  # None: they are off
        self.metrics = DoorMetrics(service.cluster, has_exemplars=traces is not None)
        service.looks.door = self.metrics
        self.pages: Pages | None = None  # of the operator's page; the composition root sets them
        self.closing = asyncio.Event()
        self.bodies = BodyBudget(http.bodies_bytes_max)
        self.expander = Expander()
        self._decoding = asyncio.Semaphore(1)
        self.now_s, self._new_id = now_s, new_id
        self._codecs = RowCodecs(key_bytes_max=http.key_bytes_max, row_bytes_max=http.row_bytes_max)

    def codec(self, name: str) -> RowCodec:
        """Returns the codec of the table as it is now. Raises NotFound, NotActive."""
        return self._codecs.get(self.service.tables.get(name))

    def codec_behind(self, codec: RowCodec) -> RowCodec:
        """Returns the codec for rows that were read since `codec` was asked for. The table may have changed before they were,
        and by its earlier schema a row would lack what its own write put there. Raises NotFound, NotActive."""
        now = self.codec(codec.schema.name)
        return now if now.schema.id == codec.schema.id else codec

    def problem(self, error: Exception, *, is_write: bool) -> Answer:
        """Returns the answer to an error, and counts it."""
        said = known(error, self._new_id)
        answer = answer_for(said, is_write=is_write)
        self.metrics.problem(answer.status, code_of(said))
        forget_frames(error)
        return answer

    async def convert(self, body: bytes, work: Callable[[], T]) -> T:
        """Returns `work()`; what works on a large body does so in a thread, one at a time: what it makes takes memory."""
        if len(body) <= SMALL_BODY_BYTES:
            return work()
        async with self._decoding:
            return await asyncio.to_thread(work)

    async def write(
        self, table: TableSchema, head: Head, body: bytes, mutations: Sequence[Mutation],
        conditions: Sequence[Condition] = (), records: list[Record] | None = None, canonical: Canonical = canonical_document,
    ) -> WriteResult:
        """Writes `mutations` (or `records`) in one request, with the idempotency key and the deadline of its head.

        `canonical`: how the body reads, so that the same request is known again.
        """
        key, digest = None, b""
        if head.idempotency_key is not None:
            key, digest = await self.convert(body, lambda: idempotency(head, body, canonical))
        trace = "" if head.span is None else context_of(head.span)
        request = WriteRequest(table, mutations, conditions, key, digest, records, trace)
        began_s = self.now_s()
        result = await self.service.rows.write(request, deadline_s(head, self.http))
        took_s = self.now_s() - began_s
        self.metrics.ack_s[result.mode](took_s)
        if head.span is not None:
            self.metrics.exemplify_ack(result.mode, took_s, head.span)
        return result

    async def repeated(
        self, head: Head, body: bytes, error: TwinlogError, canonical: Canonical = canonical_document
    ) -> WriteResult:
        """Returns the recorded answer to a write that was sent again and is no longer valid, since its table has changed.

        Raises `error`, the fault that it has now, when nothing is recorded: then nothing was applied.
        """
        key, digest = await self.convert(body, lambda: idempotency(head, body, canonical))
        found = await self.service.rows.recorded(key, digest, deadline_s(head, self.http)) if key is not None else None
        if found is None:
            raise error
        return found

    async def read(
        self, table: TableSchema, key: bytes, as_of: int | None = None, stale: bool = False, span: Span | None = None
    ) -> StoredRow | None:
        began_s = self.now_s()
        row = await self.service.rows.read(table, key, as_of, stale)
        took_s = self.now_s() - began_s
        self.metrics.read_s(took_s)
        if span is not None:
            self.metrics.exemplify_read(took_s, span)
        return row
