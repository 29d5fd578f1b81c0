"""`python -m bench.ui.streams`: what open pages cost the gateway's writes.

One demo pair, single-row PUTs over `--connections` to the active, in rounds without a page, with one, and with `--pages` open
pages of *Now* at that gateway: event streams as a browser has them, whose bytes a thread here reads and forgets. Before a round
without a page, nobody has looked for so long that the gateway has stopped watching the pair. CPU is that of the active's
process by the kernel's count, for each PUT; it depends less than the rate on what else the machine does, and the reader of the
streams is not in it. The cost is compared within a round: PUTs that fit into the same CPU.

A second part has TRICKLE PUTs a second, which are enough to change every figure of the page at each look, and says which
share of one core the gateway takes. A gateway is busy on one core, so this is the share of its PUTs that open pages cost at
most; on a machine that does much else it says more than the first part.

With `--groups` it compares `--pages` streams with none instead, in groups of four short loads (none, pages, pages, none, or the
other way round) right behind one another: what the core's own speed does in minutes is in both. The gateway watches the pair
in all of them.
"""

from __future__ import annotations

import argparse
import os
import selectors
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean, stdev
from types import TracebackType
from typing import NamedTuple, Self

from bench import measure
from bench.load_generator import LoadPlan
from bench.measure import spread
from bench.pair import BenchError, Pair
from bench.requests import BENCH_TABLE, Workload
from gateway.ui.watch import NEEDED_S

TRICKLE = 50.0
_WARM_SECONDS = 5.0
_OPEN_S = 30.0
_EVENT = b"event: page"
_ASKED = (
    "GET /ui/events?view=now HTTP/1.1\r\nhost: {host}:{port}\r\naccept: text/event-stream\r\naccept-encoding: gzip\r\n\r\n"
)


class OpenPages:
    """`with OpenPages(host, port, count) as pages:` so many streams. Each has had its first event."""

    def __init__(self, host: str, port: int, count: int) -> None:
        self._host, self._port, self._count = host, port, count
        self.events = self.bytes = 0
        self._over = False
        self._sockets: list[socket.socket] = []
        self._selector = selectors.DefaultSelector()
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> Self:
        for _ in range(self._count):
            opened = socket.create_connection((self._host, self._port), timeout=_OPEN_S)
            opened.sendall(_ASKED.format(host=self._host, port=self._port).encode())
            self._sockets.append(opened)
            self._selector.register(opened, selectors.EVENT_READ)
        self._thread.start()
        until_s = time.monotonic() + _OPEN_S
        while self.events < self._count and time.monotonic() < until_s:
            time.sleep(0.05)
        if self.events < self._count:
            self.__exit__(None, None, None)
            raise BenchError(f"{self._count} pages were opened, and {self.events} events came within {_OPEN_S:.0f} s")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over = True
        self._thread.join()
        self._selector.close()
        for opened in self._sockets:
            opened.close()

    def _read(self) -> None:
        while not self._over:
            for key, _ in self._selector.select(timeout=0.2):
                opened = key.fileobj
                assert isinstance(opened, socket.socket)
                data = opened.recv(1 << 18)
                if not data:
                    self._selector.unregister(opened)
                self.bytes += len(data)
                self.events += data.count(_EVENT)


class Round(NamedTuple):
    """`cpu_us`: of the gateway, for each PUT; `core`: its share of one core; `events`, `kib`: of the streams, a second."""

    cpu_us: float
    core: float
    per_second: float
    p99_ms: float
    events: float
    kib: float


def rounds_with(pair: Pair, pages: int, connections: int, seconds: float) -> tuple[Round, Round]:
    """A round of as many PUTs as may be, and one of a trickle. Without pages the gateway has forgotten those before."""
    with ExitStack() as stack:
        opened = stack.enter_context(OpenPages(pair.host, pair.port, pages)) if pages else None
        if opened is None:
            time.sleep(NEEDED_S + 2.0)
        return _one_round(pair, opened, connections, seconds, None), _one_round(pair, opened, connections, seconds, TRICKLE)


def _one_round(pair: Pair, opened: OpenPages | None, connections: int, seconds: float, rate: float | None) -> Round:
    before = (opened.events, opened.bytes) if opened is not None else (0, 0)
    taken, begun_s = _taken_us(pair.pids["a"]), time.monotonic()
    result = measure.load(LoadPlan(
        pair.host, pair.port, connections, Workload("put", "single", keys=measure.KEYS), seconds=seconds, warm_up_s=0.0,
        arrivals_per_second=rate, token=pair.token,
    ))
    taken, over_s = _taken_us(pair.pids["a"]) - taken, time.monotonic() - begun_s
    events, read = (opened.events - before[0], opened.bytes - before[1]) if opened is not None else (0, 0)
    if not result.count or result.failures:
        raise BenchError(f"{result.count} PUTs were good, and {result.failures} were not")
    return Round(
        taken / result.count, taken / 1e6 / over_s, result.per_second, result.p99_ms or 0.0, events / over_s,
        read / 1024 / over_s,
    )


