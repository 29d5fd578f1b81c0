"""Snapshots that can be compared, and those that are refused: other moments, other schemas."""

from __future__ import annotations

import msgspec
import pytest

from spark_jobs.compare.checks import check_moments, choose
from spark_jobs.job import Barrier
from spark_jobs.snapshots.snapshot import SnapshotCatalog
from storage.rows.schema import TableSchema, alter
from tests.spark_jobs.snapshots.snapshot_rig import table
from twinlog.errors import NotFound, Refused

NAMES = ("north", "south")


def catalog(*schemas: TableSchema, seq: int = 9, epoch: int = 2) -> SnapshotCatalog:
    return SnapshotCatalog(seq, epoch, {schema.id: schema for schema in schemas})


@pytest.mark.parametrize(("source", "peer", "barrier"), [
    ((9, 2), (8, 2), None), ((9, 2), (9, 1), None), ((9, 2), (9, 2), Barrier("b", 2, 8)), ((9, 2), (9, 2), Barrier("b", 3, 9)),
])
def test_other_moments_are_refused(source: tuple[int, int], peer: tuple[int, int], barrier: Barrier | None) -> None:
    one, other = (catalog(seq=seq, epoch=epoch) for seq, epoch in (source, peer))
    with pytest.raises(Refused, match=r"north's is at sequence 9 of epoch 2, south's at .* take a new barrier"):
        check_moments(one, other, barrier, NAMES)


def test_the_same_moment_is_fine() -> None:
    check_moments(catalog(), catalog(), Barrier("b", 2, 9), NAMES)
    check_moments(catalog(), catalog(), None, NAMES)


def test_tables_of_one_site_are_compared_and_local_ones_are_not() -> None:
    both, ours, theirs, local = table(1), table(2), table(3), table(4, replication="local")
    chosen = choose(catalog(both, ours, local), catalog(both, theirs), (), NAMES)
    assert list(chosen.tables) == [1, 2, 3]
    assert (chosen.source_only, chosen.peer_only, chosen.local) == ({2}, {3}, ("table4",))
    assert list(choose(catalog(both, ours), catalog(both, theirs), ("table3", "table1"), NAMES).tables) == [1, 3]


def test_a_table_that_nobody_has() -> None:
    with pytest.raises(NotFound, match="no table 'x' on either site; there are table1, table2"):
        choose(catalog(table(1)), catalog(table(2)), ("table1", "x"), NAMES)


def test_drift_names_tables_and_columns() -> None:
    source, peer = table(1), alter(table(1), {"add": [{"name": "gate", "type": "string"}], "rename": {"text": "words"}})
    with pytest.raises(Refused, match="different schemas") as raised:
        choose(catalog(source, table(2)), catalog(peer, table(2)), (), NAMES)
    for said in (
        "table 'table1'", "column 'gate' only on south",
        "column 'text' is string, default None on north, 'words', string, default None on south",
        "revision is 1 on north, 2 on south",
    ):
        assert said in raised.value.message
    assert "table2" not in raised.value.message
    assert choose(catalog(source, table(2)), catalog(peer, table(2)), ("table2",), NAMES).tables == {2: table(2)}


def test_drift_of_types_keys_and_order() -> None:
    one = table(1)
    first, second = one.columns
    narrow = msgspec.structs.replace(one, columns=(first, msgspec.structs.replace(second, type="bytes", nullable=False)))
    turned = msgspec.structs.replace(one, columns=(second, first))
    kept = msgspec.structs.replace(one, history_s=5)
    for peer, said in (
        (narrow, "column 'text' is string, default None on north, bytes not null, default None on south"),
        (turned, "the columns are in another order"), (kept, "history_s is 0 on north, 5 on south"),
    ):
        with pytest.raises(Refused, match=said):
            choose(catalog(one), catalog(peer), (), NAMES)
