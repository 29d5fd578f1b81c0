"""A site's storage by its configuration: which engine it is, where its rows are, and how often it is flushed."""

from __future__ import annotations

from pathlib import Path

from storage.disk.os_files import make_folders
from storage.engine import StorageEngine
from storage.engines.rocks.engine import RocksEngine
from storage.engines.rocks.opening import RocksSettings
from storage.engines.settings import EngineSettings
from storage.engines.sql.engine import SqlEngine
from storage.engines.sql.opening import SqlSettings


async def open_engine(settings: EngineSettings, data_dir: Path, pair: str, site: str) -> StorageEngine:
    """The storage of `site`. Raises EngineFailed, ConfigError, DataDirectoryError."""
    if settings.kind == "rocksdb":
        return await RocksEngine.open(settings.folder(data_dir), RocksSettings())
    if settings.kind == "sqlite":
        make_folders(settings.folder(data_dir))
    return await SqlEngine.open(SqlSettings(settings.address(data_dir), pair, site, settings.password or None))
