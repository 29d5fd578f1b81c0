"""Opening the folder of a RocksDB engine: database, notes beside it, and kept snapshots, which are checkpoints. Blocking.

What always holds: RocksDB's own log is off (twinlog's WAL is the log) and everything is in one column family, so after
a crash the database is what the last finished memtable flush left, a prefix of what was written; memory, open files and
RocksDB's info log are bounded; a directory that is damaged, in use or of another format is a DataDirectoryError.
The notes are a file of their own, replaced atomically, because a note must be durable at once, and the only other way
to that would be to flush up to a whole memtable for a few bytes. A checkpoint is made of files that are on the disk: its
caller flushes first, and lets nobody write between.
Source: product.md 3, protocol.md 4.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import msgspec
from rocksdict import BlockBasedOptions, Cache, Checkpoint, DbClosedError, DBCompressionType, Options, Rdict, WriteOptions

from storage.disk.os_files import make_folders, write_whole
from storage.disk.sealed_json import seal, unseal
from storage.engine import EngineState
from storage.engines.kept_snapshots import SnapshotFolder
from storage.engines.rocks.layout import FORMAT, FORMAT_KEY
from storage.engines.rocks.state import load_state
from storage.engines.rocks.view import ROCKS_ERRORS, RocksView
from twinlog.decoding import decoded
from twinlog.errors import DamagedLog, DataDirectoryError, EngineFailed, reason, words

FLUSHES_MERGED = 8  # their files are merged together; until then a scan goes through all of them
_MADE_BEFORE_CURRENT = ("LOCK", "LOG", "IDENTITY", "MANIFEST-", "OPTIONS-", "rocksdict-config")
_MADE_BY_RENAME = ".dbtmp"  # ends the name of what RocksDB writes before it renames it, CURRENT too
_FIGURES = {
    "disk_bytes": "rocksdb.live-sst-files-size",
    "memtable_bytes": "rocksdb.cur-size-all-mem-tables",
    "cache_bytes": "rocksdb.block-cache-usage",
    "pending_compaction_bytes": "rocksdb.estimate-pending-compaction-bytes",
}
_NOTES_REMEDY = "move the data directory away, and the site will be loaded from its peer"
_decode_notes = msgspec.msgpack.Decoder(dict[str, bytes]).decode


@dataclass(frozen=True, slots=True)
class RocksSettings:
    """Bounds of one engine. Memory is at most about `write_buffer_bytes * write_buffers_max + block_cache_bytes`."""

    write_buffer_bytes: int = 32 << 20
    write_buffers_max: int = 3
    block_cache_bytes: int = 64 << 20
    open_files_max: int = 512
    inline_records_max: int = 1000  # a group of at most this many records is applied on the event loop (see bench/engine.py)
    request_ttl_s: int = 24 * 3600


def write_options() -> WriteOptions:
    """No RocksDB log; a write that RocksDB would hold back fails instead, because rocksdict waits with the GIL held."""
    options = WriteOptions()
    options.disable_wal = True  # type: ignore[method-assign, assignment]
    options.no_slowdown = True
    return options


def _options(settings: RocksSettings) -> Options:
    table = BlockBasedOptions()
    table.set_block_cache(Cache(settings.block_cache_bytes))
    table.set_cache_index_and_filter_blocks(True)  # else they are outside every bound
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    table.set_bloom_filter(10, False)
    table.set_block_size(16 << 10)
    table.set_format_version(5)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_block_based_table_factory(table)
    options.set_write_buffer_size(settings.write_buffer_bytes)
    options.set_max_write_buffer_number(settings.write_buffers_max)
    options.set_allow_concurrent_memtable_write(False)  # there is one writer
    options.set_compression_type(DBCompressionType.lz4())
    options.set_bottommost_compression_type(DBCompressionType.zstd())
    options.set_level_compaction_dynamic_level_bytes(True)
    # For rows replaced here and there in a large table (bench/write_cost.py): each merge takes many flushes along, the lowest
    # level alone is rewritten as a whole only while it is small, and a level above it is at least a quarter of it.
    options.set_level_zero_file_num_compaction_trigger(FLUSHES_MERGED)
    options.set_max_bytes_for_level_base(256 << 20)
    options.set_max_bytes_for_level_multiplier(4)
    options.set_max_open_files(settings.open_files_max)
    options.set_max_background_jobs(2)
    options.set_bytes_per_sync(1 << 20)
    options.set_max_log_file_size(1 << 20)
    options.set_keep_log_file_num(3)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    return options


def open_database(path: Path, settings: RocksSettings) -> Rdict:
    """The database in the folder `path`, made when it does not exist. Raises DataDirectoryError."""
    try:
        make_folders(path)
        names = [file.name for file in path.iterdir()]
        if "CURRENT" not in names and not all(
            name.startswith(_MADE_BEFORE_CURRENT) or name.endswith(_MADE_BY_RENAME) for name in names
        ):
            raise DataDirectoryError(f"{path} is not empty and holds no whole RocksDB database: name another data directory")
        database = Rdict(str(path), _options(settings))
        database.set_write_options(write_options())
        first = database.iter()
        first.seek_to_first()
        if not first.valid():
            first.status()
            database.put(FORMAT_KEY, FORMAT)
            database.flush()
        found = database.get(FORMAT_KEY)
    except DataDirectoryError:
        raise
    except Exception as error:  # rocksdict raises nothing narrower
        raise DataDirectoryError(f"{path} cannot be opened: {_advice(words(error))} ({words(error)})") from error
    if found != FORMAT:
        database.close()
        raise DataDirectoryError(
            f"{path} holds a RocksDB database of format {found!r}, this release reads {FORMAT!r}: "
            "it belongs to another release or another program"
        )
    return database


def check_room(folder: Path, size_bytes: int) -> None:
    """Raises EngineFailed when so many bytes cannot be allocated there. What a file system calls free knows no quota."""
    path = folder / "room"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            path.unlink()  # a process that dies here must not leave it behind
            os.posix_fallocate(descriptor, 0, size_bytes)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise EngineFailed(
            f"cannot allocate {size_bytes >> 20} MiB in {folder} ({reason(error)}): make room, the storage needs it to open"
        ) from error


def _advice(problem: str) -> str:
    if "Corruption" in problem:  # also of a block, which is no lock
        return "the database is damaged; move it away, and the site will be loaded from its peer"
    if "lock" in problem.lower():
        return "another process, or this one, has it open; stop that one first"
    return "look at the file system"


class Notes:
    """Small durable notes in one sealed file. Raises DataDirectoryError when the file cannot be read as such, or a bit of it
    has turned: a note says, for example, that the rows are no prefix of the log."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            data = path.read_bytes() if path.exists() else seal(dict[str, bytes]())
        except OSError as error:
            raise DataDirectoryError(f"{path} cannot be read as an engine's notes: {words(error)}") from error
        try:
            if _is_unsealed(data):
                self._notes = decoded(_decode_notes, data, ValueError)
            else:
                self._notes = unseal(data, dict[str, bytes], str(path), _NOTES_REMEDY)
        except (ValueError, DamagedLog) as error:
            raise DataDirectoryError(f"{path} cannot be read as an engine's notes: {words(error)}") from error

    def get(self, name: str) -> bytes | None:
        return self._notes.get(name)

    def put(self, name: str, value: bytes | None) -> None:
        """Durable when it returns. None removes the note. Raises EngineFailed."""
        notes = {**self._notes, name: value}
        kept = {key: note for key, note in notes.items() if note is not None}
        try:
            write_whole(self._path, seal(kept))
        except OSError as error:
            raise EngineFailed(f"{self._path} could not be written: {words(error)}; look at the file system") from error
        self._notes = kept


