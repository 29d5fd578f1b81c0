"""The chains of one log, and its faults but for what is missing (missing.py): two frames in one place, damage, lost starts.

Functions DataFrame -> DataFrame over the view `runs` of one log (logs/runs.py). `frames` are its runs without overlaps
(logs/runs.py: `unfolded`), `marks` its rows that are no runs; `chains`, `limits` and `linked` are made of it here; all of these
are small.
A reader takes frames in the order of (epoch, sequence), and one whose `previous` lies below what was read cuts off what came
after that (storage/log/chain.py). What always holds: what the rules of the log allow is no finding, and one fault is one
finding:
- a frame that stands in several segments, as after a retry, is one frame; what is cut off needs no link;
- a frame that stands twice in one file, or in two segments of a WAL of one epoch, was put there by no writer.
Findings have the columns of FOUND: `ordinal` is the segment's, `seq` .. `last_seq` what is missing or wrong.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from spark_jobs.logs.runs import KEY, runs_of, unfolded
from spark_jobs.logs.walk import DAMAGED, EPOCH, MISPLACED, OUT_OF_ORDER, REPEATED, TIME_BACK, UNREADABLE
from storage.log.frame import Flags

DUPLICATE, NO_START, CUT_COMMITTED = "duplicate", "epoch-without-start", "cut-committed"
FOUND = ("kind", "ordinal", "offset", "seq", "last_seq", "detail")


def is_sync(flags: str = "flags") -> Column:
    return f.col(flags).bitwiseAND(int(Flags.ASYNC)) == 0


def chains(frames: DataFrame) -> DataFrame:
    """Frames that link to one another in order, as few rows: what a log is judged by. To be cached.

    first, last: (seq, ordinal, offset, segment_epoch) of the first frame, (last_seq, ordinal, end, segment_epoch) of the last.
    `others`: the frames that claim the place of another one with other bytes. `again`: the frames that another segment of the
    same epoch holds too. `late`: the frames whose time is not above that of the frame of another segment that they continue.
    """
    order = Window.partitionBy("epoch", "bucket").orderBy("seq", *KEY)
    same_place = f.coalesce(f.col("seq") == f.lag("seq").over(order), f.lit(False))
    linked = f.coalesce(f.col("previous") == f.lag("last_seq").over(order), f.lit(False))
    other = same_place & (f.col("crc") != f.lag("crc").over(order))
    again = same_place & ~other & (f.col("ordinal") != f.lag("ordinal").over(order)) & (
        f.col("segment_epoch") == f.lag("segment_epoch").over(order))
    late = linked & ~same_place & (f.col("ordinal") != f.lag("ordinal").over(order)) & (
        f.col("timestamp") <= f.lag("last_timestamp").over(order))
    place = f.struct("ordinal", "offset", "seq", "last_seq", f.lag("ordinal").over(order).alias("first_ordinal"),
                     f.lag("offset").over(order).alias("first_offset"))
    ordered = (
        frames.withColumn("counted", f.when(same_place, 0).otherwise(f.col("frames")))
        .withColumn("other", f.when(other, place))
        .withColumn("second", f.when(again, place))
        .withColumn("back", f.when(late, place))
        .withColumn("chain", f.sum(f.when(same_place | linked, 0).otherwise(1)).over(order))
    )
    return ordered.groupBy("epoch", "bucket", "chain").agg(
        f.min("seq").alias("seq"), f.max("last_seq").alias("last_seq"), f.min("previous").alias("previous"),
        f.max(f.when(is_sync(), f.col("committed"))).alias("committed"), f.sum("counted").alias("frames"),
        f.min(f.struct("seq", "ordinal", "offset", "segment_epoch")).alias("first"),
        f.max(f.struct("last_seq", "ordinal", "end", "segment_epoch")).alias("last"),
        f.collect_list("other").alias("others"), f.collect_list("second").alias("again"),
        f.collect_list("back").alias("late"),
    ).drop("bucket", "chain")


def limits(chains: DataFrame) -> DataFrame:
    """`chains` with `limit`: no frame of the chain that ends above it stands. To be cached."""
    later = Window.orderBy(f.desc("epoch"), f.desc("seq")).rowsBetween(Window.unboundedPreceding, -1)
    return chains.withColumn("limit", f.least("last_seq", f.min("previous").over(later)))


def linked(view: DataFrame, limits: DataFrame) -> DataFrame:
    """The chains as far as they stand, in order, and what stands before each. To be cached: it is small.

    `upto`, `at`, `at_end`, `at_epoch`: the last sequence that stands, its segment, where it ends, the segment's epoch; `after`,
    `after_at`, ...: those of the chain before; `attested`: what all frames before, standing or not, say was
    committed in both logs.
    """
    cut = limits.where(f.col("limit") < f.col("last_seq")).select("epoch", f.col("seq").alias("chain_seq"), "limit")
    astride = (f.col("limit").between(f.col("seq"), f.col("last_seq") - 1)) | (
        (f.col("seq") < f.col("chain_seq")) & (f.col("chain_seq") <= f.col("last_seq")))
    crossed = runs_of(view).join(f.broadcast(cut), "epoch", how="inner").where(astride).select(*KEY).distinct()
    kept = (
        unfolded(view, crossed)
        .join(f.broadcast(cut), "epoch", how="inner")
        .where((f.col("seq") >= f.col("chain_seq")) & (f.col("last_seq") <= f.col("limit")))
        .groupBy("epoch", f.col("chain_seq").alias("seq"))
        .agg(f.max(f.struct("last_seq", "ordinal", "end", "segment_epoch")).alias("kept"))
    )
    whole = f.col("limit") == f.col("last_seq")
    order = Window.orderBy("epoch", "seq")
    before = {"after": "upto", "after_at": "at", "after_end": "at_end", "after_epoch": "at_epoch", "after_last": "last_seq",
              "before": "epoch"}
    return (
        limits.join(f.broadcast(kept), ["epoch", "seq"], how="left")
        .withColumn("tail", f.when(whole, f.col("last")).otherwise(f.col("kept")))
        .withColumn("attested", f.max("committed").over(order.rowsBetween(Window.unboundedPreceding, -1)))
        .where(f.col("tail").isNotNull())
        .withColumns({"upto": f.col("tail.last_seq"), "at": f.col("tail.ordinal"), "at_end": f.col("tail.end"),
                      "at_epoch": f.col("tail.segment_epoch")})
        .withColumns({name: f.lag(column).over(order) for name, column in before.items()})
        .drop("tail", "kept", "limit", "others", "again", "late")
    )


def duplicates(chains: DataFrame, marks: DataFrame) -> DataFrame:
    """DUPLICATE: two frames with one epoch and sequence, and other bytes."""
    found = chains.select("epoch", f.explode("others").alias("other")).select("epoch", "other.*")
    detail = f.format_string(
        "another frame of epoch %d has sequence %d too, with other bytes: in %s at offset %d",
        "epoch", "seq", "first_segment", "first_offset",
    )
    return (
        found.join(f.broadcast(segment_names(marks, "first_")), "first_ordinal", how="left")
        .select(f.lit(DUPLICATE).alias("kind"), "ordinal", "offset", "seq", "last_seq", detail.alias("detail"))
    )


def repeated(chains: DataFrame, marks: DataFrame) -> DataFrame:
    """REPEATED: a frame that two segments of one epoch hold. Not in a remote log, which repeats frames after a failure;
    not what is misplaced anyhow."""
    wrong = marks.where(f.col("entry") == MISPLACED).select(f.col("ordinal").alias("wrong"), f.col("offset").alias("wrong_at"))
    named = (f.col("wrong_at") == 0) & f.col("wrong").isin(f.col("ordinal"), f.col("first_ordinal")) | (
        (f.col("wrong") == f.col("ordinal")) & (f.col("wrong_at") == f.col("offset")))
    seconds = chains.select(f.explode("again").alias("second")).select("second.*")
    found = seconds.join(f.broadcast(wrong), named, how="left_anti")
    detail = f.format_string("the same frame stands in %s at offset %d too", "first_segment", "first_offset")
    return (
        found.join(f.broadcast(segment_names(marks, "first_")), "first_ordinal", how="left")
        .select(f.lit(REPEATED).alias("kind"), "ordinal", "offset", "seq", "last_seq", detail.alias("detail"))
    )


def times(chains: DataFrame, marks: DataFrame) -> DataFrame:
    """TIME_BACK between two segments of one epoch. Not where a time in one of the two goes back: it accounts for this one."""
    wrong = marks.where(f.col("entry") == TIME_BACK).select(f.col("ordinal").alias("wrong")).distinct()
    found = chains.select(f.explode("late").alias("back")).select("back.*").join(
        f.broadcast(wrong), f.col("wrong").isin(f.col("ordinal"), f.col("first_ordinal")), how="left_anti")
    detail = f.format_string(
        "its time is not above that of the frames of %s, which it continues: one of the two segments was changed, or is"
        " another pair's", "first_segment",
    )
    return (
        found.join(f.broadcast(segment_names(marks, "first_")), "first_ordinal", how="left")
        .select(f.lit(TIME_BACK).alias("kind"), "ordinal", "offset", "seq", "last_seq", detail.alias("detail"))
    )


def segment_names(marks: DataFrame, prefix: str = "") -> DataFrame:
    """`ordinal` and `segment`, with `prefix`, of every segment that something is known of."""
    return marks.select(f.col("ordinal").alias(f"{prefix}ordinal"), f.col("segment").alias(f"{prefix}segment")).distinct()


def damage(marks: DataFrame) -> DataFrame:
    """Returns what the walk along each file found: DAMAGED, MISPLACED, UNREADABLE, OUT_OF_ORDER, REPEATED, TIME_BACK."""
    bad = marks.where(f.col("entry").isin(DAMAGED, MISPLACED, UNREADABLE, OUT_OF_ORDER, REPEATED, TIME_BACK))
    return bad.select(f.col("entry").alias("kind"), "ordinal", "offset", "seq", "last_seq", "detail")


def epochs(marks: DataFrame, linked: DataFrame) -> DataFrame:
    """NO_START: an epoch that follows another one in this log, and does not begin with its start; CUT_COMMITTED: a frame that
    cuts off what an earlier one says was committed in both logs."""
    starts = marks.where(f.col("entry") == EPOCH).select("epoch", "seq")
    begins = (f.col("epoch") > f.col("before")) & (f.col("previous") == f.col("after"))
    own = f.col("first.segment_epoch") == f.col("epoch")
    place = (f.col("first.ordinal").alias("ordinal"), f.col("first.offset").alias("offset"))
    without = linked.where(begins & own).join(f.broadcast(starts), ["epoch", "seq"], how="left_anti").select(
        f.lit(NO_START).alias("kind"), *place, "seq", f.col("seq").alias("last_seq"),
        f.format_string("epoch %d follows epoch %d here, and begins with no epoch start", "epoch", "before").alias("detail"),
    )
    cutting = linked.where(f.col("previous") < f.col("attested")).select(
        f.lit(CUT_COMMITTED).alias("kind"), *place, (f.col("previous") + 1).alias("seq"), f.col("attested").alias("last_seq"),
        f.format_string(
            "epoch %d continues from sequence %d, and %d had been committed in both logs", "epoch", "previous", "attested"
        ).alias("detail"),
    )
    return without.unionByName(cutting)
