"""Makes a new pair out of a backup: the storage of its first active, exactly as the old one was at one moment.

What always holds: every part that is needed is read and checked before anything is written; only what is empty is written, or
what an earlier restore left half done; no gateway serves the directory before all is applied and durable; the new
pair's epochs lie far above those of the backup, so no receipt of the old pair can be taken for one of the new; rows keep their
versions.
The pair itself begins as any new one does: the site opens it at its first start, and the other one is filled with base data.
Source: docs/decisions/2026-11-28-backup.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass

import msgspec

from gateway.backup.progress import BackupProgress, FilesRead
from gateway.backup.target import Target
from gateway.config.model import SiteConfig
from remote_log.dfs.opening import open_dfs
from remote_log.dfs.owner import Owner
from remote_log.layout import RemoteLayout
from storage.backup.manifest import BackupFile, LogPart, Manifest, WantedMoment, chosen
from storage.backup.sealing import opened_schemas
from storage.backup.stream import Continuation, MessageReader, ReachedPoint, RowsMessage, frames_in, point_of, stored_rows
from storage.clock import SystemClock
from storage.disk.data_dir import end_restore, open_data_dir
from storage.engine import StorageEngine
from storage.engines.applying import transactions
from storage.engines.opening import open_engine
from storage.log.frame import Frame, make_frame
from storage.log.record import EpochStart, Record, RecordKind
from switchover.register.homes import UNSEEN_STEP
from switchover.register.known_epochs import RESTORED_EPOCH
from switchover.register.sql import SqlCoordinator
from twinlog.cli.status import figure
from twinlog.errors import DamagedLog, Refused, TwinlogError

RESTORING = "restoring"  # a note in the storage: a restore into the data directory of this id fills it, and may begin anew
_PROGRESS = b"restore"  # of the base: one that was cut off begins anew


@dataclass(frozen=True, slots=True)
class Restored:
    """`point`: the end of what was restored, by the old pair's numbers."""

    manifest: Manifest
    point: ReachedPoint
    rows: int
    frames: int


