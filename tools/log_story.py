"""The log audit's proof: a gap, a duplicate and a damaged CRC in a pair's logs are reported with file and offset, and no more.

The log is the one that a real pair wrote while the real input was loaded; site b's gateway was stopped before, so that nothing
of it was trimmed. It prints what it does, and exits non-zero when anything is found that was not planted, or not found that
was, or when the whole logs are not clean. Needs Java 17. `--copies 10` loads the flights ten times, a year later each time.
"""

from __future__ import annotations

import argparse
import json
import sys
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from gateway.demo.files import PAIR
from gateway.load.sources import FLIGHTS, FLIGHTS_KEY, open_source
from spark_jobs.logs.files import LocalStore, LogFolder, list_log
from spark_jobs.logs.walk import walk
from spark_jobs.report.folder import first_findings
from storage.log.frame import Flags, make_frame, parse_frame
from tools.audit_story import run_audit, told
from tools.story import Story, StoryFailed

LOAD_TIMEOUT_S = 3600
FRAMES_MIN = 10
YEAR_US = 365 * 24 * 3600 * 1_000_000


class Fault(NamedTuple):
    """A fault that the audit has to report."""

    kind: str
    file: str
    offset: int


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("tools.log_story", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=0, help="only the first so many flights; 0: all")
    parser.add_argument("--copies", type=int, default=1, help="how often they are loaded, each time a year later")
    options = parser.parse_args(given)
    done = "found what was planted, with file and offset, and nothing else"
    return told(lambda story: _tell(story, options.copies), options.rows, done)


def _tell(story: Story, copies: int) -> None:
    story.open_the_pair()
    _stop(story, "b")
    source = _source(story.directory / "flights.parquet", story.rows, copies)
    loader = story.start(
        "load", "load", str(source), "--table", FLIGHTS, "--key", ",".join(FLIGHTS_KEY), "--config", str(story.operator),
        "--batch-rows", "100",
    )
    story.until("the load is done", lambda: loader.poll() == 0, LOAD_TIMEOUT_S)
    _stop(story, "a")
    whole = json.loads((run_audit(story, "log-audit", 0) / "summary.json").read_text())
    counters, took_s = whole["counters"], whole["took_s"]
    story.tell(f"  {counters['FRAMES']:,} frames, {counters['BYTES'] / 1e6:,.0f} MB in {took_s:.1f} s, Spark's start included")
    planted = plant(
        LogFolder(str(story.directory / "a" / "data" / "wal")), LogFolder(str(story.directory / "b" / "dfs" / PAIR / "0"))
    )
    for fault in planted:
        name = Path(fault.file).name
        story.tell(f"  [red]{fault.kind}[/] planted in {name}, offset {fault.offset:,}")
    found = first_findings(run_audit(story, "log-audit", 1), 1000)
    seen = sorted(Fault(row["kind"], row["file"], row["offset"]) for row in found)
    if seen != sorted(planted):
        raise StoryFailed(f"planted {sorted(planted)}, found {seen}")


def _stop(story: Story, site: str) -> None:
    story.processes[site].terminate()
    story.processes[site].wait()


def _source(path: Path, rows: int, copies: int) -> Path:
    """The flights as a file: `copies` times, the hours of each a year after those of the one before."""
    flights = open_source(FLIGHTS, "", ()).rows
    flights = flights.slice(0, rows or flights.num_rows)
    place, hours = flights.schema.get_field_index("time_hour"), flights.column("time_hour")
    with pq.ParquetWriter(path, flights.schema) as writer:
        for copy in range(copies):
            later = pc.add(hours.cast("int64"), copy * YEAR_US).cast(hours.type)
            writer.write_table(flights.set_column(place, flights.schema.field("time_hour"), later))
    return path


def plant(wal: LogFolder, remote: LogFolder) -> list[Fault]:
    """One fault of each kind in logs that nobody writes: far from each other, and not at a log's end."""
    return [_damage(wal, 0.3), _duplicate(wal, 0.6), _gap(remote, 0.45)]


def _damage(log: LogFolder, share: float) -> Fault:
    """A bit of a payload is turned."""
    file, begin, end = _frame(log, share)
    data = bytearray(file.read_bytes())
    data[end - 1] ^= 1
    file.write_bytes(data)
    return Fault("damaged", str(file), begin)


def _duplicate(log: LogFolder, share: float) -> Fault:
    """Behind a frame a second one for the same sequences, sound in itself, that says something else."""
    file, begin, end = _frame(log, share)
    data = file.read_bytes()
    frame = parse_frame(data, begin)
    records = list(frame.records)
    records[-1], records[0] = records[0], records[-1]
    other = make_frame(
        epoch=frame.epoch, first_seq=frame.first_seq, previous=frame.previous, timestamp=frame.timestamp + 1,
        committed=frame.committed, records=records, flags=frame.flags & Flags.ASYNC, log=frame.log,
    )
    file.write_bytes(data[:end] + other.data + data[end:])
    return Fault("duplicate", str(file), end)


def _gap(log: LogFolder, share: float) -> Fault:
    """A frame is gone, and what followed it stands in its place."""
    file, begin, end = _frame(log, share)
    data = file.read_bytes()
    file.write_bytes(data[:begin] + data[end:])
    return Fault("gap", str(file), begin)


def _frame(log: LogFolder, share: float) -> tuple[Path, int, int]:
    """File, begin and end of the frame that so much of the log's bytes lies before."""
    frames: list[tuple[Path, int, int]] = []
    for segment in list_log(log).segments:
        path = log.file(segment.name)
        found = walk(LocalStore().read(path), path, segment)
        frames += [(Path(path), begin, end) for begin, end in zip(found.offsets.tolist(), found.ends.tolist(), strict=True)]
    if len(frames) < FRAMES_MIN:
        raise StoryFailed(f"{log.path} has {len(frames)} frames only: load more rows")
    before = list(accumulate(end - begin for _, begin, end in frames))
    return frames[bisect_left(before, share * before[-1])]


if __name__ == "__main__":
    sys.exit(main())
