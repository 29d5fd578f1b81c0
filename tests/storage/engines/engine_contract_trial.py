"""The contract of storage engines for the trial of a schema change, as tests over a `Rig`. Source: storage/engine.py."""

from __future__ import annotations

import pytest

from storage.log.frame import Frame
from storage.log.record import Record, RecordKind, SchemaChange
from storage.rows.schema import TableSchema, alter, encode_schema, parse_table
from tests.storage.engines.engine_rig import Log, Rig, encode, put_table, upsert, value
from tests.storage.engines.kept_reading import content_of
from twinlog.errors import EngineFailed, InvalidInput

FIRST = parse_table({
    "name": "flights", "primary_key": ["k"],
    "columns": [{"name": "k", "type": "int64"}, {"name": "a", "type": "string"}, {"name": "b", "type": "int32"}],
}, 1)
CHANGES = {
    "drop and add": alter(FIRST, {"drop": ["a"], "add": [{"name": "a", "type": "int64", "default": 5}]}),
    "swap": alter(FIRST, {"rename": {"a": "b", "b": "a"}}),
    "history": alter(FIRST, {"history_s": 60}),
}


class EngineTrialContract:
    @pytest.mark.parametrize("change", [*CHANGES, "create", "drop", "drop of none"])
    async def test_a_trial_changes_nothing(self, rig: Rig, change: str) -> None:
        log = Log()
        await rig.engine.apply([log.frame(put_table(2)), log.frame(_put(FIRST), upsert(b"k", value(c1=1), table=1))])
        before = await content_of(rig.engine)
        if change in CHANGES:
            await rig.engine.prepare_schema(1, encode_schema(CHANGES[change]))
        elif change == "create":
            await rig.engine.prepare_schema(3, encode_schema(FIRST))
        else:
            await rig.engine.prepare_schema(1 if change == "drop" else 3, None)
        assert await content_of(rig.engine) == before
        await rig.engine.apply([log.frame(_put(CHANGES["swap"]), upsert(b"l", value(c1=2), table=1))])
        assert len(await rig.engine.scan(1, None, None, reverse=False, limit=9)) == 2

    async def test_what_is_no_schema_is_refused(self, rig: Rig) -> None:
        for schema in (b"", b"\xff", b"\x80", b"\xa1\xff", b"\x91" * 5000 + b"\xc0"):
            with pytest.raises(InvalidInput, match="schema"):
                await rig.engine.prepare_schema(1, schema)
        assert rig.engine.failure is None

    async def test_an_engine_that_failed_says_nothing(self, rig: Rig) -> None:
        log = Log()
        await rig.engine.apply([log.frame(_put(FIRST))])
        rig.break_down()
        try:
            frame = log.frame(upsert(b"k", value(c1=1), table=1))
            with pytest.raises(EngineFailed):
                await apply_and_flush(rig, frame)
            with pytest.raises(EngineFailed):
                await rig.engine.prepare_schema(1, encode_schema(CHANGES["swap"]))
        finally:
            rig.repair()


async def apply_and_flush(rig: Rig, frame: Frame) -> None:
    await rig.engine.apply([frame])
    await rig.engine.flush()


def _put(schema: TableSchema) -> Record:
    change = SchemaChange(kind="put", table=schema.id, schema=encode_schema(schema), history_s=schema.history_s)
    return Record(kind=int(RecordKind.DDL), table=schema.id, value=encode(change))