def alternated(pair: Pair, pages: int, connections: int, seconds: float, groups: int) -> str:
    """Returns the PUTs that the streams cost, in percent: mean, its standard error and the range of the groups."""
    lost: dict[str, list[float]] = {"by CPU": [], "by rate": []}
    for number in range(groups):
        found: dict[int, list[Round]] = {0: [], pages: []}
        for now in (0, pages, pages, 0) if number % 2 else (pages, 0, 0, pages):
            with ExitStack() as stack:
                opened = stack.enter_context(OpenPages(pair.host, pair.port, now)) if now else None
                found[now].append(_one_round(pair, opened, connections, seconds, None))
        none, some = ([fmean(values) for values in zip(*found[now], strict=True)] for now in (0, pages))
        lost["by CPU"].append(100 * (1 - none[0] / some[0]))
        lost["by rate"].append(100 * (1 - some[2] / none[2]))
    return "\n".join(
        f"PUTs lost to {pages} streams {how}: {fmean(of):.2f} % (standard error {stdev(of) / len(of) ** 0.5:.2f}, "
        f"{min(of):.1f} to {max(of):.1f} in {len(of)} groups)" for how, of in lost.items()
    )


def _taken_us(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1e6 / os.sysconf("SC_CLK_TCK")


def table(taken: Mapping[int, list[Round]]) -> str:
    lines = [
        "| open pages | us of CPU a PUT | PUTs a second | p99, ms | events, KiB a second | PUTs lost, by CPU | by rate |",
        "|---|---|---|---|---|---|---|",
    ]
    for pages, rounds in taken.items():
        cpu, rate = _words([one.cpu_us for one in rounds], 1), _words([one.per_second for one in rounds], 0)
        p99 = _words([one.p99_ms for one in rounds], 1)
        stream = f"{_median([one.events for one in rounds]):.0f}, {_median([one.kib for one in rounds]):.0f}"
        pairs = list(zip(taken[0], rounds, strict=True))
        by_cpu = _words([100 * (1 - none.cpu_us / one.cpu_us) for none, one in pairs], 1) if pages else ""
        by_rate = _words([100 * (1 - one.per_second / none.per_second) for none, one in pairs], 1) if pages else ""
        lost = [text and f"{text} %" for text in (by_cpu, by_rate)]
        lines.append(f"| {pages} | {cpu} | {rate} | {p99} | {stream} | {' | '.join(lost)} |")
    return "\n".join(lines)


def trickle_table(taken: Mapping[int, list[Round]]) -> str:
    lines = ["| open pages | of one core | more than without a page | events, KiB a second |", "|---|---|---|---|"]
    for pages, rounds in taken.items():
        pairs = zip(taken[0], rounds, strict=True)
        more = _words([100 * (one.core - none.core) for none, one in pairs], 2) + " %" if pages else ""
        stream = f"{_median([one.events for one in rounds]):.0f}, {_median([one.kib for one in rounds]):.0f}"
        lines.append(f"| {pages} | {_words([100 * one.core for one in rounds], 2)} % | {more} | {stream} |")
    return "\n".join(lines)


def _median(values: list[float]) -> float:
    found = spread(values)
    assert found is not None, "no round"
    return found["median"]


def _words(values: list[float], places: int) -> str:
    found = spread(values)
    assert found is not None, "no round"
    return f"{found['median']:,.{places}f} ({found['low']:,.{places}f} to {found['high']:,.{places}f})"


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.ui.streams", description=__doc__)
    parser.add_argument("--pages", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--groups", type=int, default=0, help="of short loads in turn, instead of the rounds; 2 or more")
    chosen = parser.parse_args()
    ways = (0, 1, chosen.pages)
    try:
        with tempfile.TemporaryDirectory(prefix="twinlog-streams-") as folder, Pair(Path(folder) / "demo") as pair:
            pair.create_table("single", BENCH_TABLE)
            rounds_with(pair, 1, chosen.connections, _WARM_SECONDS)
            if chosen.groups:
                print(alternated(pair, chosen.pages, chosen.connections, chosen.seconds, chosen.groups))
                return 0
            taken: dict[int, list[Round]] = {pages: [] for pages in ways}
            trickled: dict[int, list[Round]] = {pages: [] for pages in ways}
            for number in range(chosen.rounds):
                for pages in ways if number % 2 else reversed(ways):
                    full, trickle = rounds_with(pair, pages, chosen.connections, chosen.seconds)
                    taken[pages].append(full)
                    trickled[pages].append(trickle)
                    print(f"round {number + 1}, {pages} pages: {full}, {trickle}", file=sys.stderr, flush=True)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(table(taken))
    print(f"\nwith {TRICKLE:.0f} PUTs a second:\n{trickle_table(trickled)}")
    print(f"load average of the machine at the end: {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
