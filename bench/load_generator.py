"""An HTTP/1.1 load generator over N connections, as a closed loop or an open one.

In the closed loop each connection sends its next request when the last one is answered; a latency runs from the write of a
request. In the open loop requests arrive at a given rate, whatever the server does (bench/arrivals.py); a latency runs from the
moment at which the request was meant to leave.

It runs as a process of its own: `python -m bench.load_generator` reads one JSON `LoadPlan` from standard input and writes one
JSON `Result` to standard output. What always holds: requests are prepared bytes; only answers that arrive within the
measured time count; a failed request, a lost connection and an answer that is no 2xx are counted by what they were, never
as successes. It parses as little as it may (status and Content-Length), since on a small machine it shares the cores
with what it measures.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from array import array
from collections import Counter
from collections.abc import Iterator
from typing import cast

import msgspec
import uvloop

from bench.arrivals import Arrivals
from bench.requests import Workload
from twinlog.wire.tls import Tls, client_context
from twinlog.wire.token import Token

_HEAD_BYTES_MAX = 64 << 10
_LAST_ANSWERS_S = 10.0  # after an open loop: without the slowest answers its p99 would be too good


class LoadPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Measure for `seconds` after `warm_up_s`, or send exactly `requests_max` without warm-up when that is given.

    With `arrivals_per_second` it is an open loop, which has no `requests_max`. `token`: where the token of its requests is.
    """

    host: str
    port: int
    connections: int
    workload: Workload
    seconds: float = 3.0
    warm_up_s: float = 0.5
    requests_max: int | None = None
    arrivals_per_second: float | None = None
    ca: str = ""  # speaks TLS, and trusts this file
    token: str = ""

    def requests(self) -> Iterator[bytes]:
        """Yields the requests, with the token in the head of each."""
        requests = self.workload.requests()
        if not self.token:
            return requests
        url = f"{'https' if self.ca else 'http'}://{self.host}:{self.port}"
        lines = [f"{name}: {value}\r\n\r\n" for name, value in Token(self.token, (url,)).headers(url).items()]
        shown = "".join(lines).encode()
        return (request.replace(b"\r\n\r\n", b"\r\n" + shown, 1) for request in requests)


class Result(msgspec.Struct, frozen=True):
    """`count` good answers in `seconds`; latencies in milliseconds; `failures` by status, `connection lost`, or, of an open
    loop, `never answered`. `late_p50_ms`, `late_p99_ms`: the lateness of the
    generator itself at the arrivals of an open loop; None of a closed one."""

    count: int
    rows: int
    seconds: float
    per_second: float
    rows_per_second: float
    p50_ms: float | None
    p99_ms: float | None
    max_ms: float | None
    failures: dict[str, int]
    late_p50_ms: float | None = None
    late_p99_ms: float | None = None


class _Run:
    """The connections of a run share this: their requests, their latencies, and the end of the run."""

    def __init__(self, requests: Iterator[bytes], requests_max: int | None) -> None:
        self._requests = requests
        self._left = requests_max
        self.latencies_s = array("d")
        self.failures: Counter[str] = Counter()
        self.measuring = requests_max is not None
        self.arrivals: Arrivals[_Connection] | None = None  # of an open loop
        self.open = 0
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def next_request(self) -> bytes | None:
        """None when there is nothing more to send."""
        if self.over.done() or self._left == 0:
            return None
        if self._left is not None:
            self._left -= 1
        return next(self._requests)

    def answered(self, status: bytes, since_s: float) -> None:
        """The request that was sent, or meant to be sent, at `since_s` has its answer."""
        if not (self.measuring if self.arrivals is None else self.arrivals.answered(since_s)):
            return
        if status[:1] == b"2":
            self.latencies_s.append(time.perf_counter() - since_s)
        else:
            self.failures[status.decode("latin-1")] += 1

    def failed(self, what: str) -> None:
        if not self.over.done():
            self.failures[what] += 1

    def closed(self) -> None:
        self.open -= 1
        if self.open == 0 and not self.over.done():
            self.over.set_result(None)


