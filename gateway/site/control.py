"""What the plans of switchover/ act through: SiteControl, on top of one Site."""

from __future__ import annotations

import json
from typing import Any

from gateway.epoch.modes import PINNED
from gateway.site.facts import site_facts
from gateway.site.site import Site
from remote_log.dfs.retrying import PatientDfs
from remote_log.replication.messages import MERGE, MergeReply, MergeRequest, from_message, to_message
from remote_log.replication.sink import Sink
from storage.clock import Clock
from storage.log.frame import Frame, parse_frame
from storage.log.record import Record, RecordKind
from switchover.activation.activation import Activation
from switchover.activation.ports import ActivationRequest, OpenedEpoch
from switchover.facts import SiteFacts
from switchover.register.known_epochs import opened_here
from switchover.register.port import Coordinator, PairState
from switchover.register.transitions import downgrade_closed
from switchover.rejoin import QUARANTINE, RejoinReport
from switchover.roles.table import Event, Role
from twinlog.errors import Refused

CANARY_TIMEOUT_S = 10.0
MERGE_CHUNK = 500
MERGE_TIMEOUT_S = 60.0
MergeRow = tuple[int, str, bytes, bytes, int]  # table, operation, key, value, version
OPERATIONS = {RecordKind.UPSERT: "upsert", RecordKind.UPDATE: "update", RecordKind.DELETE: "delete"}


