"""`python -m chaos fuzz openapi`: requests by the OpenAPI document, to a pair on virtual time; exit code 1 for a fault."""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Sequence

from chaos.fuzz.openapi.asking import Asking, Findings


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="chaos fuzz openapi", description=__doc__)
    parser.add_argument(
        "--examples", type=int, default=200, help="requests for each operation, once by the document and once not"
    )
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--only", default="", help="operations with this in their label, such as 'GET /v1/tables'")
    chosen = parser.parse_args(given)
    started_s = time.monotonic()
    found = Asking(chosen.seed, chosen.examples).run(chosen.only, lambda label: _progress(label))
    sys.stdout.write("".join(f"{line}\n" for line in shown(found)))
    seconds = time.monotonic() - started_s
    sys.stdout.write(
        f"openapi, seed {chosen.seed}: {found.requests:,} requests in {seconds:.0f} s, {len(found.faults)} faults\n"
    )
    return 1 if found.faults else 0


def shown(found: Findings) -> list[str]:
    """Returns what each operation answered, then the faults."""
    statuses: dict[str, list[str]] = defaultdict(list)
    for (label, status), count in sorted(found.seen.items()):
        statuses[label].append(f"{status}: {count}")
    lines = [f"{label:50} {', '.join(counts)}" for label, counts in statuses.items()]
    return lines + [f"FAULT {operation}, {kind}: {what}" for (operation, kind), what in found.faults.items()]


def _progress(label: str) -> None:
    sys.stderr.write(f"{label}\n")
