"""Idle gateways are compared with the beginning, and a process that lives long with itself when it was warm."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from chaos.harness.pair.files.footprint import DATABASE, HDFS, LOG, OTHER, SELECTOR, SOCKET, STORAGE, Footprint
from chaos.harness.pair.samples import CACHES, Sample
from chaos.harness.resources import LIFE_S, MORE, MORE_THREADS, MORE_THREADS_HDFS, MOST, WAL_BYTES_MAX, excess, memory

HELD = Footprint(10, 1, 100 << 20, 14, {OTHER: 18, SOCKET: 7, STORAGE: 8}, wal_bytes=1000, dfs_bytes=1000)
BEFORE = [Sample("a", 1.0, "ACTIVE", held=HELD), Sample("b", 1.0, "STANDBY", held=HELD)]


def of(held: Footprint) -> list[str]:
    return excess(BEFORE, [BEFORE[0], Sample("b", 9.0, "ACTIVE", held=held)])


def test_one_descriptor_more_than_at_the_beginning_is_too_much() -> None:
    assert not of(HELD)
    assert MORE[OTHER] == 0
    assert of(replace(HELD, open_files={**HELD.open_files, OTHER: 19})) == [
        "site b (ACTIVE) holds 19 descriptors of others, and 18 at the beginning",
    ]


def test_what_is_too_much_is_named() -> None:
    before = replace(HELD, names={OTHER: ["/dev/null", "pipe", "pipe"]})
    names = ["/dev/null", "/tmp/x.jar", "pipe", "pipe", "pipe"]
    held = replace(HELD, open_files={**HELD.open_files, OTHER: 20}, names={OTHER: names})
    (said,) = excess([Sample("a", 1.0, "ACTIVE", held=before)], [Sample("a", 9.0, "ACTIVE", held=held)])
    assert said == "site a (ACTIVE) holds 20 descriptors of others, and 18 at the beginning: /tmp/x.jar, pipe"


def test_what_another_release_held_is_no_measure_and_bounds_stay() -> None:
    more = {OTHER: 40, LOG: MOST[LOG] + 1}
    held = replace(HELD, threads=99, open_files=more)
    assert len(excess([], [Sample("b", 9.0, "ACTIVE", held=held)])) == 1


def test_selectors_of_a_client_that_keeps_them_come_up_to_a_bound() -> None:
    """Two runs on HDFS began with 9 to 13 of them, and ended with 11 to 13."""
    assert not of(replace(HELD, open_files={**HELD.open_files, SELECTOR: MORE[SELECTOR]}))
    assert len(of(replace(HELD, open_files={**HELD.open_files, SELECTOR: MORE[SELECTOR] + 1}))) == 1


def test_files_of_logs_and_of_the_storage_come_and_go_up_to_a_bound() -> None:
    assert not of(replace(HELD, open_files={**HELD.open_files, LOG: MOST[LOG], STORAGE: MOST[STORAGE]}))
    assert len(of(replace(HELD, open_files={**HELD.open_files, LOG: MOST[LOG] + 1, STORAGE: MOST[STORAGE] + 1}))) == 2


def test_connections_to_servers_come_up_to_a_bound_and_are_no_other_sockets() -> None:
    """The pool of an engine begins with one or two connections; three more were called a leak of sockets once."""
    assert not of(replace(HELD, open_files={**HELD.open_files, DATABASE: MOST[DATABASE], HDFS: MOST[HDFS]}))
    assert of(replace(HELD, open_files={**HELD.open_files, DATABASE: MOST[DATABASE] + 1, HDFS: MOST[HDFS] + 1})) == [
        "site b (ACTIVE) holds 14 descriptors of connections to the database, more than 13",
        "site b (ACTIVE) holds 7 descriptors of connections to HDFS, more than 6",
    ]


def test_threads_and_files_have_bounds() -> None:
    assert not of(replace(HELD, threads=HELD.threads + MORE_THREADS, wal_bytes=WAL_BYTES_MAX))
    assert of(replace(HELD, threads=HELD.threads + MORE_THREADS + 1, wal_bytes=WAL_BYTES_MAX + 1)) == [
        "site b (ACTIVE) holds 21 threads, and 14 at the beginning",
        f"site b (ACTIVE) holds {WAL_BYTES_MAX + 1:,} bytes in its WAL, more than {WAL_BYTES_MAX:,}",
    ]


def test_a_gateway_on_hdfs_may_hold_more_threads_up_to_a_bound() -> None:
    """One ended with 51, and had begun with 44: its pools were warm."""
    on_hdfs = replace(HELD, open_files={**HELD.open_files, HDFS: 2})
    most = HELD.threads + MORE_THREADS + MORE_THREADS_HDFS
    assert not of(replace(on_hdfs, threads=most))
    assert len(of(replace(on_hdfs, threads=most + 1))) == 1


def life(mib: list[tuple[float, int]], pid: int = 10) -> list[Sample]:
    return [Sample("a", at_s, "ACTIVE", held=replace(HELD, pid=pid, memory_bytes=size << 20)) for at_s, size in mib]


def test_memory_that_grows_when_the_process_is_warm_is_found() -> None:
    steady = [(float(at_s), 150 if at_s > 30 else 90) for at_s in range(int(LIFE_S) + 1)]
    assert memory(life(steady)) == ([], 1)
    growing = [(at_s, int(100 + at_s)) for at_s, _ in steady]
    assert "held 165 MiB beside its caches 60 s after its start, and 215 MiB 120 s" in memory(life(growing))[0][0].sentence


def filling(full_s: float, leak_mib: float = 0.0, cache: str = "engine_cache_bytes") -> list[Sample]:
    """Twenty minutes of a process whose cache takes all of its bound by `full_s`, and that leaks so much until its end."""
    looks = []
    for at_s in range(0, 1200, 5):
        cached = int(CACHES[cache] * min(1.0, at_s / full_s))
        size = (170 << 20) + cached + int(leak_mib * (1 << 20) * at_s / 1200)
        looks.append(Sample("a", at_s, "ACTIVE", held=replace(HELD, memory_bytes=size), caches={cache: cached}))
    return looks


@pytest.mark.parametrize("cache", CACHES)
def test_a_cache_that_fills_is_no_leak_and_hides_none(cache: str) -> None:
    assert memory(filling(600.0, cache=cache)) == ([], 1)
    assert len(memory(filling(600.0, 20.0, cache))[0]) == 1


def test_a_cache_explains_no_more_than_its_bound() -> None:
    beyond = [replace(look, caches={name: 4 * size for name, size in look.caches.items()}) for look in filling(60.0, 40.0)]
    assert len(memory(beyond)[0]) == 1


def test_what_an_emptied_cache_took_stays_with_its_process() -> None:
    looks = filling(600.0)
    emptied = [replace(look, caches={"engine_cache_bytes": 0}) if look.at_s > 700 else look for look in looks]
    silent = [replace(look, role="silent", caches={}) if look.at_s > 900 else look for look in emptied]
    assert memory(silent) == ([], 1)


def test_a_process_that_lived_for_a_short_time_is_not_judged() -> None:
    growing = [(float(at_s), 100 + 10 * at_s) for at_s in range(int(LIFE_S) - 1)]
    later = [(LIFE_S + at_s, size) for at_s, size in growing]
    assert memory([*life(growing), *life(later, pid=11)]) == ([], 0), "two lives are not one"
