"""A RocksDB checkpoint as a Snapshot: opened read-only, by as many processes at once as there are.

What always holds: nothing is written into the checkpoint's folder. rocksdict writes a small file of its own into whatever it
opens, so what it opens is a folder of links, made for the occasion. What cannot be read is an EngineFailed, never an end.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from rocksdict import AccessType, BlockBasedOptions, Cache, Options, Rdict

from spark_jobs.snapshots.snapshot import SnapshotCatalog, catalog_of
from storage.engines.rocks import layout
from storage.engines.rocks.state import load_state
from storage.engines.rocks.view import ROCKS_ERRORS, RocksView
from twinlog.errors import EngineFailed, NotFound, Refused, words

GLANCE_ROWS = 1000
_CONFIG = "rocksdict-config.json"
_CACHE_BYTES = 16 << 20
_DIGITS = 8  # bytes of a key, behind what two keys share, that a cut between them is reckoned with


class RocksReader:
    """Make it with `open_rocks`."""

    def __init__(self, database: Rdict) -> None:
        self._database = database
        self._view = RocksView(database)

    def catalog(self) -> SnapshotCatalog:
        with ROCKS_ERRORS:
            found = self._view.get(layout.FORMAT_KEY)
            if found != layout.FORMAT:
                raise Refused(f"the checkpoint is of format {found!r}, this release reads {layout.FORMAT!r}")
            state = load_state(self._view)
        return catalog_of(state.seq, state.epoch, state.base, state.tables)

    def walk(self, table: int, start: bytes, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """HOT."""
        prefix = layout.PREFIX_BYTES
        with ROCKS_ERRORS:
            for key, packed in self._view.walk(layout.row_range(table, start, end)):
                yield key[prefix:], packed

    def cuts(self, table: int, start: bytes, end: bytes | None, rows: int) -> list[bytes]:
        """From the files: each is cut evenly between its first and its last key of the table, by as many pieces as it holds
        `rows`. Where keys lie unevenly, or other tables share the file, pieces are smaller or larger, but none is larger than a
        file. A range that a glance sees the end of is not cut."""
        whole, (low, high) = layout.row_range(table), layout.row_range(table, start, end)
        with ROCKS_ERRORS:
            if sum(1 for _ in islice(self._view.walk((low, high)), GLANCE_ROWS)) < GLANCE_ROWS:
                return []
            first = next(key for key, _ in self._view.walk(whole))
            last = next(key for key, _ in self._view.walk(whole, reverse=True))
            files = self._database.live_files()
        found: set[bytes] = set()
        for file in files:
            begin, until = max(file["start_key"], first), min(file["end_key"], last)
            if begin < until:
                found.update(between(begin, until, file["num_entries"] // rows))
        return sorted(key[layout.PREFIX_BYTES :] for key in found if first < key <= last and low < key < high)


def between(begin: bytes, end: bytes, pieces: int) -> list[bytes]:
    """Keys at about equal distances that cut `[begin, end]` into `pieces`, fewer when it is too narrow."""
    shared = next((at for at, (one, other) in enumerate(zip(begin, end, strict=False)) if one != other), len(begin))
    low, high = (int.from_bytes(key[shared : shared + _DIGITS].ljust(_DIGITS, b"\0"), "big") for key in (begin, end))
    cuts = {low + (high - low) * step // pieces for step in range(1, pieces)}
    return [begin[:shared] + cut.to_bytes(_DIGITS, "big").rstrip(b"\0") for cut in sorted(cuts)]


@contextmanager
def open_rocks(folder: str) -> Iterator[RocksReader]:
    """The checkpoint in `folder`. Raises NotFound, EngineFailed."""
    path = Path(folder)
    if not (path / "CURRENT").is_file():
        raise NotFound(f"there is no checkpoint in {path}: it was released, or is on another machine; take a new barrier")
    with tempfile.TemporaryDirectory(prefix="twinlog-") as links:
        try:
            for file in path.iterdir():
                if file.name != _CONFIG:
                    (Path(links) / file.name).symlink_to(file.absolute())
            database = Rdict(links, _options(), access_type=AccessType.read_only(error_if_log_file_exist=False))
        except Exception as error:  # rocksdict raises nothing narrower
            raise EngineFailed(f"the checkpoint in {path} cannot be opened: {words(error)}; take a new barrier") from error
        try:
            yield RocksReader(database)
        finally:
            database.close()


def _options() -> Options:
    table = BlockBasedOptions()
    table.set_block_cache(Cache(_CACHE_BYTES))
    options = Options(raw_mode=True)
    options.create_if_missing(False)
    options.set_block_based_table_factory(table)
    options.set_max_open_files(512)
    return options