class _Connection(asyncio.Protocol):
    def __init__(self, run: _Run) -> None:
        self._run = run
        self._buffer = b""
        self._missing = -1  # bytes of the body still to come; -1: the head is not complete
        self._status = b""
        self._since_s = 0.0
        self._waiting = False
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but its class

    def send_next(self) -> None:
        """Sends the next request, or waits for the next arrival."""
        if self._run.arrivals is not None:
            self._waiting = False
            self._run.arrivals.idle(self)
        else:
            self.send(time.perf_counter())

    def send(self, since_s: float) -> None:
        """Sends a request whose latency runs from `since_s`."""
        request = self._run.next_request()
        self._waiting, self._since_s = request is not None, since_s
        if request is None:
            self._transport.close()
        else:
            self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        if self._missing < 0:
            data = self._buffer + data if self._buffer else data
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._buffer = data
                if len(data) > _HEAD_BYTES_MAX:
                    self._give_up("an answer with an endless head")
                return
            self._buffer = b""
            length = _content_length(data[:end])
            if length is None:
                self._give_up("an answer without Content-Length")
                return
            self._status = data[9:12]
            self._missing = length - (len(data) - end - 4)
        else:
            self._missing -= len(data)
        if self._missing <= 0:
            self._missing = -1
            self._run.answered(self._status, self._since_s)
            self.send_next()

    def stop(self) -> None:
        self._transport.abort()

    def _give_up(self, why: str) -> None:
        self._waiting = False
        self._run.failed(why)
        self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        arrivals = self._run.arrivals
        if self._waiting:
            self._run.failed("connection lost")
            if arrivals is not None:
                arrivals.answered(self._since_s)
        elif arrivals is not None:
            arrivals.lost(self)
        self._run.closed()


def _content_length(head: bytes) -> int | None:
    lower = head.lower()
    start = lower.find(b"\r\ncontent-length:")
    if start < 0:
        return 0 if lower[9:12] == b"204" else None
    end = lower.find(b"\r\n", start + 2)
    return int(lower[start + 17 : end if end >= 0 else len(lower)])


async def generate(plan: LoadPlan) -> Result:
    """Run `plan`. Raises OSError when the server cannot be reached, ValueError for an open loop with `requests_max`."""
    if plan.arrivals_per_second is not None and plan.requests_max is not None:
        raise ValueError("requests_max is for a closed loop: an open one runs for `seconds`")
    loop = asyncio.get_running_loop()
    run = _Run(plan.requests(), plan.requests_max)
    connections = []
    context = client_context(Tls(plan.ca)) if plan.ca else None
    for _ in range(plan.connections):
        _, connection = await loop.create_connection(lambda: _Connection(run), plan.host, plan.port, ssl=context)
        run.open += 1
        connections.append(connection)
    started_s = time.perf_counter()
    if plan.arrivals_per_second is not None:
        run.arrivals = Arrivals(plan.arrivals_per_second, plan.workload.seed, _Connection.send)
    for connection in connections:
        connection.send_next()
    if run.arrivals is not None:
        await _all_arrived(run, run.arrivals, plan)
    elif plan.requests_max is None:
        await asyncio.wait((run.over,), timeout=plan.warm_up_s)
        run.measuring, started_s = True, time.perf_counter()
        await asyncio.wait((run.over,), timeout=plan.seconds)
    else:
        await run.over
    seconds = time.perf_counter() - started_s if run.arrivals is None else plan.seconds
    run.measuring = False
    if not run.over.done():
        run.over.set_result(None)
    for connection in connections:
        connection.stop()
    return _result(run, seconds, plan.workload.rows_per_request)


async def _all_arrived(run: _Run, arrivals: Arrivals[_Connection], plan: LoadPlan) -> None:
    """The open loop, until what arrived in the measured time is answered."""
    arrivals.start(plan.warm_up_s, plan.seconds)
    await asyncio.wait((run.over,), timeout=plan.warm_up_s + plan.seconds)
    arrivals.end()
    if not run.over.done():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(arrivals.all_answered.wait(), _LAST_ANSWERS_S)
    if arrivals.unanswered:
        run.failures["never answered"] += arrivals.unanswered


def _result(run: _Run, seconds: float, rows_per_request: int) -> Result:
    ordered = sorted(run.latencies_s)
    late = sorted(run.arrivals.late_s) if run.arrivals is not None else []
    count = len(ordered)
    return Result(
        count=count, rows=count * rows_per_request, seconds=seconds,
        per_second=count / seconds, rows_per_second=count * rows_per_request / seconds,
        p50_ms=_percentile_ms(ordered, 0.50), p99_ms=_percentile_ms(ordered, 0.99), max_ms=_percentile_ms(ordered, 1.0),
        failures=dict(run.failures), late_p50_ms=_percentile_ms(late, 0.50), late_p99_ms=_percentile_ms(late, 0.99),
    )


def _percentile_ms(ordered_s: list[float], share: float) -> float | None:
    """The smallest latency that `share` of all do not exceed. None of nothing."""
    if not ordered_s:
        return None
    rank = max(1, -int(-share * len(ordered_s) // 1))
    return ordered_s[rank - 1] * 1000


def main() -> None:
    plan = msgspec.json.decode(sys.stdin.buffer.read(), type=LoadPlan)
    result = uvloop.run(generate(plan))
    sys.stdout.buffer.write(msgspec.json.encode(result) + b"\n")


if __name__ == "__main__":
    main()
