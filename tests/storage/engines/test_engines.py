"""The engine contract on every engine there is."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from storage.engines.rocks.opening import RocksSettings
from tests.storage.engines.engine_contract import EngineContract
from tests.storage.engines.engine_contract_kept import EngineKeptContract
from tests.storage.engines.engine_contract_reopen import EngineReopenContract
from tests.storage.engines.engine_contract_time import EngineTimeContract
from tests.storage.engines.engine_contract_trial import EngineTrialContract
from tests.storage.engines.engine_rig import Rig
from tests.storage.engines.memory_rig import MemoryRig
from tests.storage.engines.rocks.rig import RocksRig
from tests.storage.engines.sizes.engine_contract_size import EngineSizeContract
from tests.storage.engines.sql.rig import PostgresRig, SqliteRig, a_database


@pytest.fixture(params=["memory", "rocks", "rocks in threads", "sqlite", "postgresql"])
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    if request.param == "memory":
        yield MemoryRig()
        return
    if request.param == "postgresql":
        with a_database() as name:
            on_server = await PostgresRig.make(name)
            yield on_server
            await on_server.engine.close()
        return
    if request.param == "sqlite":
        in_file = await SqliteRig.make(tmp_path)
        yield in_file
        await in_file.engine.close()
        return
    settings = RocksSettings(inline_records_max=0) if "threads" in request.param else RocksSettings()
    made = await RocksRig.make(tmp_path, settings)
    yield made
    await made.engine.close()


class TestEngine(EngineContract): ...


class TestEngineOverTime(EngineTimeContract): ...


class TestEngineOpenedAnew(EngineReopenContract): ...


class TestEngineKeeps(EngineKeptContract): ...


class TestEngineTries(EngineTrialContract): ...


class TestEngineSizesTables(EngineSizeContract): ...