def _is_unsealed(data: bytes) -> bool:
    """A map of msgpack, as notes were written up to 2026-11-24. No bit that turns makes a sealed file begin like one."""
    return bool(data) and data[0] >> 4 == 0x8


class RocksParts(NamedTuple):
    """The parts that an engine works with: notes, database, the state that the database holds, and the kept snapshots."""

    notes: Notes
    database: Rdict
    state: EngineState
    kept: SnapshotFolder


def open_folder(path: Path, settings: RocksSettings) -> RocksParts:
    """The parts in the folder `path`, made when it is not there. Raises DataDirectoryError."""
    notes = Notes(path / "notes")
    database = open_database(path / "rocksdb", settings)
    with ROCKS_ERRORS:
        return RocksParts(notes, database, load_state(RocksView(database)), SnapshotFolder(path / "kept", "rocksdb", "rocksdb"))


def keep_checkpoint(kept: SnapshotFolder, database: Rdict, state: EngineState, name: str, taken_ms: int) -> None:
    """Keeps a checkpoint of `state`, which is all on the disk, under `name`. Raises EngineFailed."""
    with ROCKS_ERRORS:
        make = Checkpoint(database).create_checkpoint
        kept.keep(name, state.seq, state.epoch, taken_ms, lambda path: make(str(path)))


def figures(database: Rdict) -> dict[str, int]:
    """Sizes in bytes, for metrics."""
    try:
        return {name: database.property_int_value(key) or 0 for name, key in _FIGURES.items()}
    except DbClosedError:
        return {}  # it failed, and could not be opened anew yet
