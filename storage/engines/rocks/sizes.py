"""The size of a table in RocksDB, which keeps no count: its rows are counted up to a bound, then sampled.

What always holds: the time is bounded: a walk goes over a bounded number of entries, deleted ones included, and a sample
stops when its time is over; an estimate lies between what was counted and what files and memtables can hold at all.
Blocking, on the reading thread. What the table takes on the disk is not known: files hold rows of several tables.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from random import Random

from rocksdict import Rdict, ReadOptions

from storage.engine import TableSize
from storage.engines.entries.write import VERSION_BYTES
from storage.engines.rocks.layout import PREFIX_BYTES, Range, row_range
from storage.engines.rocks.view import RocksView
from storage.engines.sizes import sampling
from twinlog.errors import words

SKIPPED_MAX = 200_000  # deleted entries in a row, which RocksDB walks over before it gives up
SAMPLE_S = 0.1
SEED = 20_261_128  # one for all, so that an idle table has one estimate
_GAVE_UP = "Result incomplete"
_IN_MEMORY = ("rocksdb.num-entries-active-mem-table", "rocksdb.num-entries-imm-mem-tables")
_UNKNOWN = TableSize(None, False, None)


def table_size(database: Rdict, table: int, now_s: Callable[[], float]) -> TableSize:
    """`now_s`: a monotonic clock. Raises rocksdict's errors as they are."""
    options = ReadOptions()
    options.set_max_skippable_internal_keys(SKIPPED_MAX)
    view = RocksView(database, options)
    try:
        return _table_size(view, database, row_range(table), now_s)
    except Exception as error:  # rocksdict raises nothing narrower
        if _GAVE_UP in words(error):
            return _UNKNOWN
        raise
    finally:
        view.close()


def _table_size(view: RocksView, database: Rdict, where: Range, now_s: Callable[[], float]) -> TableSize:
    begin, end = where
    rows = size = 0
    for key, stored in islice(view.walk(where), sampling.COUNTED_ROWS + 1):
        rows += 1
        size += len(key) - PREFIX_BYTES + len(stored) - VERSION_BYTES
    if rows <= sampling.COUNTED_ROWS:
        return TableSize(rows, True, size)
    first, last = view.first_from(begin), view.last_below(end)
    if first is None or last is None:
        return _UNKNOWN
    until_s = now_s() + SAMPLE_S
    flip = partial(Random(SEED).getrandbits, 1)
    sample = sampling.sampled(view, first, last, flip, lambda: now_s() >= until_s)
    inside, at_most = _held(database, where)
    estimate = sampling.between(sample, max(rows, inside // 2), at_most)
    return TableSize(estimate, False, sampling.about(estimate * size / rows))


def _held(database: Rdict, where: Range) -> tuple[int, int]:
    """Entries of the files that hold nothing but this range, and of all that may hold some of it. Those of rows that were
    written again, or deleted, count more than once until their files are merged."""
    begin, end = where
    inside, at_most = 0, sum(database.property_int_value(name) or 0 for name in _IN_MEMORY)
    for file in database.live_files():
        first, last, entries = file["start_key"], file["end_key"], file["num_entries"]
        if first < end and last >= begin:
            at_most += entries
            if first >= begin and last < end:
                inside += max(0, entries - 2 * file["num_deletions"])
    return inside, at_most
