"""Reads what both sites hold at the end, from their files and their databases, once the gateways have stopped.

What always holds: nothing is asked of a gateway here, so that what it says and what it has can differ and be found; the sites
stop one after the other, and what an idle active wrote meanwhile (marks that change no row) makes them no different.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from chaos.harness.pair.sites import RealSites
from chaos.history.history import Dump, Quarantine, SiteLog
from chaos.history.stored import logged, quarantined, tables_of
from gateway.demo.files import PAIR
from storage.engine import StorageEngine
from storage.engines.rocks.engine import RocksEngine
from storage.engines.rocks.opening import RocksSettings
from storage.engines.sql.engine import SqlEngine
from storage.engines.sql.opening import SqlSettings
from storage.log.chain import standing
from storage.log.frame import Frame
from storage.log.record import RecordKind
from storage.log.segment import parse_wal_name, scan_segment
from switchover.quarantine import QUARANTINE

_MARKS = frozenset((RecordKind.NOOP, RecordKind.CURSOR))


class Stored:
    """The contents of one site."""

    def __init__(self, site: str, dump: Dump, frames: list[Frame], quarantines: list[Quarantine]) -> None:
        self.site, self.dump, self.frames, self.quarantines = site, dump, frames, quarantines

    def log(self) -> SiteLog:
        return SiteLog(self.site, self.dump.active, logged(self.frames))


async def open_storage(site: str, sites: RealSites) -> StorageEngine:
    """The product's own engine, on the files or, past the link, the database of the site."""
    postgres = sites.servers.postgres.get(site)
    if postgres is not None:
        return await SqlEngine.open(SqlSettings(postgres.url(), PAIR, site))
    return await RocksEngine.open(sites.data_dir(site) / "engine", RocksSettings())


async def read_site(site: str, sites: RealSites, active: bool, at_s: float) -> Stored:
    """Raises DamagedLog where its log is damaged in the middle, which nobody may skip."""
    engine, data_dir = await open_storage(site, sites), sites.data_dir(site)
    try:
        applied, schemas = engine.applied.seq, dict(engine.applied.schemas())
        dump = Dump(site, active, at_s, applied, await tables_of(engine))
    finally:
        await engine.close()
    manifests: list[dict[str, Any]] = [
        msgspec.json.decode(path.read_bytes()) for path in sorted((data_dir / QUARANTINE).glob("*.json"))
    ]
    return Stored(site, dump, wal_frames(data_dir / "wal"), [quarantined(site, each, schemas, at_s) for each in manifests])


def wal_frames(folder: Path) -> list[Frame]:
    """The frames of a WAL that stand."""
    frames: list[Frame] = []
    for path in sorted(folder.iterdir()) if folder.exists() else ():
        if parse_wal_name(path.name) is not None:
            frames += scan_segment(path.read_bytes(), path.name, frames[-1].last_seq if frames else 0).frames
    return list(standing(frames)) if frames else []


def without_marks(dumps: Iterable[Dump], frames: list[Frame]) -> list[Dump]:
    """The dumps, as of the lower of their positions if all that lies between them changes no row."""
    found = list(dumps)
    low, high = min(dump.applied for dump in found), max(dump.applied for dump in found)
    between = [frame for frame in frames if low < frame.last_seq <= high]
    covers = bool(between) and between[0].first_seq <= low + 1
    if not covers or any(record.kind not in _MARKS for frame in between for record in frame.records):
        return found
    return [msgspec.structs.replace(dump, applied=low) for dump in found]
