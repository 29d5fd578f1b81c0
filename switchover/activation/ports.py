"""The request, ports and settings that an activation gets, and the epoch that it opens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from remote_log.fencing.read_lease import ReadLease
from storage.log.frame import Frame
from switchover.register.port import Mode


class RemoteLogOpener(Protocol):
    """The part of remote_log/writing/writer.py that activation needs: a segment that is not fenced and holds these frames."""

    async def open(self, next_seq: int, first_frames: Sequence[Frame]) -> None: ...
    async def close(self) -> None: ...


MakeRemote = Callable[[int], RemoteLogOpener]  # epoch -> a writer of its log on the peer's DFS


@dataclass(frozen=True, slots=True)
class ActivationSettings:
    lease: ReadLease  # its durations: how long a fencer waits
    fence_deadline_s: float
    opens_async: bool  # by choice of the policy, where both sites hold all that the epoch follows


@dataclass(frozen=True, slots=True)
class ActivationRequest:
    """The reason and the conditions. `old_stopped`: the old active confirmed that it stopped: nobody waits out its lease."""

    plan_id: str
    kind: str  # bootstrap | restart | takeover | switchover
    reason: str = ""
    old_stopped: bool = False
    peer_durable_seq: int = 0  # switchover: the old active's storage is durable up to here
    accept_data_loss: bool = False
    supersede: bool = False
    continues: str | None = None  # begin only while this plan still has the pair: the site continues by itself, uncommanded


@dataclass(frozen=True, slots=True)
class OpenedEpoch:
    """A new epoch, open: the commit path begins here."""

    epoch: int
    mode: Mode
    start: Frame
    remote: RemoteLogOpener | None
    replayed_frames: int
    copied_frames: int
