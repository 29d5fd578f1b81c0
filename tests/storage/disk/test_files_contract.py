"""The real disk obeys the contract of Files; what only it must withstand is in test_os_files.py."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from storage.disk.os_files import OsFiles
from tests.storage.disk.files_contract import FilesContract


class TestOsFiles(FilesContract):
    @pytest.fixture
    async def files(self, tmp_path: Path) -> AsyncIterator[OsFiles]:
        opened = OsFiles(tmp_path)
        yield opened
        await opened.close()
