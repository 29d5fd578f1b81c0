"""Finds the entries of a RocksDB engine that may go: versions and outcomes that are too old to be asked for, and at a rejoin
the outcomes of what was cut. Each call looks at a bounded part, so that scans get their turn in between.

What always holds: the entry that an as-of read at or after the horizon needs stays; an outcome goes only together with
its place in the order of age, and never when the same key was used again since.
Source: product.md 3 (history_s), protocol.md 4 (idempotency keys), 8 (rejoin).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice, takewhile

from storage.engine import RequestOutcome, TableSet, horizon
from storage.engines.rocks.layout import (
    HISTORY,
    REQUESTS_BY_AGE,
    age_parts,
    decode_outcome,
    history_parts,
)
from storage.engines.rocks.view import RocksView

CHUNK = 4096
Get = Callable[[bytes], bytes | None]


def old_history(view: RocksView, tables: TableSet, now_ms: int, begin: bytes) -> tuple[list[bytes], bytes | None]:
    """Entries that may go among the next CHUNK from `begin` on, and where to continue (None: all were seen)."""
    horizons = {number: horizon(now_ms, table.history_s) for number, table in tables.by_id.items()}
    gone: list[bytes] = []
    for seen, (key, _) in enumerate(view.walk((begin, HISTORY[1]))):
        if seen == CHUNK:
            return gone, key
        table, _, until = history_parts(key)
        if until <= horizons.get(table, until):
            gone.append(key)
    return gone, None


def old_requests(view: RocksView, get: Get, oldest_kept: int) -> tuple[list[bytes], bool]:
    """Entries of at most CHUNK requests at or below the version `oldest_kept`, oldest first; True: there may be more."""
    ages = list(islice(takewhile(lambda age: age_parts(age)[0] <= oldest_kept, _ages(view)), CHUNK))
    return _with_outcomes(get, ages), len(ages) == CHUNK


def requests_after(view: RocksView, get: Get, seq: int) -> list[bytes]:
    """Entries of every request whose last record is above `seq`: versions grow with sequences, so these are the newest."""
    ages: list[bytes] = []
    for age in _ages(view, reverse=True):
        outcome = _outcome(get, age)
        if outcome is not None and outcome.seq <= seq:
            break
        ages.append(age)
    return _with_outcomes(get, ages)


def _ages(view: RocksView, reverse: bool = False) -> Iterator[bytes]:
    return (key for key, _ in view.walk(REQUESTS_BY_AGE, reverse))


def _outcome(get: Get, age: bytes) -> RequestOutcome | None:
    """The outcome that `age` stands for; None when its key was used again since."""
    version, where = age_parts(age)
    stored = get(where)
    outcome = None if stored is None else decode_outcome(stored)
    return outcome if outcome is not None and outcome.version == version else None


def _with_outcomes(get: Get, ages: list[bytes]) -> list[bytes]:
    return ages + [age_parts(age)[1] for age in ages if _outcome(get, age) is not None]