class Restorer:
    """Restores from `target` into the site of `config`."""

    def __init__(self, target: Target, config: SiteConfig, progress: BackupProgress) -> None:
        self._target, self._config, self._progress = target, config, progress
        self.is_whole = False  # all is restored: from then on the directory is a site's

    async def restore(self, moment: WantedMoment) -> Restored:
        """Raises Refused, DamagedLog, DataDirectoryError; then nothing is restored."""
        manifest, log = chosen(await self._target.held(), moment)
        self._target.check(manifest)
        files = [*manifest.base.parts, *(each.part for each in log)]
        self._progress.begin(f"checking {figure(len(files), 'files')} of {self._target.place}")
        await self._check_parts(manifest, log, FilesRead(self._progress, files))
        await self._check_pair_is_new()
        config = self._config
        data_dir = open_data_dir(config.data_dir, config.pair, config.site, restores=True)
        try:
            engine = await open_engine(config.engine, config.data_dir, config.pair, config.site)
            try:
                await self._begin(engine, data_dir.id.encode())
                restored = await self._fill(engine, manifest, log, moment)
                end_restore(config.data_dir)
                self.is_whole = True
                with suppress(TwinlogError):  # a note that stays names a directory that no restore fills any more
                    await engine.set_meta(RESTORING, None)
            finally:
                await engine.close()
            return restored
        finally:
            data_dir.close()

    async def _check_parts(self, manifest: Manifest, log: Sequence[LogPart], read: FilesRead) -> None:
        async for _ in self._rows(manifest, read.add):
            pass
        async for _ in self._frames(manifest, log, read.add):
            pass

    async def _check_pair_is_new(self) -> None:
        """Raises Refused when the register, or one of the two DFSs, knows a pair of this name."""
        config, layout = self._config, RemoteLayout(self._config.pair)
        if config.site != config.initial_active:
            raise Refused(
                f"site {config.site} follows: restore at site {config.initial_active} (initial_active), and this site is filled"
                " from there when both are started"
            )
        async with AsyncExitStack() as stack:
            for which, site in (("own", config.site), ("peer", config.peer.site)):
                dfs = open_dfs(config.dfs, which, Owner(config.pair, site), stack)
                if await dfs.list(layout.folder):
                    raise Refused(
                        f"dfs.{which} holds {layout.folder} of a pair {config.pair}: a restore makes a new pair; name an"
                        " empty DFS, another pair, or move that folder away once the old pair is gone for good"
                    )
        if config.coordinator is not None:
            coordinator = SqlCoordinator(config.coordinator.url, config.pair, SystemClock())
            try:
                state = await coordinator.read()
            finally:
                await coordinator.close()
            if state is not None:
                raise Refused(
                    f"the coordinator has a register of pair {config.pair}: a restore makes a new pair; name an empty register"
                    " in coordinator.url, or another pair"
                )

    async def _fill(self, engine: StorageEngine, manifest: Manifest, log: Sequence[LogPart], moment: WantedMoment) -> Restored:
        base, rows, frames = manifest.base, 0, 0
        self._progress.begin(f"loading {figure(base.rows, 'rows')}")
        schemas: dict[int, bytes] | None = opened_schemas(self._target.keys, manifest, self._target.place)
        await engine.load_base([], [], _PROGRESS, True, schemas)
        async for part in self._rows(manifest, lambda file: None):
            await engine.load_base(stored_rows(part.rows), part.outcomes, _PROGRESS, False, None)
            rows += len(part.rows)
            self._progress.reached(rows, base.rows, f"{rows:,} of {figure(base.rows, 'rows')}")
        await engine.finish_base(base.point.seq, base.point.epoch, base.point.timestamp, base.epochs)
        point = base.point
        if log:
            self._progress.begin(f"applying the log up to sequence {log[-1].end.seq:,}, or to the moment that is asked for")
        async for group in self._frames(manifest, log, FilesRead(self._progress, [each.part for each in log]).add):
            wanted = [frame for frame in group if happened(frame, moment)]
            for some in transactions(wanted):
                await engine.apply(some)
            if wanted:
                frames, point = frames + len(wanted), point_of(wanted[-1])
            if len(wanted) < len(group):
                break
        start = start_of_restored(self._config.site, point)
        await engine.apply([start])
        await engine.set_meta(RESTORED_EPOCH, b"%d" % start.epoch)
        await engine.flush()
        return Restored(manifest, point, rows, frames)

    async def _begin(self, engine: StorageEngine, directory: bytes) -> None:
        """Raises Refused for a storage that holds something: it may lie outside of the data directory. One that a restore left
        half done begins anew; one that is whole does so only from `directory`, which that restore had not ended yet."""
        note, is_filled = engine.meta(RESTORING), engine.meta(RESTORED_EPOCH) is not None
        is_ours = note is not None and (note == directory or not is_filled)
        if not is_ours and (engine.applied.seq or engine.applied.loading or engine.applied.schemas()):
            raise Refused(
                f"the storage of site {self._config.site} holds rows of a pair: a restore fills an empty one only; name"
                " another one in the section engine"
            )
        await engine.set_meta(RESTORED_EPOCH, None)
        await engine.set_meta(RESTORING, directory)

    async def _rows(self, manifest: Manifest, ended: Callable[[BackupFile], None]) -> AsyncIterator[RowsMessage]:
        for part in manifest.base.parts:
            where = f"{self._target.place}/{part.name}"
            reader = MessageReader(where)
            for message, _ in reader.take(await self._target.read(manifest, part)):
                if not isinstance(message, RowsMessage):
                    raise DamagedLog(f"{where} holds what is no row", file=where, offset=0)
                yield message
            reader.close()
            ended(part)

    async def _frames(
        self, manifest: Manifest, log: Sequence[LogPart], ended: Callable[[BackupFile], None]
    ) -> AsyncIterator[list[Frame]]:
        at = manifest.base.point
        for each in log:
            where = f"{self._target.place}/{each.part.name}"
            chain, frames = Continuation(at, where), frames_in(await self._target.read(manifest, each.part), where)
            chain.take(frames)
            at = chain.at
            yield frames
            ended(each.part)


def happened(frame: Frame, moment: WantedMoment) -> bool:
    """True when `frame` was logged at `moment`, or before. A frame is whole: its rows became visible together."""
    if moment.seq is not None:
        return frame.first_seq <= moment.seq
    return moment.wall_ms is None or frame.timestamp >> 16 <= moment.wall_ms


def start_of_restored(site: str, point: ReachedPoint) -> Frame:
    """The first frame of the new pair's history. Its epoch leaves room for what the old pair may have opened, or opens yet: a
    receipt of such an epoch names one that this history left out."""
    epoch = point.epoch + UNSEEN_STEP
    mark = EpochStart(epoch, site, "bootstrap", "restore")
    return make_frame(
        epoch=epoch, first_seq=point.seq + 1, previous=point.seq, committed=point.seq, timestamp=point.timestamp + 1,
        records=[Record(RecordKind.EPOCH_START, value=msgspec.msgpack.encode(mark))],
    )
