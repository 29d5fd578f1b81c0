"""Runs of frames as frames again, where a chain has to look at single ones.

Functions DataFrame -> DataFrame over the view `runs` (log_fold.py). Frames have to be seen one by one only where two runs claim
the same sequences, where one is cut, and where two logs do not hold the same run; of a sound log that is next to nothing.
What always holds: a single frame is a run of one, so what takes runs takes frames; no built-in but Spark's own unfolds them.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from spark_jobs.logs.columns import RUN
from spark_jobs.logs.runs_folded import BLOCK_BITS

KEY = ("ordinal", "offset")  # of a run
ARRAYS = ("seqs", "offsets", "crcs", "committeds")
BUCKET_BITS = 20  # sequences that are put in order together, as a power of two: so one long epoch is many tasks' work


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
    """The frames of the runs that `keys` names, each as a run of one, with the columns of `runs_of`."""
    named = view.where(f.col("entry") == RUN).join(f.broadcast(keys), list(KEY), how="left_semi")
    # in a run each frame goes on where the one before it ends, in sequence and in the file
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
    })
    return _placed(frames.drop(*ARRAYS, *behind, "frame"))


def _but_first(name: str) -> Column:
    return f.slice(name, f.lit(2), f.greatest(f.size(name) - 1, f.lit(0)))
