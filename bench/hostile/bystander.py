"""A client that only wants to be served: a write or a read of a small row every 20 ms, timed from the moment it was due.

It runs as a process of its own: `python -m bench.hostile.bystander PORT SECONDS [CA]` writes one JSON `Seen` to standard
output.
What always holds: a request that waits for the ones before it counts from its own moment, so that a pause of a second is seen
by fifty.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
import time

import msgspec

from bench.requests import get_row, put_row

EVERY_S = 0.02
PATIENCE_S = 40.0
TABLE = "bystander"
ADDRESS = "127.0.0.2"  # another client than the hostile one: some bounds are those of an address
_CONNECTIONS = 4
_KEYS = 100


class Seen(msgspec.Struct, frozen=True):
    """`failures` counts requests without a 2xx; their latencies are among the others."""

    count: int
    failures: int
    p50_ms: float
    p99_ms: float
    max_ms: float


class _Line:
    """One connection, opened again when it is lost."""

    def __init__(self, port: int, ca: str) -> None:
        self._port, self._tls = port, ssl.create_default_context(cafile=ca) if ca else None
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: bytes) -> bool:
        """Returns True for a 2xx."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                if self._streams is None:
                    self._streams = await asyncio.open_connection(
                        "127.0.0.1", self._port, local_addr=(ADDRESS, 0), ssl=self._tls
                    )
                reader, writer = self._streams
                writer.write(request)
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0]))
                return head[9:10] == b"2"
        except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError):
            self.close()
            return False

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


async def watch(port: int, seconds: float, ca: str = "") -> Seen:
    """Asks for `seconds`, then waits for what is under way. `ca`: of a site that speaks TLS."""
    due: asyncio.Queue[tuple[float, bytes] | None] = asyncio.Queue()
    latencies_s: list[float] = []
    failures = 0

    async def serve(line: _Line) -> None:
        nonlocal failures
        while (item := await due.get()) is not None:
            failures += not await line.ask(item[1])
            latencies_s.append(time.perf_counter() - item[0])
        line.close()

    first = _Line(port, ca)
    for key in range(_KEYS):
        await first.ask(put_row(TABLE, key))
    first.close()
    serving = [asyncio.create_task(serve(_Line(port, ca))) for _ in range(_CONNECTIONS)]
    began_s = time.perf_counter()
    for number in range(int(seconds / EVERY_S)):
        at_s = began_s + number * EVERY_S
        await asyncio.sleep(max(0.0, at_s - time.perf_counter()))
        due.put_nowait((at_s, (put_row, get_row)[number % 2](TABLE, number % _KEYS)))
    for _ in serving:
        due.put_nowait(None)
    await asyncio.gather(*serving)
    ordered = sorted(latencies_s)
    p50_s, p99_s = (ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in (0.5, 0.99))
    return Seen(len(ordered), failures, 1000 * p50_s, 1000 * p99_s, 1000 * ordered[-1])


if __name__ == "__main__":
    found = asyncio.run(watch(int(sys.argv[1]), float(sys.argv[2]), *sys.argv[3:]))
    sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")
