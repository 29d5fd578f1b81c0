"""The order in which xdist's workers take the tests: what takes minutes begins first, and what shares a server stays at one.

A run is as long as its last worker. xdist gives each worker an equal share of the tests as they were collected, so one of four
minutes that stands near the end of a share kept one worker busy while the others, and most of the machine, had nothing left.
What stands near the end is also stolen by all, so each of them started a Java for a few tests of Spark.
What always holds: every test that was collected is given out once, to whichever worker; nothing but the order differs.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdist.scheduler import WorkStealingScheduling

# Beginnings of names of tests, the longest first: those that take more than a minute and a half of a run of the whole suite.
LONGEST = (
    "tests/tools/test_audit_story.py",
    "tests/test_readme.py::test_the_tour",
    "tests/chaos/harness/incident/test_whole.py",
    "tests/chaos/simulate/test_aims.py",
    "tests/chaos/harness/pair/test_run_parts.py",
    "tests/tools/test_log_story.py",
    "tests/spark_jobs/audit/test_spark_cluster.py",
)


# Each of these rooms shares a server that is slow to start, Spark's Java or a real HDFS: one worker has all of its tests.
TOGETHER = (
    ("tests/spark_jobs/",),
    (
        "tests/remote_log/dfs/hdfs/", "tests/pair/parts/test_hdfs", "tests/gateway/backup/test_on_hdfs.py",
        "tests/chaos/servers/test_hdfs_cluster.py",
    ),
)


def dealt(names: Sequence[str], workers: int) -> list[int]:
    """The places of all `names` in the order in which xdist shares them out in equal parts: some parts begin with the tests of
    one room of TOGETHER, the others with the longest tests."""
    longest = [place for first in LONGEST for place, name in enumerate(names) if name.startswith(first)]
    taken, parts = set(longest), [list[int]() for _ in range(workers)]
    for number, room in enumerate(TOGETHER):
        found = [place for place, name in enumerate(names) if name.startswith(room) and place not in taken]
        parts[number % workers] += found
        taken.update(found)
    free = [part for part in parts if not part] or parts
    for number, place in enumerate(longest):
        free[number % len(free)].append(place)
    rest = iter([place for place in range(len(names)) if place not in taken])
    order: list[int] = []
    for worker, part in enumerate(parts):
        size = (len(names) - len(order)) // (workers - worker)
        order += part + [place for _, place in zip(range(size - len(part)), rest, strict=False)]
    return order + list(rest)


class LongestFirst(WorkStealingScheduling):
    """xdist's own scheduler for `--dist worksteal`, with another order at its beginning."""

    _is_dealt = False

    def check_schedule(self) -> None:
        """Called by xdist whenever a worker may want tests; the first time with all of them pending."""
        if self.collection and not self._is_dealt:
            self._is_dealt = True
            self.pending[:] = dealt(self.collection, len(self.node2pending))
        super().check_schedule()
