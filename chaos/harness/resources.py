"""The gateways of an idle pair hold no more at the end than at the beginning, but for what was seen to grow.

What always holds: both looks are at a pair that is whole and idle, with nobody connected but the harness; the last one waits
until what is under way has ended. Memory is judged of a process that has lived long enough to have warmed up, and of no other.
Source: bounds measured on 2026-11-24, docs/decisions/2026-11-24-what-a-site-says-and-holds.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from chaos.checkers.violation import Violation
from chaos.harness.pair.files.footprint import DATABASE, DELETED, HDFS, LOG, OTHER, SELECTOR, SOCKET, STORAGE, Footprint
from chaos.harness.pair.samples import CACHES, Sample
from chaos.harness.pair.sites import SEGMENT_BYTES
from gateway.service.as_of import SNAPSHOTS_MAX

NAME, MEMORY = "resources", "memory"
MORE: Mapping[str, int] = {  # than at the beginning
    OTHER: 0, DELETED: 0,
    SOCKET: 2,  # the sites keep some to each other
    SELECTOR: 8,  # Hadoop's client keeps two for each thread that ever waited beside others
}
MOST: Mapping[str, int] = {  # of kinds that come and go with the work
    LOG: 4, STORAGE: 60,
    # The one that writes, four idle ones in the engine's pool (storage/engines/sql/opening.py), and the snapshots of scans that
    # nobody has read to their end, which are kept for ten minutes (gateway/service/as_of.py).
    DATABASE: 5 + SNAPSHOTS_MAX,
    HDFS: 6,  # one to each NameNode, which it closes when idle, and one for each file that is written; 2 to 5 were seen
}
MORE_THREADS = 6  # pools of threads grow to their limit as work comes
# Beside these, on HDFS: four idle workers for each of both, two of Hadoop's for a second open file, and compilers of Java.
MORE_THREADS_HDFS = 12
WAL_BYTES_MAX = 2 * SEGMENT_BYTES
DFS_BYTES_MAX = 2 * SEGMENT_BYTES
WARM_S, LIFE_S, ABOUT_S = 60.0, 120.0, 10.0  # from here on a process is warm; it is judged from this age on; of so much time
NAMED_MAX = 5
MEMORY_BYTES_MAX = 16 << 20  # more beside its caches than when it was warm


def excess(before: Sequence[Sample], after: Sequence[Sample]) -> list[str]:
    """Sentences of what is too much. `before`, `after`: one look at each site; the roles may have changed. `before` is empty
    where the sites began with another release: what that one held is no measure."""
    first = [sample.held for sample in before if sample.held is not None]
    return [
        f"site {sample.site} ({sample.role}) holds {told}" for sample in after if sample.held is not None
        for told in _too_much(first, sample.held)
    ]


def _too_much(first: Sequence[Footprint], held: Footprint) -> Iterator[str]:
    for kind, more in MORE.items() if first else ():
        had, has = max(each.open_files.get(kind, 0) for each in first), held.open_files.get(kind, 0)
        if has > had + more:
            yield f"{has} descriptors of {kind}, and {had} at the beginning{_new(kind, first, held)}"
    for kind, most in MOST.items():
        if held.open_files.get(kind, 0) > most:
            yield f"{held.open_files[kind]} descriptors of {kind}, more than {most}"
    threads = max((each.threads for each in first), default=held.threads)
    is_on_hdfs = any(HDFS in each.open_files for each in (*first, held))
    if held.threads > threads + MORE_THREADS + (MORE_THREADS_HDFS if is_on_hdfs else 0):
        yield f"{held.threads} threads, and {threads} at the beginning"
    for what, size, most in (("in its WAL", held.wal_bytes, WAL_BYTES_MAX), ("on its DFS", held.dfs_bytes, DFS_BYTES_MAX)):
        if size > most:
            yield f"{size:,} bytes {what}, more than {most:,}"


def _new(kind: str, first: Sequence[Footprint], held: Footprint) -> str:
    """Returns the names that no site held at the beginning, or fewer times."""
    had: Counter[str] = Counter()
    for each in first:
        had |= Counter(each.names.get(kind, ()))
    new = sorted((Counter(held.names.get(kind, ())) - had).elements())
    return f": {', '.join(new[:NAMED_MAX])}" if new else ""


class _Life:
    """Keeps what one process held at each look, beside the most that its caches had held by then. A cache that was emptied
    counts on: its memory stays with the process, for what it holds next."""

    def __init__(self) -> None:
        self._caches: dict[str, int] = {}
        self.held: list[tuple[float, int]] = []

    def look(self, sample: Sample, held: Footprint) -> None:
        """A cache never explains more than its bound."""
        for name, size in sample.caches.items():
            self._caches[name] = max(self._caches.get(name, 0), min(size, CACHES[name]))
        self.held.append((sample.at_s, held.memory_bytes - sum(self._caches.values())))


def memory(samples: Sequence[Sample]) -> tuple[list[Violation], int]:
    """Compares what each process that lived long enough held beside its caches once it was warm and at its end; and counts
    them."""
    lives: dict[tuple[str, int, int], _Life] = {}
    for sample in samples:
        if sample.held is not None:
            lives.setdefault((sample.site, sample.held.pid, sample.held.begun), _Life()).look(sample, sample.held)
    found, judged = [], 0
    for (site, _, _), life in lives.items():
        held = life.held
        begun_s, ended_s = held[0][0], held[-1][0]
        if ended_s - begun_s < LIFE_S:
            continue
        judged += 1
        warm = median(size for at_s, size in held if begun_s + WARM_S <= at_s <= begun_s + WARM_S + ABOUT_S)
        last = median(size for at_s, size in held if at_s >= ended_s - ABOUT_S)
        if last > warm + MEMORY_BYTES_MAX:
            sentence = (
                f"The gateway of site {site} held {warm / (1 << 20):.0f} MiB beside its caches {WARM_S:.0f} s after its start,"
                f" and {last / (1 << 20):.0f} MiB {ended_s - begun_s:.0f} s after it."
            )
            found.append(Violation("I6", MEMORY, sentence, (), (begun_s + WARM_S, ended_s)))
    return found, judged
