"""Figures of tables at two real sites: each says what both have, and what it cannot know."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.table_figures.asking import figures_of
from gateway.table_figures.documents import OtherTableDocument, TableFiguresDocument
from gateway.table_figures.kept import KeptTables
from remote_log.replication.messages import ReplicateRequest
from tests.pair.pair import Pair
from tests.pair.pair_rig import TABLE, caught_up, open_pair, put, site
from twinlog.errors import Unavailable


async def figures(pair: Pair, name: str) -> TableFiguresDocument:
    service = pair.running[name].service
    return await figures_of(service, service.tables.get("t"))


async def test_both_sites_say_the_same_of_a_table_until_one_is_away(tmp_path: Path) -> None:
    async with open_pair(tmp_path) as pair:
        for key in range(3):
            await put(pair, "a", key, "x")
        await pair.running["a"].service.tables.alter("t", {"add": [{"name": "more", "type": "string"}]})
        await pair.until(lambda: caught_up(pair, "a", "b"))
        at_a, at_b = await figures(pair, "a"), await figures(pair, "b")
        assert (at_a.size.rows, at_a.size.rows_are, at_a.other.size.rows) == (3, "counted", 3)
        assert (at_a.size.bytes, at_a.revision) == (at_b.size.bytes, at_b.revision)
        assert (at_a.other.schema, at_b.other.schema, at_a.other.revision) == ("same", "same", at_b.revision)
        every = KeptTables(pair.running["a"].service, site(pair, "a").parts.clock).ask()
        await pair.until(lambda: every.known().is_known)
        assert every.known().of(site(pair, "a").catalog.get("t")).schema == "same"
        await pair.stop("b")
        away = await figures(pair, "a")
        assert away.size.rows == 3
        assert away.other == OtherTableDocument("b", "unknown", error=away.other.error)
        assert away.other.error


async def test_a_change_that_the_standby_has_not_applied_is_seen_at_both_sites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(request: ReplicateRequest) -> None:
        raise Unavailable("not now", retry_after_s=0.1)

    async with open_pair(tmp_path) as pair:
        await put(pair, "a", 1, "x")
        await pair.until(lambda: caught_up(pair, "a", "b"))
        with monkeypatch.context() as patched:
            patched.setattr(site(pair, "b").sink, "replicate", refuse)
            tables = pair.running["a"].service.tables
            await tables.alter("t", {"add": [{"name": "more", "type": "string"}]})
            await tables.create({**TABLE, "name": "u"})
            at_a, at_b = await figures(pair, "a"), await figures(pair, "b")
            assert (at_a.other.schema, at_a.other.revision) == ("behind", at_a.revision - 1)
            assert (at_b.other.schema, at_b.other.revision) == ("ahead", at_b.revision + 1)
            new = await figures_of(pair.running["a"].service, tables.get("u"))
            assert (new.other.schema, new.other.revision, new.other.size.rows_are) == ("absent", None, "unknown")
        await pair.until(lambda: caught_up(pair, "a", "b"))
        assert (await figures(pair, "a")).other.schema == "same"
