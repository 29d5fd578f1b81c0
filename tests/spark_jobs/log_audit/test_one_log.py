"""The chain of log-audit is the chain of the product's readers: storage/log/chain.py, on random logs with
faults."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spark_jobs.log_audit.job import WAL, Audited, Here, audited, findings_of
from spark_jobs.log_audit.missing import BROKEN_LINK, GAP
from spark_jobs.log_audit.one_log import DUPLICATE
from spark_jobs.logs.columns import RUNS_SCHEMA
from spark_jobs.logs.files import LocalStore, LogFolder
from spark_jobs.logs.walk import REPEATED
from storage.log import chain
from storage.log.frame import Frame, parse_frame
from tests.spark_jobs.logs.noisy_logs import Segments, history, in_segments, spoil, view, walks, write
from twinlog.errors import DamagedLog, LogGap

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def chained(spark: SparkSession, place: LogFolder) -> tuple[Audited, list[tuple[str, int, int]]]:
    """The log as audited, and kind, `seq`, `last_seq` of the findings. Not REPEATED: the copies are those of a remote log."""
    found = audited(spark, "a", WAL, place, spark.createDataFrame(view(place, folded=True), RUNS_SCHEMA))
    rows = Here.take(spark, findings_of(found, 0)).rows.to_pylist()
    return found, sorted((row["kind"], row["seq"], row["last_seq"]) for row in rows if row["kind"] != REPEATED)


def frames_in(place: LogFolder) -> Iterator[Frame]:
    for found, segment in walks(place):
        data = LocalStore().read(place.file(segment.name))
        yield from (parse_frame(data, offset) for offset in found.offsets.tolist())


def breaks(segments: Segments, kept: list[Frame]) -> list[tuple[str, int, int]]:
    """Returns the broken links between standing frames, except at the beginning of an epoch: another site may have written
    there."""
    begins: dict[int, list[Frame]] = {}
    for (epoch, _), frames in sorted(segments.items()):
        begins.setdefault(epoch, frames)
    found = []
    for before, frame in pairwise(kept):
        if frame.previous == before.last_seq:
            continue
        first = begins[frame.epoch]
        if frame.epoch != before.epoch and (frame in first or frame.previous < min(one.first_seq for one in first)):
            continue
        cut_off = any(one.epoch == before.epoch and one.first_seq <= frame.previous < one.last_seq for one in _all(segments))
        found.append((BROKEN_LINK if cut_off else GAP, before.last_seq + 1, frame.previous))
    return sorted(found)


def _all(segments: Segments) -> Iterator[Frame]:
    for frames in segments.values():
        yield from frames


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
def test_what_stands_and_where_links_are_missing_is_the_same(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    noise = random.Random(seed)
    segments = in_segments(noise, history(noise, epochs=5, frames=90), copies=seed % 2 == 0)
    spoil(noise, segments, faults=10, kinds=("lost", "lost", "swapped"))
    place = write(noise, tmp_path / "wal", segments, damaged=0, remote=False)
    found, told = chained(spark, place)
    frames = list(frames_in(place))
    kept = chain.remaining(frames)
    chains = [(row["epoch"], row["seq"], row["upto"]) for row in found.linked.rows.to_pylist()]
    stands = {
        frame.position for frame in frames
        if any(epoch == frame.epoch and seq <= frame.first_seq and frame.last_seq <= upto for epoch, seq, upto in chains)
    }
    assert stands == {frame.position for frame in kept}
    assert len(stands) < len({frame.position for frame in frames}), "something is cut off"
    assert [each for each in told if each[0] in (GAP, BROKEN_LINK)] == breaks(segments, kept)
    assert len(breaks(segments, kept)) > 2
    with pytest.raises(LogGap):
        chain.standing(frames)


def test_two_frames_for_one_position_are_damage_for_both(spark: SparkSession, tmp_path: Path) -> None:
    noise = random.Random(11)
    segments = in_segments(noise, history(noise, epochs=2, frames=40), copies=True)
    place = write(noise, tmp_path / "sound", segments, damaged=0, remote=False)
    assert chained(spark, place)[1] == []
    chain.standing(frames_in(place))
    spoil(noise, segments, faults=1, kinds=("other",))
    place = write(noise, tmp_path / "wal", segments, damaged=0, remote=False)
    with pytest.raises(DamagedLog, match="two different frames claim epoch") as raised:
        chain.standing(frames_in(place))
    ((kind, seq, _),) = chained(spark, place)[1]
    assert (kind, seq) == (DUPLICATE, raised.value.fields["seq"])
