"""The faults between a site's WAL, the remote log that it writes on the other site's DFS, and its storage.

Functions DataFrame -> DataFrame, over the view `runs` of each log (logs/runs.py). What always holds, if the WAL was read
before the remote log and `trimmed_to` was asked for after it: a record that was acknowledged synchronously, and that the other
site does not hold durably, is in both logs with the same bytes; nothing else is demanded, so a log that is written and trimmed
meanwhile gives no finding.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from spark_jobs.log_audit.one_log import is_sync
from spark_jobs.logs.columns import RUN, SEGMENT
from spark_jobs.logs.runs import KEY, frames_of, runs_of

NOT_IN_REMOTE, DIFFERS, BEHIND_STORAGE, TRIMMED_EARLY = "not-in-remote-log", "logs-differ", "behind-storage", "trimmed-early"


def differing(wal: DataFrame, remote: DataFrame, trimmed_to: int | None) -> DataFrame:
    """The WAL's runs that are not in the remote log exactly so, `epoch`, `block` and KEY: what has to be looked at by frames.

    Both logs are cut into blocks at the same sequences, so a run that was not trimmed is found there, unless a segment begins
    within it. `trimmed_to`: as of `not_in_remote`."""
    same = ["epoch", "seq", "last_seq", "frames", "digest"]
    digest = f.xxhash64("crcs").alias("digest")  # a frame's CRC covers its sequences, too
    there = remote.where(f.col("entry") == RUN).select(*same[:-1], digest)
    own = _own(wal)
    wanted = own.join(_committed(own), "epoch", how="inner").where(f.col("seq") <= f.col("upto"))
    asked = _asked(wanted.select("*", digest), remote, trimmed_to, "last_seq")
    return runs_of(asked).select("block", *same, *KEY).join(there, same, how="left_anti").select("epoch", "block", *KEY)


def not_in_remote(
    wal: DataFrame, wal_limits: DataFrame, remote: DataFrame, faults: DataFrame, trimmed_to: int | None, differing: DataFrame
) -> DataFrame:
    """NOT_IN_REMOTE, one for each stretch of frames; DIFFERS, one for each frame.

    `wal_limits`: `log_chain.chains` with `limit`, how far each stands. `faults`: findings of the logs themselves, which account
    for what they name. `trimmed_to` None: not known; then what lies below all that is left of an epoch counts as trimmed.
    `differing`: of both logs; it is small.
    """
    wanted = _wanted(wal, wal_limits, differing)
    blocks = f.broadcast(differing.select("epoch", "block").distinct())
    there = frames_of(remote, runs_of(remote).join(blocks, ["epoch", "block"], how="left_semi").select(*KEY))
    lacking = wanted.join(there.select("epoch", "seq", "last_seq", "crc"), ["epoch", "seq", "last_seq", "crc"], how="left_anti")
    lacking = _asked(lacking, remote, trimmed_to, "seq")
    named = faults.select(f.col("seq").alias("lost"), f.col("last_seq").alias("lost_to"))
    lacking = lacking.join(
        f.broadcast(named), (f.col("lost") <= f.col("last_seq")) & (f.col("lost_to") >= f.col("seq")), how="left_anti"
    )
    other = there.select("epoch", "seq", f.lit(True).alias("other")).distinct()
    return _found(lacking.join(other, ["epoch", "seq"], how="left"))


def contradicting(wal: DataFrame, remote: DataFrame) -> DataFrame:
    """DIFFERS: asynchronous frames of the WAL that the remote log holds with other bytes. It need not hold them at all."""
    same = ["epoch", "seq", "last_seq", "frames", "digest"]
    digest = f.xxhash64("crcs").alias("digest")
    there = remote.where(f.col("entry") == RUN).select(*same[:-1], digest)
    own = wal.where((f.col("entry") == RUN) & (f.col("epoch") == f.col("segment_epoch")) & ~is_sync()).select("*", digest)
    suspects = runs_of(own.join(there, same, how="left_anti")).alias("own")
    others = runs_of(remote).alias("there")
    overlaps = (f.col("own.seq") <= f.col("there.last_seq")) & (f.col("there.seq") <= f.col("own.last_seq"))
    in_block = (f.col("own.epoch") == f.col("there.epoch")) & (f.col("own.block") == f.col("there.block"))
    met = suspects.join(others, in_block & overlaps, how="inner")
    frames = frames_of(own.drop("digest"), met.select(*(f.col(f"own.{name}").alias(name) for name in KEY)).distinct())
    far = frames_of(remote, met.select(*(f.col(f"there.{name}").alias(name) for name in KEY)).distinct())
    claimed = far.select("epoch", "seq", f.col("crc").alias("far_crc")).distinct()
    detail = f.format_string("the remote log holds sequence %d of epoch %d with other bytes", "seq", "epoch")
    return (
        frames.join(claimed, ["epoch", "seq"], how="inner").where(f.col("crc") != f.col("far_crc"))
        .select(f.lit(DIFFERS).alias("kind"), "ordinal", "offset", "seq", "last_seq", detail.alias("detail")).distinct()
    )


def _own(wal: DataFrame) -> DataFrame:
    """Runs that this writer made synchronously, so that they are in its remote log."""
    return wal.where((f.col("entry") == RUN) & (f.col("epoch") == f.col("segment_epoch")) & is_sync())


def _committed(own: DataFrame) -> DataFrame:
    """`upto`: what the frames of each epoch say was committed in both logs."""
    return f.broadcast(own.groupBy("epoch").agg(f.max("committed").alias("upto")))


def _asked(runs: DataFrame, remote: DataFrame, trimmed_to: int | None, above: str) -> DataFrame:
    """Those that were not trimmed; of runs: those with a part left. `above`: their end that lies above what was, then."""
    if trimmed_to is not None:
        return runs.where(f.col("last_seq") > trimmed_to)
    floors = remote.where(f.col("entry") == SEGMENT).groupBy("segment_epoch").agg(f.min("seq").alias("floor"))
    named = floors.withColumnRenamed("segment_epoch", "floor_epoch")
    kept = runs.join(f.broadcast(named), f.col("epoch") == f.col("floor_epoch"), how="inner")
    return kept.where(f.col(above) >= f.col("floor")).drop("floor", "floor_epoch")


def _wanted(wal: DataFrame, limits: DataFrame, differing: DataFrame) -> DataFrame:
    """Standing frames that a synchronous frame of the same epoch says were committed: by this writer, so in its remote log."""
    own = _own(wal)
    cut = limits.where(f.col("limit") < f.col("last_seq")).select(
        "epoch", f.col("seq").alias("run"), f.col("last_seq").alias("run_last"), "limit"
    )
    falls = (f.col("frame.last_seq") > f.col("limit")) & f.col("frame.seq").between(f.col("run"), f.col("run_last"))
    return (
        frames_of(own, differing.select(*KEY))
        .select("epoch", "seq", "last_seq", "previous", "crc", *KEY)
        .join(_committed(own), "epoch", how="inner")
        .where(f.col("last_seq") <= f.col("upto"))
        .alias("frame")
        .join(f.broadcast(cut).alias("cut"), (f.col("frame.epoch") == f.col("cut.epoch")) & falls, how="left_anti")
        .drop("upto")
    )


def _found(lacking: DataFrame) -> DataFrame:
    """One for each frame that differs, and one for each stretch of frames that are absent."""
    order = Window.partitionBy("epoch").orderBy("seq")
    begins = f.col("other").isNotNull() | f.coalesce(f.col("previous") != f.lag("last_seq").over(order), f.lit(True))
    grouped = (
        lacking.withColumn("stretch", f.sum(begins.cast("int")).over(order))
        .groupBy("epoch", "other", "stretch")
        .agg(f.min(f.struct("seq", "ordinal", "offset")).alias("at"), f.max("last_seq").alias("last_seq"),
             f.count("*").alias("frames"))
    )
    different = f.format_string("the remote log holds sequence %d of epoch %d with other bytes", "at.seq", "epoch")
    absent = f.format_string(
        "%d committed frames of epoch %d, sequences %d to %d, are not in the remote log", "frames", "epoch", "at.seq",
        "last_seq",
    )
    differs = f.col("other").isNotNull()
    return grouped.select(
        f.when(differs, DIFFERS).otherwise(NOT_IN_REMOTE).alias("kind"), "at.ordinal", "at.offset", "at.seq", "last_seq",
        f.when(differs, different).otherwise(absent).alias("detail"),
    )


def resynced(wal: DataFrame) -> DataFrame:
    """`upto`: the end of what was acknowledged asynchronously in an epoch that is synchronous again later; null: none was.
    The other site held it durably by then (gateway/epoch/modes.py), so the remote log need not have it, nor anything below it.
    What was logged while the epoch changed back is in both logs; a hole there is only found with `durable_seq`."""
    own = wal.where((f.col("entry") == RUN) & (f.col("epoch") == f.col("segment_epoch")))
    again = f.broadcast(own.where(is_sync()).groupBy("epoch").agg(f.max("seq").alias("again")))
    before = own.where(~is_sync()).join(again, "epoch", how="inner").where(f.col("seq") < f.col("again"))
    return before.agg(f.max("last_seq").alias("upto"))


def behind_storage(linked: DataFrame, applied_seq: int) -> DataFrame:
    """BEHIND_STORAGE: the WAL of an active ends below what its storage had applied before the WAL was read."""
    end = linked.agg(f.max_by(f.struct("at", "at_end", "upto"), f.struct("epoch", "seq")).alias("end")).select("end.*")
    return end.where(f.col("upto") < applied_seq).select(
        f.lit(BEHIND_STORAGE).alias("kind"), f.col("at").alias("ordinal"), f.col("at_end").alias("offset"),
        (f.col("upto") + 1).alias("seq"), f.lit(applied_seq).cast("long").alias("last_seq"),
        f.format_string(
            "the log ends with sequence %d, and the storage of this site has applied up to %d", "upto", f.lit(applied_seq)
        ).alias("detail"),
    )


def trimmed_early(linked: DataFrame, durable_seq: int, log: str) -> DataFrame:
    """TRIMMED_EARLY: a log, named `log`, begins above what the other site holds durably."""
    begin = linked.agg(f.min_by(f.struct("first", "previous"), f.struct("epoch", "seq")).alias("begin")).select("begin.*")
    return begin.where(f.col("previous") > durable_seq).select(
        f.lit(TRIMMED_EARLY).alias("kind"), f.col("first.ordinal").alias("ordinal"), f.col("first.offset").alias("offset"),
        f.lit(durable_seq + 1).cast("long").alias("seq"), f.col("previous").alias("last_seq"),
        f.format_string(
            f"the {log} begins after sequence %d, and the site that follows it holds durably only up to %d", "previous",
            f.lit(durable_seq),
        ).alias("detail"),
    )
