"""The records that a rejoin put aside, or of a log that nobody replayed, as changes: the newest of each row. No Spark.

A tail is one of: a quarantine's file (`.frames`) or its manifest (`.json`, which knows keys and no rows), a folder of `.frames`
files, a folder of WAL segments.
What always holds: each change is of one row, (table, key), and has the version of the tail's last record of it; a file that
is damaged anywhere is an error: half a tail must not be taken for the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from spark_jobs.logs.files import LogFolder, list_log
from spark_jobs.logs.records import raise_damage
from spark_jobs.logs.walk import walk
from storage.log.chain import standing
from storage.log.frame import Frame, parse_frame
from storage.log.record import RecordKind, decode_schema_change
from storage.rows.codec import merge_values
from storage.rows.schema import TableSchema, decode_schema
from twinlog.decoding import OBJECT, decoded
from twinlog.errors import BrokenFrame, DamagedLog, InvalidInput, LogError, NotFound, named, reason

FRAMES, MANIFEST = ".frames", ".json"
OPERATIONS = {int(kind): kind.name.lower() for kind in (RecordKind.UPSERT, RecordKind.UPDATE, RecordKind.DELETE)}
_SHAPES = "a quarantine's .frames file or .json manifest, a folder of .frames files, or a folder of WAL segments"


class Change(NamedTuple):
    """The sum of the tail's records of one row. `value`: of an upsert the whole row, of an update the columns that it
    changed, of a delete None; None too where only a manifest names it. `version`, `seq`, `epoch`: of the last record."""

    operation: str
    value: bytes | None
    version: int
    seq: int
    epoch: int
    records: int


@dataclass(slots=True)
class Tail:
    """`schemas`: of tables that the tail itself made or changed, as it left them; None: it dropped the table."""

    changes: dict[tuple[int, bytes], Change] = field(default_factory=dict)
    schemas: dict[int, TableSchema | None] = field(default_factory=dict)

    def add(self, frame: Frame) -> None:
        for index, record in enumerate(frame.records):
            if record.kind == RecordKind.DDL:
                change = decode_schema_change(record.value)
                self.schemas[change.table] = decode_schema(change.schema) if change.kind == "put" else None
                if change.kind != "put":  # it took its rows with it
                    self.changes = {key: each for key, each in self.changes.items() if key[0] != change.table}
            elif record.kind in OPERATIONS:
                self.put(
                    record.table, record.key, OPERATIONS[record.kind],
                    None if record.kind == RecordKind.DELETE else record.value,
                    (frame.timestamp + index, frame.first_seq + index, frame.epoch),
                )

    def put(self, table: int, key: bytes, operation: str, value: bytes | None, at: tuple[int, int, int]) -> None:
        """The next record of a row; `at`: version, sequence, epoch."""
        before = self.changes.get((table, key))
        if operation == "update" and before is not None and before.value is not None and value is not None:
            operation, value = before.operation, merge_values(before.value, value)
        self.changes[table, key] = Change(operation, value, *at, 1 + (before.records if before is not None else 0))


def read_tail(path: Path, keys: str = "") -> Tail:
    """Raises InvalidInput, NotFound, DamagedLog, LogError."""
    if not path.exists():
        raise NotFound(f"there is nothing at {path} (setting tail): name {_SHAPES}")
    try:
        if path.suffix == MANIFEST and path.is_file():
            return _of_manifest(path)
        tail = Tail()
        for frame in _frames(path, keys):
            tail.add(frame)
    except OSError as error:
        raise InvalidInput(f"{path} (setting tail) cannot be read: {reason(error)}") from error
    return tail


def _frames(path: Path, keys: str) -> Iterable[Frame]:
    if path.is_file():
        if path.suffix != FRAMES:
            raise InvalidInput(f"{path} (setting tail) is no file of a quarantine: name {_SHAPES}")
        return _of_file(path)
    files = sorted(path.glob(f"*{FRAMES}"))
    return _of_files(files) if files else standing(_of_log(path, keys))


def _of_files(files: Iterable[Path]) -> Iterator[Frame]:
    for file in files:
        yield from _of_file(file)


def _of_file(file: Path) -> Iterator[Frame]:
    data, offset = file.read_bytes(), 0
    while offset < len(data):
        try:
            frame = parse_frame(data, offset)
        except BrokenFrame as error:
            raise DamagedLog(
                f"{file}, offset {offset}: {error.message}; a quarantine is written whole, so this file was damaged since: "
                f"name its manifest ({file.with_suffix(MANIFEST).name}) instead, which knows the keys",
                file=str(file), offset=offset,
            ) from error
        yield frame
        offset += len(frame.data)


def _of_log(folder: Path, keys: str) -> Iterator[Frame]:
    log = list_log(LogFolder(str(folder), keys=keys))
    if not log.segments:
        raise NotFound(f"{folder} (setting tail) is empty: name {_SHAPES}")
    for segment in log.segments:
        data = (folder / segment.name).read_bytes()
        found = walk(data, str(folder / segment.name), segment, log.place.keyring())
        raise_damage(found, log.place, segment)
        for offset in found.offsets.tolist():
            yield found.frame_at(data, offset)


def _of_manifest(path: Path) -> Tail:
    tail = Tail()
    try:
        document = decoded(OBJECT, path.read_bytes(), ValueError)
        for entry in sorted(document["keys"], key=lambda entry: int(entry["seq"])):
            operation = str(entry["operation"]).lower()
            if operation not in OPERATIONS.values():
                raise LogError(f"{path} names the operation {operation!r}, which this release does not know")
            at = int(entry["version"]), int(entry["seq"]), int(document["epoch"])
            tail.put(int(entry["table"]), bytes.fromhex(entry["key"]), operation, None, at)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(
            f"{path} (setting tail) is no manifest of a quarantine: it has no list `keys` of table, key, seq, version and "
            f"operation ({named(error)}); what a failover may lose is only counted, the keys stand in "
            "the manifest that the rejoin of the lost site writes"
        ) from error
    return tail
