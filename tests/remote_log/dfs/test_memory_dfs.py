"""The fault-injecting twin obeys the same contract as the real ones."""

from __future__ import annotations

import pytest

from tests.remote_log.dfs.dfs_contract import DfsContract
from tests.remote_log.dfs.memory_dfs import MemoryDfs


class TestMemoryDfs(DfsContract):
    @pytest.fixture
    def dfs(self) -> MemoryDfs:
        return MemoryDfs()

    @pytest.fixture
    def other(self, dfs: MemoryDfs) -> MemoryDfs:
        return MemoryDfs(dfs.disk)
