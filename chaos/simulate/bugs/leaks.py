"""Planted bugs of what a site holds for longer than it needs it, and of what it opens twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chaos.simulate.bugs.bug import Bug
from chaos.simulate.draw import draw
from gateway.epoch.commit_log import CommitLog
from gateway.service.as_of import ScanSnapshots
from gateway.site.site import Site
from remote_log.writing.writer import RemoteWriter
from storage.engine import StoredRow
from switchover.activation.ports import OpenedEpoch
from twinlog.errors import TwinlogError

_install, _scan, _stop, _failed = Site.install, ScanSnapshots.scan, CommitLog.stop, RemoteWriter._failed


async def _install_and_remember(self: Site, opened: OpenedEpoch) -> None:
    reports = self._reports
    await _install(self, opened)
    self._reports = reports


async def _use_for_ever(
    self: ScanSnapshots, number: str, within: object, table: int, start: bytes | None, end: bytes | None, *, reverse: bool,
    limit: int,
) -> Sequence[StoredRow]:
    if number in self._held:
        self._held[number].uses += 1
    return await _scan(self, number, within, table, start, end, reverse=reverse, limit=limit)


def _forget(self: ScanSnapshots, number: str) -> None:
    held = self._held.pop(number, None)
    if held is not None and held.timer is not None:
        held.timer.cancel()


async def _stop_without_its_tasks(self: CommitLog, reason: TwinlogError) -> None:
    tasks, self._tasks = self._tasks, set()
    await _stop(self, reason)
    self._tasks = tasks


async def _nothing(*_: Any) -> None:
    return None


def _resume_twice(self: RemoteWriter, error: BaseException) -> None:
    _failed(self, error)
    if self._end is None:
        self._spawn(self._retrying(self._resume))


BUGS = (
    Bug(
        "ended-epoch-kept", "A site keeps an epoch that has ended, with the frames that its remote log never took.", "I8",
        ("held",), 2, 10, ((Site, "install", _install_and_remember),), drawn=draw,
    ),
    Bug(
        "snapshot-used-for-ever", "A page of a scan begins to use its snapshot and never ends it: its time never comes.", "I8",
        ("held",), 1, 10, ((ScanSnapshots, "scan", _use_for_ever),), drawn=draw,
    ),
    Bug(
        "snapshot-not-closed", "The snapshot of a scan is forgotten and never closed: the storage keeps its files.", "I8",
        ("held",), 1, 10, ((ScanSnapshots, "release", _forget),), drawn=draw,
    ),
    Bug(
        "write-path-not-stopped", "The tasks of a write path run on behind the end of its epoch.", "I8", ("held",), 7, 15,
        ((CommitLog, "stop", _stop_without_its_tasks),), drawn=draw,
    ),
    Bug(
        "remote-writer-not-closed", "A writer of the remote log is left with its segments open.", "I8", ("held",), 7, 10,
        ((RemoteWriter, "close", _nothing),), drawn=draw,
    ),
    Bug(
        "writer-resumes-twice", "A writer of the remote log that failed resumes twice at once, with a segment each.", "P2",
        ("openers",), 14, 4, ((RemoteWriter, "_failed", _resume_twice),), drawn=draw,
    ),
)
