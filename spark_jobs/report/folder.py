"""The folder of one audit, and the folder of all audits, which is their history.

    audits/20261121T123000Z-compare/    summary.json, findings.parquet, more .parquet, report.html, spark.log
    audits/.20261121T124500Z-compare.part/    being written, or left by a process that was killed: no audit

What always holds: a folder without `.part` is whole (it is written under the other name, synced and renamed); an existing
folder is never written into; an audit that could not be done has a summary that says `failed`, and no findings.
"""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from twinlog.decoding import OBJECT, decoded
from twinlog.errors import ConfigError, NotFound, reason, words
from twinlog.wire.home_paths import expanded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SUMMARY, FINDINGS, REPORT, SPARK_LOG = "summary.json", "findings.parquet", "report.html", "spark.log"
PARQUET_ROWS = 20_000  # written at once
AUDITS = Path("audits")


def audit_id(job: str, at: datetime) -> str:
    """Sorts by time, names a folder and, after `audit-`, a barrier."""
    return f"{at.astimezone(UTC):%Y%m%dT%H%M%SZ}-{job}"


class AuditFolder:
    """One audit while it is written: `part` until `finish`, then `path`."""

    def __init__(self, path: Path) -> None:
        """Makes the `.part` folder. Raises ConfigError when `path` exists, or cannot be written."""
        self.path = expanded(path, "--out").resolve()
        self.part = self.path.with_name(f".{self.path.name}.part")
        if self.path.exists():
            raise ConfigError(f"{self.path} exists already: an audit is written into a folder of its own, give another --out")
        try:
            self.part.mkdir(parents=True)
        except FileExistsError:
            raise ConfigError(
                f"{self.part} exists: another process is writing this audit, or one was killed; remove it if none is running"
            ) from None
        except OSError as error:
            raise ConfigError(f"{self.part} cannot be made: {reason(error)}; give another --out or --audits") from error

    def write_frame(self, frame: DataFrame, name: str) -> tuple[int, int]:
        """`name`.parquet, by this process, so that it lies here whatever the master is. (rows, bytes)."""
        from pyspark.sql.pandas.types import to_arrow_schema

        schema = to_arrow_schema(frame.schema, timezone="UTC")
        path, rows = self.part / f"{name}.parquet", 0
        with pq.ParquetWriter(path, schema) as writer:
            for batch in _batches(frame):
                columns = list(zip(*batch, strict=True))
                arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.types, strict=True)]
                writer.write_batch(pa.record_batch(arrays, schema=schema))
                rows += len(batch)
        return rows, path.stat().st_size

    def count_kinds(self) -> dict[str, int]:
        """Findings of each kind, most first."""
        counts: Counter[str] = Counter()
        for batch in pq.ParquetFile(self.part / FINDINGS).iter_batches(columns=["kind"]):
            counts.update(batch.column(0).to_pylist())
        return dict(counts.most_common())

    def write_text(self, name: str, text: str) -> None:
        (self.part / name).write_text(text, encoding="utf-8")

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        self.write_text(SUMMARY, json.dumps(summary, indent=2, default=str) + "\n")

    def clear_results(self) -> None:
        """Before a failed audit is reported: nothing that looks like a result stays."""
        for path in self.part.iterdir():
            if path.name != SPARK_LOG:
                path.unlink()

    def finish(self) -> Path:
        """Under its name, on the disk."""
        for path in [*self.part.iterdir(), self.part]:
            _sync(path)
        self.part.rename(self.path)
        _sync(self.path.parent)
        return self.path

    def discard(self) -> None:
        shutil.rmtree(self.part, ignore_errors=True)


def first_findings(folder: Path, limit: int) -> list[dict[str, Any]]:
    """Returns the first findings of an audit, whole or being written."""
    found: list[dict[str, Any]] = []
    for batch in pq.ParquetFile(folder / FINDINGS).iter_batches(max(1, limit)):
        found += batch.to_pylist()
        if len(found) >= limit:
            break
    return found[:limit]


def _batches(frame: DataFrame) -> Iterator[list[Any]]:
    rows = frame.toLocalIterator()
    while batch := list(islice(rows, PARQUET_ROWS)):
        yield batch


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class AuditReport:
    """A whole audit on disk."""

    path: Path
    summary: Mapping[str, Any]


def read_audit(path: Path) -> AuditReport:
    """Raises NotFound when there is no whole audit at `path`."""
    if path.name.endswith(".part"):
        raise NotFound(f"{path} is half-written: its process is at work, or was killed. It is no audit")
    try:
        summary = decoded(OBJECT, (path / SUMMARY).read_bytes(), ValueError)
    except (OSError, ValueError) as error:
        raise NotFound(f"{path} holds no audit that can be read: {words(error)}") from error
    return AuditReport(path, summary)


def history(folder: Path) -> tuple[list[AuditReport], list[Path]]:
    """The audits in `folder`, oldest first, and what looks like one and is half-written or cannot be read."""
    audits, others = [], []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if (path / SUMMARY).is_file() or path.name.endswith(".part"):
            try:
                audits.append(read_audit(path))
            except NotFound:
                others.append(path)
    return audits, others


def find_audit(folder: Path, name: str) -> AuditReport:
    """The audit called `name` in `folder` (or at the path `name`); the newest when `name` is empty. Raises NotFound.

    One that began in the future, by its name, is the newest only where there is no other: it would hide all that come later.
    """
    if name and "/" in name:
        return read_audit(expanded(name, "the audit"))
    audits, _ = history(folder)
    matching = [audit for audit in audits if not name or audit.path.name.startswith(name)]
    if not name:
        now = audit_id("~", datetime.now(UTC))
        matching.sort(key=lambda audit: audit.path.name <= now)
    if name and not matching:
        known = ", ".join(audit.path.name for audit in audits[-3:]) or "none"
        raise NotFound(f"{folder.resolve()} holds no audit {name!r}; the newest there: {known}")
    if name and len(matching) > 1 and matching[-1].path.name != name:
        raise NotFound(f"{name!r} fits {len(matching)} audits: {', '.join(audit.path.name for audit in matching[-3:])}")
    if not matching:
        raise NotFound(f"{folder.resolve()} has no audit; `twinlog audit run compare` makes one, --audits DIR looks elsewhere")
    return matching[-1]
