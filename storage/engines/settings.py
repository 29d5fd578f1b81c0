"""The settings of a site's storage. They import no engine, so that a site which is given one can read them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from storage.settings import RESTART, RUN_TIME, OneOf, Reference, Secret, Within


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    kind: Annotated[str, OneOf(("rocksdb", "postgresql", "sqlite")), RESTART] = "rocksdb"
    path: Annotated[str, RESTART] = "engine"  # below the data directory; of rocksdb and sqlite
    url: Annotated[str, Secret(), RESTART] = field(default="", repr=False)  # of postgresql: the site's own database
    password: Annotated[str, Reference(), RESTART] = field(default="", repr=False)  # put into the url
    flush_interval_s: Annotated[float, Within(0.01, 3600), RUN_TIME] = 300.0  # sooner when much waits (flushing.py)

    def folder(self, data_dir: Path) -> Path:
        return data_dir / self.path

    def address(self, data_dir: Path) -> str:
        """The address of an SQL engine's database."""
        return self.url or f"sqlite:///{self.folder(data_dir) / 'rows.db'}"
