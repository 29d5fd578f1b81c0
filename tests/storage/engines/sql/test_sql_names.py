"""No name of a table or column is refused by a database, or met as something else: every word of both, and mixtures."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.engines.sql.names import NAME_BYTES_MAX, column_names, table_names
from storage.rows.schema import NAME, Column
from tests.storage.engines.sql.names_rig import OURS, SQLITE_CATALOG, SQLITE_KEYWORDS, Lives, Look, all_words
from tests.storage.engines.sql.rig import PostgresRig, SqliteRig, a_database, postgres

COLUMNS = 120
DATABASES = ("postgresql", "sqlite")
WORDS = sorted({*SQLITE_KEYWORDS, *SQLITE_CATALOG, *OURS, "pg_class", "pg_user", "user", "collation", "lateral"})


def looking(connection: Any) -> Look:
    def look(query: str) -> tuple[Sequence[str], list[tuple[Any, ...]]]:
        found = connection.execute(query)
        return [column[0] for column in found.description], found.fetchall()

    return look


@asynccontextmanager
async def a_life(kind: str) -> AsyncIterator[Lives]:
    """An empty database of this kind, with its engine."""
    if kind == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            rig = await SqliteRig.make(Path(folder) / "made")
            with closing(sqlite3.connect(Path(folder) / "made" / "0" / "rows.db", isolation_level=None)) as connection:
                yield Lives(rig.engine, looking(connection))
            await rig.engine.close()
        return
    with a_database() as name:
        made = await PostgresRig.make(name)
        with postgres().connect(name) as connection:
            yield Lives(made.engine, looking(connection))
        await made.engine.close()


@pytest.mark.long
@pytest.mark.parametrize("kind", DATABASES)
async def test_every_word_of_both_databases_is_a_table(kind: str) -> None:
    words = iter(all_words())
    async with a_life(kind) as lives:
        while group := list(islice(words, 150)):
            await lives.live((word, ["k"]) for word in group)


@pytest.mark.parametrize("kind", DATABASES)
async def test_every_word_of_both_databases_is_a_column(kind: str) -> None:
    words = iter(all_words())
    async with a_life(kind) as lives:
        while group := list(islice(words, COLUMNS)):
            await lives.live([(group[0], group)])


def mixed() -> st.SearchStrategy[str]:
    """Names that are close to each other, to words of a database, and to what is made of a name that it does not take."""
    ends = st.sampled_from(["", "_1", "_2", "_3", "_1_2", "_"])
    starts = st.sampled_from(["", "", "t_", "twinlog_", "pg_", "sqlite_"])
    made = st.builds(lambda start, word, end: start + word + end, starts, st.sampled_from(WORDS), ends)
    long = made.map(lambda name: name.ljust(70, "x"))
    either = st.one_of(made, made, long)
    return st.builds(lambda name, upper: name.upper() if upper else name, either, st.booleans())


groups = st.lists(st.tuples(mixed(), st.lists(mixed(), min_size=1, max_size=8, unique=True)), min_size=1, max_size=5)


@pytest.mark.parametrize("kind", DATABASES)
@given(lives=st.lists(groups, min_size=1, max_size=3))
@settings(max_examples=15, deadline=None)
def test_any_mixture_lives(kind: str, lives: list[list[tuple[str, list[str]]]]) -> None:
    async def run() -> None:
        async with a_life(kind) as one:
            for group in lives:
                await one.live({name: columns for name, columns in group}.items())

    asyncio.run(run())


@given(wanted=st.lists(mixed(), min_size=1, max_size=30, unique=True), fold=st.booleans())
def test_names_of_columns_fit_and_differ(wanted: list[str], fold: bool) -> None:
    names = column_names([Column(number, name, "int32", True) for number, name in enumerate(wanted, 1)], fold)
    assert all(NAME.fullmatch(name) for name in names.values())
    assert max(map(len, names.values())) <= NAME_BYTES_MAX
    assert len({name.lower() if fold else name for name in names.values()}) == len(wanted)


def test_names_that_end_like_those_that_are_made_lead_somewhere() -> None:
    """Each name that is made of the last column is taken by another one: as many as there are, the next one is free."""
    stem = "x" * 30 + "_1000"
    wanted = [stem, *(f"{stem}_{n}" for n in range(2, 900)), "x" * 100]
    columns = [Column(number, name, "int32", True) for number, name in enumerate(wanted[:-1], 1)]
    names = column_names([*columns, Column(1000, wanted[-1], "int32", True)], fold=True)
    assert names[1000] == f"{stem}_900"


@given(wanted=mixed(), number=st.integers(0, (1 << 64) - 1))
def test_names_of_tables_fit(wanted: str, number: int) -> None:
    names = list(islice(table_names(wanted, number), 20))
    assert len(set(names)) == len(names)
    for name in names:
        assert NAME.fullmatch(name)
        assert len(name) <= NAME_BYTES_MAX
        assert not name.lower().startswith(("twinlog_", "pg_", "sqlite_", "pragma_"))
        assert name.lower() != "excluded"


async def test_a_type_of_somebody_else_is_left_alone() -> None:
    with a_database() as name, postgres().connect(name) as connection:
        connection.execute("CREATE TYPE mood AS ENUM ('good')")
        made = await PostgresRig.make(name)
        await Lives(made.engine, looking(connection)).live([("mood", ["k", "mood"]), ("_mood", ["k"])])
        await made.engine.close()


async def test_a_search_path_that_changes_later_leads_nobody_away() -> None:
    """A schema with the user's name comes first in PostgreSQL's search path, once it is there: also under a running gateway."""
    with a_database() as name, postgres().connect(name) as connection:
        made = await PostgresRig.make(name)
        connection.execute("CREATE SCHEMA AUTHORIZATION current_user")
        await Lives(made.engine, looking(connection)).live([("flights", ["k", "carrier"])])
        await made.engine.reopen()
        assert made.engine.applied.seq > 0
        await made.engine.close()
