"""Planted bugs of the logs, their commit rule, their readers and their trimming."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec

import gateway.epoch.commit_rule
import remote_log.writing.segments
import storage.log.frame
from chaos.simulate.bugs.bug import Bug
from chaos.simulate.draw import draw
from gateway.epoch.commit_log import CommitLog
from gateway.epoch.commit_rule import CommitCore, Committed, Failed
from gateway.epoch.pending import Pending
from gateway.service.key_gate import KeyGate, RowKey
from remote_log.replication.messages import Position
from remote_log.replication.sink import Sink, State
from remote_log.writing.trimmer import Trimmer
from storage.engines.applying import FrameApplier
from storage.log.frame import COUNTER_BITS, Flags, Frame, make_frame
from storage.log.wal import Wal

_append = Wal.append
_append_local, _acknowledge = CommitLog._append_local, CommitLog._acknowledge
_local_failed = CommitCore.local_failed
_trim = Trimmer.trim
_sink_position = Sink._position
_EARLY: Any = "early"
DISK = ("crash", "fail-sync", "hang-disk", "failover", "degrade")
FLIPPED = ("fail-append", "failover")  # bits are wrong in what failed, and a takeover reads it; 5 of 40 seeds find a reader
DFS = ("cut", "fail-append", "hang-dfs", "dfs-down", "failover")
POWER = ("crash-dfs",)


# ---- the commit rule
def _answer_at_once(self: Wal, frame: Frame) -> asyncio.Future[None]:
    _append(self, frame).add_done_callback(lambda synced: synced.cancelled() or synced.exception())
    answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    answered.set_result(None)
    return answered


def _advance_by_local(self: CommitCore) -> Committed | None:
    frames: list[Frame] = []
    while self._in_flight and self._in_flight[0].last_seq <= self.local:
        frames.append(self._in_flight.popleft())
    if not frames:
        return None
    self.committed = frames[-1].last_seq
    return Committed(frames, self.mode.label)


def _apply_early(self: CommitLog, frame: Frame) -> None:
    _append_local(self, frame)
    self._to_apply.append(Committed([frame], _EARLY))
    self._wake.set()


def _acknowledge_late(self: CommitLog, group: Committed) -> None:
    if group.label != _EARLY:
        _acknowledge(self, group)


def _physical_predecessor(*, first_seq: int, previous: int, **fields: Any) -> Frame:
    return make_frame(first_seq=first_seq, previous=first_seq - 1, **fields)


def _same_sequence_again(self: CommitCore) -> Failed:
    failed = _local_failed(self)
    self.next_seq = self.standing + 1
    return failed


# ---- the order of writes to one row
def _enter_beside(self: KeyGate, keys: Iterable[RowKey]) -> bool:
    for key in keys:
        self._blind[key] = self._blind.get(key, 0) + 1
    return True


async def _hold_beside(self: KeyGate, keys: Iterable[RowKey]) -> list[RowKey]:
    ordered = sorted(set(keys))
    for key in ordered:
        while key in self._held:
            await asyncio.wait([self._held[key]])
        self._held[key] = asyncio.get_running_loop().create_future()
    return ordered


# ---- reading and trimming
def _durable_as_applied(self: Sink, state: State, why: str = "") -> Position:
    position = _sink_position(self, state, why)
    return msgspec.structs.replace(position, durable_seq=position.applied_seq)


def _settle_nothing(self: Pending) -> None:
    """The answer is the client's; what the request holds stays."""


async def _trim_too_much(self: Trimmer, writers: Any, durable_seq: int) -> list[str]:
    return await _trim(self, writers, durable_seq + 50)


async def _keep_late(self: FrameApplier, frames: Sequence[Frame]) -> None:
    await self._engine.apply(frames)
    for frame in frames:
        if frame.flags & Flags.BARRIER:
            await self._engine.keep_snapshot(frame.records[-1].key.decode(), frame.timestamp >> COUNTER_BITS)


BUGS = (
    Bug(
        "blind-write-before-conditional", "A conditional write does not wait for blind writes to its row that are under way.",
        "P3", ("linearizable",), 41, 25, ((KeyGate, "hold", _hold_beside),), drawn=draw,
    ),
    Bug(
        "blind-write-beside-conditional", "A blind write does not wait for a conditional one to its row.", "P3",
        ("linearizable",), 0, 140, ((KeyGate, "try_enter", _enter_beside),), drawn=draw,
    ),
    Bug(
        "settled-request-holds", "A request whose fate is settled keeps its place in admission, its keys and its rows.", "I8",
        ("held",), 0, 5, ((Pending, "settle", _settle_nothing),),
    ),
    Bug(
        "skip-fsync", "The WAL says that a frame is durable before it was synced.", "P1", ("two_copies",), 0, 10,
        ((Wal, "append", _answer_at_once),), DISK,
    ),
    Bug(
        "ack-before-remote", "A frame is committed once the WAL has it, in every mode.", "P1",
        ("two_copies", "acknowledged", "linearizable"), 0, 10, ((CommitCore, "_advance", _advance_by_local),), DFS,
    ),
    Bug(
        "apply-before-commit", "Frames go to the storage, and to clients and the standby, before they are committed.",
        "P4", ("prefix",), 1, 10,
        ((CommitLog, "_append_local", _apply_early), (CommitLog, "_acknowledge", _acknowledge_late)), DFS,
    ),
    Bug(
        "forget-previous", "Each frame names the sequence right before it as previous, also one that failed.", "P5",
        ("invariants", "linearizable"), 205, 20, ((gateway.epoch.commit_rule, "make_frame", _physical_predecessor),), DISK,
    ),
    Bug(
        "sequence-again-after-failure", "The sequences of frames that failed in the WAL are given to the next ones.", "P5",
        ("two_copies", "liveness"), 0, 20, ((CommitCore, "local_failed", _same_sequence_again),), DISK,
    ),
    Bug(
        "ignore-crc", "Frames are read whatever their CRC says.", "P5", ("two_copies", "linearizable", "liveness"), 22, 10,
        ((storage.log.frame, "crc32c", SimpleNamespace(crc32c=lambda data, value=0: 0)),), FLIPPED,
    ),
    Bug(
        "trim-at-applied", "The standby reports what it has applied as durable, and the logs are trimmed there.", "P9",
        ("two_copies",), 7, 20, ((Sink, "_position", _durable_as_applied),),
    ),
    Bug(
        "trim-above-safepoint", "The remote log loses segments that the standby has not applied.", "P9",
        ("two_copies",), 1, 20, ((Trimmer, "trim", _trim_too_much),),
    ),
    Bug(
        "append-beside-acknowledged", "Frames of the remote log follow one another without padding.", "P1",
        ("two_copies",), 0, 10, ((remote_log.writing.segments, "ALIGNMENT", 1),), POWER,
    ),
    Bug(
        "snapshot-behind-the-group", "A barrier's snapshot is kept when all the frames that came together are applied.", "P4",
        ("barriers",), 0, 20, ((FrameApplier, "apply", _keep_late),), ("barrier",),
    ),
)
