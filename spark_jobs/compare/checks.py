"""Checks that two snapshots can be compared: taken at the same barrier, of the same tables.

What always holds: what is compared has one schema on both sites; anything else is an error that names table and columns, not
a difference, for rows of different schemas cannot be distinguished from damaged ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from spark_jobs.job import Barrier
from spark_jobs.snapshots.snapshot import SnapshotCatalog
from storage.rows.schema import Column, TableSchema
from twinlog.errors import NotFound, Refused

LOCAL = "local"
_SHOWN_MAX = 20


@dataclass(frozen=True, slots=True)
class Chosen:
    """The tables to compare, by id. `source_only` and `peer_only` are on one site only; `local` are not compared."""

    tables: dict[int, TableSchema]
    source_only: frozenset[int]
    peer_only: frozenset[int]
    local: tuple[str, ...]


def check_moments(source: SnapshotCatalog, peer: SnapshotCatalog, barrier: Barrier | None, names: tuple[str, str]) -> None:
    """Raises Refused unless both snapshots are of the same moment, that of `barrier`. `names` of source and peer."""
    moments = {(source.seq, source.epoch), (peer.seq, peer.epoch)}
    if barrier is not None:
        moments.add((barrier.seq, barrier.epoch))
    if len(moments) > 1:
        at = "" if barrier is None else f", and barrier {barrier.name} is at sequence {barrier.seq} of epoch {barrier.epoch}"
        raise Refused(
            f"the snapshots are not of one moment: {names[0]}'s is at sequence {source.seq} of epoch {source.epoch}, "
            f"{names[1]}'s at {peer.seq} of {peer.epoch}{at}; take a new barrier"
        )


def choose(source: SnapshotCatalog, peer: SnapshotCatalog, wanted: Sequence[str], names: tuple[str, str]) -> Chosen:
    """The tables named `wanted`, or all. Raises NotFound for a name that neither site has, Refused when schemas differ."""
    both = {**peer.tables, **source.tables}
    known = {schema.name for catalog in (source, peer) for schema in catalog.tables.values()}
    unknown = [name for name in wanted if name not in known]
    if unknown:
        there = ", ".join(sorted(known)[:_SHOWN_MAX]) or "none"
        raise NotFound(f"there is no table {', '.join(map(repr, unknown))} on either site; there are {there}")
    chosen = {
        number: schema for number, schema in sorted(both.items())
        if not wanted or {schema.name, peer.tables.get(number, schema).name} & set(wanted)
    }
    drifted = [
        f"table {source.tables[number].name!r}: {'; '.join(drift(source.tables[number], peer.tables[number], names))}"
        for number in chosen
        if number in source.tables and number in peer.tables and source.tables[number] != peer.tables[number]
    ]
    if drifted:
        raise Refused(
            f"the sites have different schemas at the same sequence: {' | '.join(drifted[:_SHOWN_MAX])}; "
            "the storage of one of them is damaged: load it anew from its peer"
        )
    local = tuple(schema.name for schema in chosen.values() if schema.replication == LOCAL)
    tables = {number: schema for number, schema in chosen.items() if schema.replication != LOCAL}
    return Chosen(
        tables, frozenset(tables.keys() - peer.tables.keys()), frozenset(tables.keys() - source.tables.keys()), local
    )


def drift(source: TableSchema, peer: TableSchema, names: tuple[str, str]) -> Iterator[str]:
    """Yields the differences between two schemas of one table, in words."""
    ours, theirs = ({column.id: column for column in schema.columns} for schema in (source, peer))
    for number in sorted(ours.keys() | theirs.keys()):
        one, other = ours.get(number), theirs.get(number)
        if one is None or other is None:
            there = one or other
            assert there is not None
            yield f"column {there.name!r} only on {names[other is not None]}"
        elif one != other:
            yield f"column {one.name!r} is {_words(one)} on {names[0]}, {_words(other, one.name)} on {names[1]}"
    for field in msgspec.structs.fields(TableSchema):
        here, there_value = getattr(source, field.name), getattr(peer, field.name)
        if field.name != "columns" and here != there_value:
            yield f"{field.name} is {here!r} on {names[0]}, {there_value!r} on {names[1]}"
    if list(ours) != list(theirs) and ours.keys() == theirs.keys():
        yield "the columns are in another order"


def _words(column: Column, known_as: str = "") -> str:
    named = f"{column.name!r}, " if known_as and column.name != known_as else ""
    return f"{named}{column.type}{'' if column.nullable else ' not null'}, default {column.default!r}"