class Control:
    """Implements switchover.site_control.SiteControl."""

    def __init__(self, site: Site) -> None:
        self._site = site

    @property
    def site(self) -> str:
        return self._site.site

    @property
    def peer(self) -> str:
        return self._site.peer

    @property
    def role(self) -> Role:
        return self._site.role

    @property
    def epoch(self) -> int:
        return self._site.epoch

    @property
    def applied_seq(self) -> int:
        return self._site.ports.engine.applied_seq

    @property
    def applied_epoch(self) -> int:
        return self._site.ports.engine.applied_epoch

    @property
    def clock(self) -> Clock:
        return self._site.ports.clock

    @property
    def coordinator(self) -> Coordinator:
        return self._site.ports.coordinator

    @property
    def sink(self) -> Sink:
        return self._site.sink

    def new_id(self) -> str:
        return self._site.ports.new_id()

    def event(self, event: Event) -> None:
        self._site.event(event)

    async def halt(self, why: str) -> None:
        await self._site.halt(why)

    async def read_pair_state(self) -> PairState | None:
        return await self._site.refresh_pair_state()

    async def ask_peer(self, method: str, message: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        return await self._site.ports.transport.call(method, message, timeout_s)

    async def facts(self, state: PairState | None, coordinator_error: str | None) -> SiteFacts:
        return await site_facts(self._site, state, coordinator_error)

    def new_activation(self, request: ActivationRequest) -> Activation:
        return self._site.new_activation(request)

    async def install(self, opened: OpenedEpoch) -> None:
        pinned = self._site.ports.engine.meta(PINNED) is not None
        await self._site.install(opened, auto_resync=not pinned)

    async def delete_replayed(self) -> int:
        dfs, layout = PatientDfs(self._site.ports.own_dfs, self._site.ports.clock), self._site.layout
        deleted = 0
        for entry in await dfs.list(layout.folder):
            epoch = layout.parse_epoch(entry.name) if entry.is_folder else None
            if epoch is not None and epoch < self.epoch:
                await dfs.delete(layout.epoch_folder(epoch))
                deleted += 1
        return deleted

    async def flush(self) -> int:
        return await self._site.ports.engine.flush()

    async def canary(self) -> int:
        record = Record(RecordKind.BARRIER, key=f"canary-{self.epoch}".encode())
        ack = await self._site.for_reads().commit.submit_mark(record, CANARY_TIMEOUT_S)
        return ack.seq

    async def rejoin(self) -> RejoinReport:
        return await self._site.rejoin()

    async def degrade(self, automatic: bool) -> None:
        if automatic:
            await self._site.for_writes().degrade(by_command=False)
            return
        if self.role in (Role.CLOSED, Role.FENCED):
            await self._degrade_closed()
            return
        active = self._site.for_writes()
        await self._site.ports.engine.set_meta(PINNED, b"1")
        await active.degrade(by_command=True)

    async def _degrade_closed(self) -> None:
        """The active that cannot open, because the other site's DFS is gone: its next restart asks nothing of that DFS."""
        engine, wal = self._site.ports.engine, self._site.ports.wal
        await engine.set_meta(PINNED, b"1")
        epochs = opened_here(engine, wal)
        await self.coordinator.force(lambda state: downgrade_closed(state, self.site, engine.applied_seq, epochs))
        await self._site.refresh_pair_state()

    async def resync(self) -> None:
        active = self._site.for_writes()
        await self._site.ports.engine.set_meta(PINNED, None)
        await active.resync(by_command=True)

    # ---- quarantine
    async def merge_quarantine(self, put_absent: bool) -> dict[str, Any]:
        """Send every quarantined row to the active as a conditional write; a file that is merged is renamed.

        One with rows that the active does not have stays, and its manifest names them, unless they are to be put as well.
        """
        files = self._site.ports.files
        merged = skipped = kept = 0
        names = [name for name in await files.list(QUARANTINE) if name.endswith(".frames")]
        for name in names:
            path = f"{QUARANTINE}/{name}"
            absent: list[tuple[int, bytes]] = []
            for part in _parts(_rows(_frames(await files.read(path)))):
                message = to_message(MergeRequest(part, put_absent))
                reply = from_message(MergeReply, await self.ask_peer(MERGE, message, MERGE_TIMEOUT_S))
                merged += reply.merged
                skipped += reply.skipped
                absent += reply.absent
            await self._note_conflicts(path.removesuffix(".frames") + ".json", absent)
            kept += len(absent)
            if not absent:
                await files.rename(path, f"{path}.merged")
        return {"files": names, "merged_changes": merged, "skipped_changes": skipped, "rows_absent_at_the_active": kept}

    async def _note_conflicts(self, manifest: str, absent: list[tuple[int, bytes]]) -> None:
        """The manifest names the rows that wait for the operator's word."""
        files = self._site.ports.files
        document = json.loads(await files.read(manifest))
        document["absent_at_the_active"] = [{"table": table, "key": key.hex()} for table, key in absent]
        await files.write_new(manifest, json.dumps(document, indent=2).encode())

    async def quarantines(self) -> list[dict[str, Any]]:
        """The manifests of what waits in the quarantine."""
        files = self._site.ports.files
        names = await files.list(QUARANTINE)
        return [json.loads(await files.read(f"{QUARANTINE}/{name}")) for name in names if name.endswith(".json")]


def _frames(data: bytes) -> list[Frame]:
    frames: list[Frame] = []
    offset = 0
    while offset < len(data):
        frame = parse_frame(data, offset)
        frames.append(frame)
        offset += len(frame.data)
    return frames


def _rows(frames: list[Frame]) -> list[MergeRow]:
    """(table, operation, key, value, version) of every row change. Raises Refused on a record that cannot be merged."""
    rows = []
    for frame in frames:
        for index, record in enumerate(frame.records):
            kind = RecordKind(record.kind)
            if kind is RecordKind.DDL:
                raise Refused(
                    f"the quarantine changes table {record.table}: merge its rows by hand (sequence {frame.first_seq})"
                )
            if kind in OPERATIONS:
                rows.append((record.table, OPERATIONS[kind], record.key, record.value, frame.timestamp + index))
    return rows


def _parts(rows: list[MergeRow]) -> list[list[MergeRow]]:
    """All changes of one row stand in one part, in their order: they are merged together or not at all."""
    by_key: dict[tuple[int, bytes], list[MergeRow]] = {}
    for row in rows:
        by_key.setdefault((row[0], row[2]), []).append(row)
    parts: list[list[MergeRow]] = []
    for changes in by_key.values():
        if not parts or len(parts[-1]) >= MERGE_CHUNK:
            parts.append([])
        parts[-1] += changes
    return parts
