"""Planted bugs that a killed process does not show: what was written is there until the power goes.

What always holds: each leaves out one sync and nothing else, so that no run without a loss of power can break on it.
"""

from __future__ import annotations

import os
from pathlib import Path

from chaos.harness.bugs.bug import HarnessBug
from remote_log.dfs import directory
from remote_log.dfs import directory_lease as lease
from remote_log.dfs.directory import DirectoryDfs, DirectoryDfsWriter
from remote_log.dfs.queued_writer import writer_thread
from storage.disk import os_files
from storage.disk.os_files import OsFiles, _WholeFile, _write_at

_LOST = ("acknowledged", "receipts", "workload:sets", "prefix", "convergence")  # rows that had been acknowledged
_SHUT = ("processes", "stuck")  # a site that does not start on what it finds


def _create_log_without_its_folder(self: OsFiles, path: str, header: bytes, size_bytes: int) -> int:
    target = self._root / path
    self._make_folders(target.parent)
    descriptor = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
    _write_at(descriptor, [header.ljust(size_bytes, b"\0")], 0)
    os.fsync(descriptor)
    return descriptor


def _finish_without_sync(self: _WholeFile) -> None:
    self._close()
    os.replace(self._beside, self._target)
    os_files.sync_folder(self._target.parent)


async def _create_without_its_folder(self: DirectoryDfs, path: str) -> DirectoryDfsWriter:
    def work() -> tuple[Path, int, os.stat_result]:
        target = self._make_parents(path)
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        lease.write_all(descriptor, bytes(directory.AHEAD_BYTES), 0)
        os.fsync(descriptor)
        return target, descriptor, os.fstat(descriptor)

    made = await self._call("create", path, work, late=lambda made: os.close(made[1]))
    return DirectoryDfsWriter(path, *made, self._deadline_s, writer_thread(path))


BUGS = (
    HarnessBug(
        "wal-not-synced", "What is appended to the WAL is not synced.", "P1", "power-lost-alone", (*_LOST, *_SHUT),
        ((os_files, "write_synced", _write_at),),
    ),
    HarnessBug(
        "segment-name-not-synced", "The folder of a new segment of the WAL is not synced.", "P1", "power-lost-alone",
        (*_LOST, *_SHUT), ((OsFiles, "_create_log", _create_log_without_its_folder),),
    ),
    HarnessBug(
        "remote-log-not-synced", "What is appended to the remote log is not synced.", "P1", "power-lost-both",
        (*_LOST, *_SHUT), ((directory, "write_synced", _write_at),),
    ),
    HarnessBug(
        "remote-name-not-synced", "The folder of a new segment of the remote log is not synced.", "P1", "power-lost-both",
        (*_LOST, *_SHUT), ((DirectoryDfs, "create", _create_without_its_folder),),
    ),
    HarnessBug(
        "note-not-synced", "A small file is renamed to its place before its bytes are synced.", "P10", "power-lost-standby",
        (*_LOST, *_SHUT), ((_WholeFile, "finish", _finish_without_sync),),
    ),
)
