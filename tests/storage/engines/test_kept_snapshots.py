"""Kept snapshots in their folder: what is said of one is so on the disk, also where the disk refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from storage.engines.kept_snapshots import SnapshotFolder
from twinlog.errors import EngineFailed


@pytest.fixture
def folder(tmp_path: Path) -> SnapshotFolder:
    made = SnapshotFolder(tmp_path / "kept", "rocksdb", "data")
    made.keep("x", 7, 1, 1000, Path.mkdir)
    return made


def test_one_that_cannot_be_removed_is_a_failure_and_held(folder: SnapshotFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """An audit's snapshot takes room as long as it is there: the operator must hear of it."""
    def refused(self: Path, target: Path) -> Path:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", refused)
        with pytest.raises(EngineFailed, match=r"kept/x could not be removed: .*Permission denied"):
            folder.release("x")
    assert [kept.name for kept in folder.held()] == ["x"]
    folder.release("x")
    assert folder.held() == []
    folder.release("x")
