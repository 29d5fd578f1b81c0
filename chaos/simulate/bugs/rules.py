"""Planted bugs that break a rule of the protocol and seldom more: no row and no answer need ever show them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import remote_log.fencing.claims
from chaos.simulate.bugs.bug import Bug
from chaos.simulate.draw import draw
from gateway.epoch.commit_rule import CommitCore, CommitMode
from gateway.service.key_gate import KeyGate, RowKey
from gateway.service.rows import RowsService
from remote_log.dfs.port import Dfs
from remote_log.fencing.read_lease import ReadLease
from remote_log.layout import RemoteLayout
from remote_log.replication.messages import Vouched
from remote_log.replication.sink import Sink
from storage.log.frame import Flags, Frame, make_frame
from storage.log.record import Record
from switchover.activation.activation import Activation
from switchover.plans.takeover import Takeover
from switchover.register.port import Mode

_opening_mode = Activation._opening_mode


async def _looks_nowhere(dfs: Dfs, layout: RemoteLayout, epoch: int) -> None:
    return None


def _newer_by_the_drift(self: Sink, word: Vouched | None, came_s: float) -> None:
    if word is None or word.stamp.life != self._life or self._engine.applied.seq < word.upto:
        return
    as_of_s = min(word.stamp.at_s + word.held_s * (1 + self._drift_margin), came_s)
    self.as_of_s = as_of_s if self.as_of_s is None else max(self.as_of_s, as_of_s)


async def _begin_later(self: Takeover) -> dict[str, Any]:
    return {"epoch": (await self._need_activation()).epoch}


def _apart(self: Activation) -> Mode:
    return "async" if self.request.kind == "switchover" else _opening_mode(self)


def _synchronous_too_early(self: CommitCore, records: list[Record], timestamp: int, flags: int = 0) -> Frame:
    frame = make_frame(
        epoch=self.epoch, first_seq=self.next_seq, previous=self.standing, timestamp=timestamp, committed=self.committed,
        records=records, flags=flags | Flags.ASYNC if self.mode in (CommitMode.ASYNC, CommitMode.CATCHING) else flags,
    )
    self.next_seq += frame.count
    self.standing = frame.last_seq
    self._in_flight.append(frame)
    self.check()
    return frame


async def _hold_as_named(self: KeyGate, keys: Iterable[RowKey]) -> list[RowKey]:
    owned: list[RowKey] = []
    try:
        for key in dict.fromkeys(keys):
            while key in self._held:
                await asyncio.wait([self._held[key]])
            self._held[key] = asyncio.get_running_loop().create_future()
            owned.append(key)
            while key in self._blind:
                await asyncio.wait([self._idle.setdefault(key, asyncio.get_running_loop().create_future())])
    except BaseException:
        self.release(owned)
        raise
    return owned


def _prove_nothing(self: RowsService, lease: ReadLease) -> None:
    return None


BUGS = (
    Bug(
        "claim-without-a-look", "A claim is made without a look for a higher one, before or behind it.", "P2", ("dfs_calls",),
        0, 2, ((remote_log.fencing.claims, "_check_none_higher", _looks_nowhere),), drawn=draw,
    ),
    Bug(
        "newer-by-the-drift", "The drift of the clocks makes a standby's rows newer, and not older.", "P4", ("messages",),
        0, 2, ((Sink, "_note_vouched", _newer_by_the_drift),), drawn=draw,
    ),
    Bug(
        "begun-nowhere", "A plan says that it has begun before the register has given it the pair.", "P10", ("plans",), 0, 2,
        ((Takeover, "_begin", _begin_later),), drawn=draw,
    ),
    Bug(
        "opened-apart", "A switchover opens asynchronously although the other site has everything.", "P8", ("decisions",),
        7, 2, ((Activation, "_opening_mode", _apart),), drawn=draw,
    ),
    Bug(
        "synchronous-too-early", "Frames are marked as synchronous before the register says so.", "P8", ("marks",), 0, 2,
        ((CommitCore, "make", _synchronous_too_early),), drawn=draw,
    ),
    Bug(
        "keys-as-named", "Conditional writes take their keys in the order in which each names them.", "P3", ("waits",), 80, 1,
        ((KeyGate, "hold", _hold_as_named),), drawn=draw,
    ),
    Bug(
        "read-not-proved", "A read is answered although its lease ran out while the storage answered.", "P2", ("proofs",),
        933, 1, ((RowsService, "_prove", _prove_nothing),), drawn=draw,
    ),
)
