"""`python -m bench.encryption.run`: what encrypted logs cost a write, and the time until its append is durable.

Three pairs, each measured in turn and in the other order each time: plain, with an encrypted remote log, with both logs
encrypted. The load generator shares the machine.
"""

from __future__ import annotations

import argparse
import base64
import secrets
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from bench.load_generator import LoadPlan
from bench.measure import load, spread
from bench.pair import BenchError, Pair
from bench.requests import BENCH_TABLE, Workload

KEYS = 100_000
REMOTE, WAL = "TWINLOG_REMOTE_LOG__ENCRYPTION_KEYS", "TWINLOG_WAL__ENCRYPTION_KEYS"
SETTINGS: dict[str, tuple[str, ...]] = {"plain": (), "remote log": (REMOTE,), "both logs": (REMOTE, WAL)}


class Round(NamedTuple):
    per_second: float
    p50_ms: float
    p99_ms: float
    append_ms: float  # the mean of the remote appends


def one(pair: Pair, name: str, number: int, seconds: float, connections: int) -> Round:
    before = pair.sums("remote_append")
    plan = LoadPlan(pair.host, pair.port, connections, Workload("put", "single", keys=KEYS, seed=number), seconds=seconds,
                    warm_up_s=0.0)
    result = load(plan)
    if result.failures or not result.count:
        raise BenchError(f"{name}: {result.count} writes succeeded, and failed: {result.failures}")
    spent_s, appends = (after - at for after, at in zip(pair.sums("remote_append"), before, strict=True))
    return Round(result.per_second, result.quantile_ms(0.5), result.quantile_ms(0.99), 1000 * spent_s / appends)


def rounds(pairs: dict[str, Pair], count: int, seconds: float, connections: int) -> dict[str, list[Round]]:
    found: dict[str, list[Round]] = {name: [] for name in pairs}
    for number in range(count):
        for name in list(pairs) if number % 2 == 0 else list(pairs)[::-1]:
            each = one(pairs[name], name, number, seconds, connections)
            found[name].append(each)
            sys.stdout.write(f"round {number + 1}: {name:10} {_figures(each)}\n")
            sys.stdout.flush()
    return found


def _figures(each: Round) -> str:
    return (
        f"{each.per_second:8,.0f} writes/s, p50 {each.p50_ms:5.1f} ms, p99 {each.p99_ms:6.1f} ms, "
        f"remote append {each.append_ms:5.2f} ms"
    )


def _median(values: list[float]) -> float:
    found = spread(values)
    assert found is not None, "no round"
    return found["median"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="encryption", description="Measure PUT with encrypted logs against plain, interleaved.")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--connections", type=int, default=64)
    chosen = parser.parse_args()
    secret = {"TWINLOG_BENCH_KEY": base64.b64encode(secrets.token_bytes(32)).decode()}
    try:
        with tempfile.TemporaryDirectory(prefix="twinlog-encryption-") as folder, ExitStack() as stack:
            pairs = {
                name: stack.enter_context(Pair(
                    Path(folder) / name.replace(" ", "-"),
                    environment={**secret, **dict.fromkeys(settings, "bench=env:TWINLOG_BENCH_KEY")},
                ))
                for name, settings in SETTINGS.items()
            }
            for pair in pairs.values():
                pair.create_table("single", BENCH_TABLE)
            rounds(pairs, 1, chosen.seconds, chosen.connections)  # what is slow once
            found = rounds(pairs, chosen.rounds, chosen.seconds, chosen.connections)
    except BenchError as error:
        sys.stderr.write(f"bench.encryption.run: {error}\n")
        return 1
    for name, each in found.items():
        medians = Round(*(_median([one[place] for one in each]) for place in range(len(Round._fields))))
        ratio = _median([one[0] / plain[0] for one, plain in zip(each, found["plain"], strict=True)])
        sys.stdout.write(f"medians: {name:10} {_figures(medians)}, {ratio:.1%} of plain (median of the rounds' ratios)\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
