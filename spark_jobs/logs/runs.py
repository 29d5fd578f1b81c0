"""Runs of frames: frames that follow one another, as one row with arrays of what differs between its frames; and frames again.

A log of single rows has half a million frames in 100 MB: made rows, they cost Spark more than reading them. In a run all that a
chain needs of the frames between the first and the last follows from the run: each continues the one before it, in
sequence and in the file. `run_batch` folds a segment for the view `runs`. `unfolded` and `frames_of` (DataFrame -> DataFrame)
make frames of runs where single ones have to be seen: where two runs claim the same sequences, where one is cut, and where two
logs do not hold the same run; of a sound log that is next to nothing.
What always holds: a run has one epoch, one mode, and lies in one block of sequences, so that both logs can be compared block by
block; folding and unfolding again gives the rows that a row for each frame would have been; a single frame is a run of one, so
what takes runs takes frames; no built-in but Spark's own unfolds them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from spark_jobs.logs.columns import COUNTER_BITS, RUN, batch, origin
from spark_jobs.logs.files import Segment
from spark_jobs.logs.headers import Offsets
from spark_jobs.logs.walk import Walk
from storage.log.frame import Flags

BLOCK_BITS = 12  # sequences of a block, as a power of two
KEY = ("ordinal", "offset")  # of a run
ARRAYS = ("seqs", "offsets", "crcs", "committeds")
BUCKET_BITS = 20  # sequences that are put in order together, as a power of two: so one long epoch is many tasks' work


def run_batch(walk: Walk, segment: Segment, site: str, schema: StructType) -> pa.RecordBatch:
    """A row for each run of at least one frame."""
    return fold(walk, run_begins(walk), segment, site, schema)


def run_begins(walk: Walk) -> Offsets:
    """Returns the places of the frames that do not continue the run of the frame before them."""
    frames, last_seqs, modes = walk.frames, walk.last_seqs, _modes(walk)
    blocks = frames["seq"] >> BLOCK_BITS
    begins = np.ones(len(frames), np.bool_)
    begins[1:] = (
        (frames["epoch"][1:] != frames["epoch"][:-1]) | (frames["previous"][1:] != last_seqs[:-1])
        | (frames["seq"][1:] != last_seqs[:-1] + 1) | (walk.offsets[1:] != walk.ends[:-1]) | (modes[1:] != modes[:-1])
        | (blocks[1:] != blocks[:-1])
    )
    return np.flatnonzero(begins)


def fold(walk: Walk, begins: Offsets, segment: Segment, site: str, schema: StructType) -> pa.RecordBatch:
    """A row for each run, which begin at `begins`."""
    frames, count = walk.frames, len(begins)
    last = np.append(begins[1:], len(frames)) - 1
    modes = _modes(walk)[begins]

    def lists(values: NDArray[Any]) -> pa.Array:
        ends = np.append(begins, len(frames)).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(ends), pa.array(values.astype(np.int64)))

    columns: dict[str, Callable[[], Any]] = {
        "entry": lambda: pa.repeat(RUN, count), "epoch": lambda: frames["epoch"][begins], "seq": lambda: frames["seq"][begins],
        "last_seq": lambda: walk.last_seqs[last], "previous": lambda: frames["previous"][begins],
        "timestamp": lambda: np.minimum.reduceat(frames["timestamp"], begins),
        "last_timestamp": lambda: np.maximum.reduceat(frames["timestamp"], begins),
        "committed": lambda: np.maximum.reduceat(frames["committed"], begins),
        "waited_ms": lambda: np.maximum.reduceat(waited_ms(walk), begins),
        "crc": lambda: frames["crc"][begins], "flags": lambda: modes, "frames": lambda: last - begins + 1,
        "offset": lambda: walk.offsets[begins], "end": lambda: walk.ends[last], "detail": lambda: pa.nulls(count, pa.string()),
        "seqs": lambda: lists(frames["seq"]), "offsets": lambda: lists(walk.offsets), "crcs": lambda: lists(frames["crc"]),
        "committeds": lambda: lists(frames["committed"]),
        **origin(segment, site, count),
    }
    return batch({name: columns[name]() for name in schema.names}, schema)


def waited_ms(walk: Walk) -> Offsets:
    """Returns for each frame how long the oldest record not known to be committed had waited when the frame was made.

    Of records that stand in an earlier segment at least as long as this one has frames."""
    made_ms = (walk.frames["timestamp"] >> COUNTER_BITS).astype(np.int64)
    oldest = np.searchsorted(np.maximum.accumulate(walk.last_seqs), walk.frames["committed"].astype(np.int64), "right")
    waited: Offsets = made_ms - made_ms[np.minimum(oldest, np.arange(len(made_ms)))]
    return np.maximum(waited, 0)


def _modes(walk: Walk) -> NDArray[np.uint8]:
    """Flags.ASYNC of each frame, or nothing."""
    return walk.frames["flags"] & np.uint8(Flags.ASYNC)


# ---- on Spark: runs as frames again
def runs_of(view: DataFrame) -> DataFrame:
    """Its runs without their frames, with `block` and `bucket`, where their sequences are."""
    return _placed(view.where(f.col("entry") == RUN).drop(*ARRAYS))


def _placed(runs: DataFrame) -> DataFrame:
    return runs.withColumns({"block": f.shiftright("seq", BLOCK_BITS), "bucket": f.shiftright("seq", BUCKET_BITS)})


def overlapping(view: DataFrame) -> DataFrame:
    """KEY of the runs that share sequences with another one of their epoch."""
    order = Window.partitionBy("epoch", "bucket").orderBy("seq", *KEY)
    before = f.max("last_seq").over(order.rowsBetween(Window.unboundedPreceding, -1))
    placed = runs_of(view).withColumns({"before": before, "behind": f.lead("seq").over(order)})
    return placed.where((f.col("seq") <= f.col("before")) | (f.col("last_seq") >= f.col("behind"))).select(*KEY)


def unfolded(view: DataFrame, keys: DataFrame) -> DataFrame:
    """As `runs_of`, with each of the runs that `keys` names as a run for each of its frames."""
    whole = runs_of(view).join(f.broadcast(keys), list(KEY), how="left_anti")
    return whole.unionByName(frames_of(view, keys))


def frames_of(view: DataFrame, keys: DataFrame) -> DataFrame:
    """The frames of the runs that `keys` names, each as a run of one, with the columns of `runs_of`. A run does not say at
    which time each of its frames was made: both times are null."""
    named = view.where(f.col("entry") == RUN).join(f.broadcast(keys), list(KEY), how="left_semi")
    # in a run each frame begins where the one before it ends, in sequence and in the file
    behind = {
        "last_seqs": f.concat(f.transform(_but_first("seqs"), lambda seq: seq - 1), f.array("last_seq")),
        "ends": f.concat(_but_first("offsets"), f.array("end")),
        "previouses": f.concat(f.array("previous"), f.transform(_but_first("seqs"), lambda seq: seq - 1)),
    }
    each = f.arrays_zip("seqs", "last_seqs", "previouses", "offsets", "ends", "crcs", "committeds")
    frames = named.withColumns(behind).withColumn("frame", f.explode(each)).withColumns({
        "seq": f.col("frame.seqs"), "last_seq": f.col("frame.last_seqs"), "previous": f.col("frame.previouses"),
        "offset": f.col("frame.offsets"), "end": f.col("frame.ends"), "crc": f.col("frame.crcs"),
        "committed": f.col("frame.committeds"), "frames": f.lit(1).cast("long"),
        "timestamp": f.lit(None).cast("long"), "last_timestamp": f.lit(None).cast("long"),
    })
    return _placed(frames.drop(*ARRAYS, *behind, "frame"))


def _but_first(name: str) -> Column:
    return f.slice(name, f.lit(2), f.greatest(f.size(name) - 1, f.lit(0)))
