"""A site's storage by its configuration: which engine it is, where its rows are, and how often it is flushed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from storage.disk.os_files import make_folders
from storage.engine import StorageEngine
from storage.engines.rocks.engine import RocksEngine
from storage.engines.rocks.opening import RocksSettings
from storage.engines.sql.engine import SqlEngine
from storage.engines.sql.opening import SqlSettings
from storage.settings import OneOf, Reference, Secret, Within


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    kind: Annotated[str, OneOf(("rocksdb", "postgresql", "sqlite"))] = "rocksdb"
    path: str = "engine"  # below the data directory; of rocksdb and sqlite
    url: Annotated[str, Secret()] = field(default="", repr=False)  # of postgresql: the site's own database
    password: Annotated[str, Reference()] = field(default="", repr=False)  # put into the url
    flush_interval_s: Annotated[float, Within(0.01, 3600)] = 1.0

    def folder(self, data_dir: Path) -> Path:
        return data_dir / self.path

    def address(self, data_dir: Path) -> str:
        """The address of an SQL engine's database."""
        return self.url or f"sqlite:///{self.folder(data_dir) / 'rows.db'}"


async def open_engine(settings: EngineSettings, data_dir: Path, pair: str, site: str) -> StorageEngine:
    """The storage of `site`. Raises EngineFailed, ConfigError, DataDirectoryError."""
    if settings.kind == "rocksdb":
        return await RocksEngine.open(settings.folder(data_dir), RocksSettings())
    if settings.kind == "sqlite":
        make_folders(settings.folder(data_dir))
    return await SqlEngine.open(SqlSettings(settings.address(data_dir), pair, site, settings.password or None))
