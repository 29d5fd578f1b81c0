"""The planted bugs, most of them such that the simulator cannot see, because it has no sockets, no signals and no processes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from types import MappingProxyType

from chaos.harness.bugs import past, power, verdicts
from chaos.harness.bugs.bug import HarnessBug
from chaos.harness.bugs.steps import BUGS as OF_STEPS
from chaos.simulate.bugs.logs import _advance_by_local
from gateway.api.problems import Answer
from gateway.epoch.commit_rule import CommitCore
from gateway.http.protocol import DoorProtocol
from remote_log.fencing.read_lease import ReadLease
from remote_log.writing.writer import RemoteWriter
from storage.disk.os_files import OsLogFile
from storage.log.frame import Frame
from twinlog.errors import SyncFailed

LATE_S = 0.5
EVERY = 20

_submit, _write, _write_and_sync = RemoteWriter.submit, DoorProtocol._write, OsLogFile._write_and_sync


def _submit_late(self: RemoteWriter, frame: Frame) -> None:
    asyncio.get_running_loop().call_later(LATE_S, _submit, self, frame)


def _always(self: ReadLease, now_s: float) -> bool:
    return True


def _sync_again(self: OsLogFile, group: list[bytes]) -> None:
    try:
        _write_and_sync(self, group)
    except SyncFailed:
        os.fsync(self._descriptor)  # the kernel has dropped what it could not write, and has nothing left to report
        self._failure = None
        self._offset += sum(map(len, group))


class _Sent:
    """Holds the answer that was written last, to whatever connection, and counts them."""

    answer: Answer | None = None
    count = 0


def _write_of_another(self: DoorProtocol, answer: Answer, keep_alive: bool) -> None:
    is_row = answer.status == 200 and b"row" in answer.body and b"receipt" not in answer.body
    before = _Sent.answer
    if is_row:
        _Sent.answer, _Sent.count = answer, _Sent.count + 1
        if _Sent.count % EVERY == 0 and before is not None:
            answer = before
    _write(self, answer, keep_alive)


_ALL = (
    HarnessBug(
        "ack-before-remote", "A write is acknowledged once the WAL has it, and the remote log gets it a moment later.", "P1",
        "active-killed", ("acknowledged", "receipts", "workload:sets", "invariants"),  # or the commit rule notices it itself
        ((CommitCore, "_advance", _advance_by_local), (RemoteWriter, "submit", _submit_late)),
    ),
    HarnessBug(
        "serves-when-woken", "A gateway that was stopped answers what waits at its sockets, without a proof that it may.", "P2",
        "active-stopped", ("one_active", "linearizable"), ((ReadLease, "valid_at", _always),),
    ),
    HarnessBug(
        "answer-of-another", "One answer in many is that of another connection: a buffer is shared.", "P3", "slow-link",
        ("linearizable", "phantom"), ((DoorProtocol, "_write", _write_of_another),),
    ),
    HarnessBug(
        "syncs-again", "A sync that failed is tried again on the same descriptor, and its success is believed.", "P1",
        "sync-fails", ("processes",), ((OsLogFile, "_write_and_sync", _sync_again),),
    ),
    *power.BUGS,
    *past.BUGS,
    *verdicts.BUGS,
    *OF_STEPS,
)
BUGS: Mapping[str, HarnessBug] = MappingProxyType({bug.name: bug for bug in _ALL})
