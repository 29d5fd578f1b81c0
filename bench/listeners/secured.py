"""`python -m bench.listeners.secured`: what TLS and a token cost a single-row write, over connections that stay open.

Two pairs, one plain and one with TLS to clients and between its sites, and a token in each request. Each is measured in turn,
and in the other order each time: writes a second, and the CPU that site a's event loop takes for one. The load generator shares
the machine, and speaks TLS itself in the second: so the figures are those of both ends.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench.cpu import spent
from bench.load_generator import LoadPlan
from bench.measure import load, spread
from bench.pair import BenchError, Pair
from bench.requests import BENCH_TABLE, Workload

KEYS = 100_000
_LOOP = ("site a", "event loop")


def rounds(pairs: dict[str, Pair], count: int, seconds: float, connections: int) -> dict[str, list[tuple[float, float]]]:
    """By name of the pair: (writes a second, microseconds of its event loop for one) of each round."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in pairs}
    for number in range(count):
        for name in list(pairs) if number % 2 == 0 else list(pairs)[::-1]:
            pair = pairs[name]
            workload = Workload("put", "single", keys=KEYS, seed=number)
            before = spent(pair)[_LOOP]
            plan = LoadPlan(
                pair.host, pair.port, connections, workload, seconds=seconds, warm_up_s=0.0, ca=pair.ca, token=pair.token,
            )
            result = load(plan)
            if result.failures or not result.count:
                raise BenchError(f"{name}: {result.count} writes succeeded, and failed: {result.failures}")
            each = result.per_second, (spent(pair)[_LOOP] - before) / result.count
            found[name].append(each)
            sys.stdout.write(f"round {number + 1}: {name:5} {each[0]:8,.0f} writes/s {each[1]:6.1f} us of the event loop\n")
            sys.stdout.flush()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="secured", description="Measure PUT with TLS and a token against plain, interleaved.")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--connections", type=int, default=64)
    chosen = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="twinlog-secured-") as folder, ExitStack() as stack:
            pairs = {
                name: stack.enter_context(Pair(Path(folder) / name, options))
                for name, options in (("plain", ()), ("tls", ("--tls", "--access")))
            }
            for pair in pairs.values():
                pair.create_table("single", BENCH_TABLE)
            rounds(pairs, 1, chosen.seconds, chosen.connections)  # what is slow once
            found = rounds(pairs, chosen.rounds, chosen.seconds, chosen.connections)
    except BenchError as error:
        sys.stderr.write(f"bench.listeners.secured: {error}\n")
        return 1
    for name, each in found.items():
        rate, cost = (spread([one[place] for one in each]) for place in (0, 1))
        assert rate is not None, "no round"
        assert cost is not None, "no round"
        sys.stdout.write(
            f"{name:5} median {rate['median']:,.0f} writes/s ({rate['low']:,.0f} to {rate['high']:,.0f}), "
            f"{cost['median']:.1f} us of the event loop ({cost['low']:.1f} to {cost['high']:.1f})\n"
        )
    shares = spread([tls[0] / plain[0] for tls, plain in zip(found["tls"], found["plain"], strict=True)])
    assert shares is not None
    sys.stdout.write(
        f"with TLS and a token {1 - shares['median']:.1%} fewer writes a second than plain (median of the rounds' ratios; "
        f"{1 - shares['high']:.1%} to {1 - shares['low']:.1%})\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
