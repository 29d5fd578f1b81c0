"""The DFSs that claims, fences and readers run on."""

from __future__ import annotations

from pathlib import Path

import pytest

from remote_log.dfs.directory import DirectoryDfs
from remote_log.dfs.port import Dfs
from tests.remote_log.dfs.memory_dfs import MemoryDfs


@pytest.fixture(params=["memory", "directory"])
def dfs(request: pytest.FixtureRequest, tmp_path: Path) -> Dfs:
    return MemoryDfs() if request.param == "memory" else DirectoryDfs(tmp_path, "dfs.root")
