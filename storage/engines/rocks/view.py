"""One consistent view of the database: point reads, walks over ranges, and rows as they were at a version.

What always holds: everything read through one view is of one moment, that of its making. It is one RocksDB iterator,
re-seeked, because rocksdict 0.3.29 loses the snapshot when it makes an iterator from one (its `Snapshot.items` reads
the live database), drops a lower bound, and ends its own item iterators silently at a read error: a walk here asks for
the status at its end. An open view pins the memtables and files of its moment, and keeps the database's folder locked.
Blocking, one thread at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from rocksdict import DbClosedError, Rdict, RdictIter, ReadOptions

from storage.engine import RequestOutcome, StoredRow
from storage.engines.entries.write import VERSION_BYTES, version_of
from storage.engines.meaning import snapshot_ended
from storage.engines.rocks.layout import (
    APPLIED_KEY,
    PREFIX_BYTES,
    REQUESTS,
    Range,
    decode_outcome,
    history_key,
    history_parts,
    history_range,
    key_history_range,
    request_key,
    request_of,
    row_prefix,
    row_range,
    unpack_applied,
)
from twinlog.errors import EngineFailed, words


def stored_row(key: bytes, stored: bytes) -> StoredRow:
    """The row of `key` whose stored bytes are `stored`."""
    return StoredRow(key, stored[VERSION_BYTES:], int.from_bytes(stored[:VERSION_BYTES], "big"))


class RocksView:
    """Not for two threads at once. Its methods raise rocksdict's errors as they are."""

    def __init__(self, database: Rdict, options: ReadOptions | None = None) -> None:
        self._open: RdictIter | None = database.iter(options)

    @property
    def _cursor(self) -> RdictIter:
        if self._open is None:
            raise snapshot_ended()
        return self._open

    def close(self) -> None:
        """Lets the iterator go, and with it what it pins. A walk that is under way keeps it to its end."""
        self._open = None

    def get(self, key: bytes) -> bytes | None:
        """The bytes stored under `key`."""
        cursor = self._cursor
        cursor.seek(key)
        if cursor.valid():
            return bytes(cursor.value()) if cursor.key() == key else None
        cursor.status()
        return None

    def first_from(self, key: bytes) -> bytes | None:
        """The lowest key at `key` or above it."""
        cursor = self._cursor
        cursor.seek(key)
        return self._key()

    def last_below(self, key: bytes) -> bytes | None:
        """The highest key below `key`."""
        cursor = self._cursor
        cursor.seek_for_prev(key)
        if cursor.valid() and cursor.key() == key:
            cursor.prev()
        return self._key()

    def _key(self) -> bytes | None:
        cursor = self._cursor
        if cursor.valid():
            return bytes(cursor.key())
        cursor.status()
        return None

    def walk(self, where: Range, reverse: bool = False) -> Iterator[tuple[bytes, bytes]]:
        """Key and value of all that lies in `where`, in key order or reversed. Only one walk of a view at a time."""
        begin, end = where
        cursor = self._cursor
        if reverse:
            cursor.seek_for_prev(end)
            if cursor.valid() and cursor.key() == end:
                cursor.prev()
        else:
            cursor.seek(begin)
        step = cursor.prev if reverse else cursor.next
        while cursor.valid():
            key = cursor.key()
            if key < begin or key >= end:
                return
            yield key, cursor.value()
            step()
        cursor.status()

    @property
    def applied_seq(self) -> int:
        stored = self.get(APPLIED_KEY)
        return 0 if stored is None else unpack_applied(stored)[0]

    def rows(self, table: int, start: bytes | None, end: bytes | None, reverse: bool, limit: int) -> list[StoredRow]:
        """At most `limit` rows of `[start, end)`."""
        walk = self.walk(row_range(table, start, end), reverse)
        return [stored_row(key[PREFIX_BYTES:], stored) for key, stored in islice(walk, limit)]

    def rows_of_bytes(
        self, table: int, start: bytes | None, end: bytes | None, reverse: bool, limit: int, bytes_max: int
    ) -> list[StoredRow]:
        """The same, up to the row whose key and value bring the sum to `bytes_max`."""
        rows: list[StoredRow] = []
        size = 0
        for key, stored in islice(self.walk(row_range(table, start, end), reverse), limit):
            row = stored_row(key[PREFIX_BYTES:], stored)
            rows.append(row)
            size += len(row.key) + len(row.value)
            if size >= bytes_max:
                break
        return rows

    def outcomes(self, after: str | None, limit: int) -> list[tuple[str, RequestOutcome]]:
        """At most `limit` idempotency keys above `after`, with what they answered."""
        begin = REQUESTS[0] if after is None else request_key(after) + b"\0"
        return [(request_of(key), decode_outcome(stored)) for key, stored in islice(self.walk((begin, REQUESTS[1])), limit)]

    def row_as_of(self, table: int, key: bytes, as_of: int) -> StoredRow | None:
        """The row as it was at version `as_of`."""
        stored = self.get(row_prefix(table) + key)
        if stored is not None and version_of(stored) <= as_of:
            return stored_row(key, stored)
        replaced_later = history_key(table, key, as_of + 1), key_history_range(table, key)[1]
        for _, old in islice(self.walk(replaced_later), 1):
            if version_of(old) <= as_of:
                return stored_row(key, old)
        return None

    def rows_as_of(
        self, table: int, start: bytes | None, end: bytes | None, reverse: bool, limit: int, as_of: int
    ) -> list[StoredRow]:
        """At most `limit` rows of `[start, end)` as they were at version `as_of`.

        A key's row at `as_of` is either its row of today or one entry of its history, never both, so the first
        `limit` of each, put together, hold the first `limit` of all.
        """
        now = (
            stored_row(key[PREFIX_BYTES:], stored)
            for key, stored in self.walk(row_range(table, start, end), reverse) if version_of(stored) <= as_of
        )
        rows = list(islice(now, limit))
        rows.extend(islice(self._replaced(table, start, end, reverse, as_of), limit))
        return sorted(rows, key=lambda row: row.key, reverse=reverse)[:limit]

    def _replaced(
        self, table: int, start: bytes | None, end: bytes | None, reverse: bool, as_of: int
    ) -> Iterator[StoredRow]:
        """Yields the version of each key that stood at `as_of`, of those that were replaced later. It passes over the others of
        a key and does not read them: a row that changes all the time has very many."""
        begin, beyond = history_range(table, start, end)
        where = self.last_below(beyond) if reverse else self.first_from(begin)
        while where is not None and begin <= where < beyond:
            _, key, until = history_parts(where)
            of_key, behind_key = key_history_range(table, key)
            if until > as_of:
                if reverse:
                    self.first_from(history_key(table, key, as_of + 1))  # it is there: at the latest this one
                old = self._cursor.value()
                if version_of(old) <= as_of:
                    yield stored_row(key, old)
                where = self.last_below(of_key) if reverse else self._next_from(behind_key)
            else:
                where = self.last_below(of_key) if reverse else self._next_from(history_key(table, key, as_of + 1))

    def _next_from(self, key: bytes) -> bytes | None:
        """The lowest key at `key` or above it; quick where it is the next one."""
        self._cursor.next()
        where = self._key()
        return where if where is None or where >= key else self.first_from(key)


class _RocksErrors:
    """rocksdict raises bare Exceptions: from this block they come as EngineFailed, all others as they are."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        del _  # with the frames of the read: whoever keeps the error would keep the iterator that is in them
        if error is not None and type(error) in (Exception, DbClosedError):
            raise EngineFailed(
                f"the RocksDB database failed: {words(error)}; look at its disk; the log has everything"
            ) from error.with_traceback(None)


ROCKS_ERRORS = _RocksErrors()
