"""The data directory: whose it is, and that only one process uses it.

What always holds: the lock is taken before anything is read or written, and the kernel drops it with the process, also
after a kill; a directory keeps its pair, site and identity for life; a directory that holds somebody else's files is
never taken over; one that a restore fills is no site's before all of it is there.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import msgspec

from storage.disk.os_files import make_folders, sync_folder, write_whole
from twinlog.decoding import decoded
from twinlog.errors import DataDirectoryError, reason

LOCK_NAME = "LOCK"
OWNER_ONLY = 0o700  # it holds rows; one that the operator made keeps the mode that it was given
IDENTITY_NAME = "twinlog.json"
RESTORING_NAME = "restoring"  # a restore into this directory was begun, and has not ended
_NOT_OURS_BUT_FINE = {LOCK_NAME, RESTORING_NAME, IDENTITY_NAME + ".new", "lost+found"}


class Identity(msgspec.Struct, frozen=True):
    """The content of `twinlog.json`. `id` distinguishes two directories of one site, e.g. after one was lost."""

    pair: str
    site: str
    id: str


_decode = msgspec.json.Decoder(Identity).decode


class DataDir:
    """A locked data directory, until `close` or the end of the process. `id`: of its Identity."""

    def __init__(self, lock: int, id: str) -> None:
        self._lock, self.id = lock, id

    def close(self) -> None:
        """Give the lock back. Closing twice is fine."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)


def open_data_dir(path: Path, pair: str, site: str, *, restores: bool = False) -> DataDir:
    """Lock `path`, making it when it is new, and check that it is this site's. Blocking. `restores`: the caller restores a
    backup into it. Raises DataDirectoryError, also for one in which a restore has not ended."""
    try:
        is_new = not path.exists()
        make_folders(path.absolute())
        if is_new:
            path.chmod(OWNER_ONLY)
        lock = _take_lock(path)
    except OSError as error:
        raise DataDirectoryError(f"{path} cannot be used as data directory: {reason(error)}", path=str(path)) from error
    try:
        _check_restore(path, restores=restores)
        return DataDir(lock, _identify(path, pair, site))
    except BaseException:
        os.close(lock)
        raise


def end_restore(path: Path) -> None:
    """Durably: from now on the directory is a site's. Its caller has it open. Raises OSError."""
    (path / RESTORING_NAME).unlink()
    sync_folder(path)


def _check_restore(path: Path, *, restores: bool) -> None:
    """Marks an empty directory, durably and before anything else is in it, as one that a restore fills; one that an earlier
    restore marked may hold anything. Nobody else uses it until the mark is gone."""
    is_marked = (path / RESTORING_NAME).exists()
    if is_marked and not restores:
        raise DataDirectoryError(
            f"{path} holds half of a backup: a restore into it did not end; run `twinlog restore` again, which begins anew",
            path=str(path),
        )
    if restores and not is_marked:
        if held := sorted(set(os.listdir(path)) - _NOT_OURS_BUT_FINE - {IDENTITY_NAME}):
            raise DataDirectoryError(
                f"{path} holds {held[0]!r}: a restore fills an empty directory only; name another one in data_dir",
                path=str(path),
            )
        write_whole(path / RESTORING_NAME, b"`twinlog restore` fills this directory: it is not whole while this file is here\n")


def _take_lock(path: Path) -> int:
    lock = os.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(lock, 32, 0).decode("ascii", "replace").strip() or "unknown"
        os.close(lock)
        raise DataDirectoryError(
            f"{path} is used by a running process, pid {holder}; stop it first, or give this one a directory of its own",
            path=str(path), pid=int(holder) if holder.isdigit() else None,
        ) from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, b"%d\n" % os.getpid(), 0)
    return lock


def _identify(path: Path, pair: str, site: str) -> str:
    """Returns the id of the directory."""
    file = path / IDENTITY_NAME
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return _found(path, pair, site)
    identity = decoded(_decode, data, lambda what: DataDirectoryError(
        f"{file} cannot be read: {what}; restore it from a copy", path=str(path)
    ))
    for what, theirs, ours in (("pair", identity.pair, pair), ("site", identity.site, site)):
        if theirs != ours:
            raise DataDirectoryError(
                f"{path} belongs to {what} {theirs!r}, and this is {what} {ours!r}; correct the data directory in the"
                " configuration, or give this site an empty one",
                path=str(path), belongs_to=theirs, configured=ours,
            )
    return identity.id


def _found(path: Path, pair: str, site: str) -> str:
    """A first start. Returns the id of the directory."""
    if strangers := sorted(set(os.listdir(path)) - _NOT_OURS_BUT_FINE):
        raise DataDirectoryError(
            f"{path} holds {strangers[0]!r} but no {IDENTITY_NAME}: it is no data directory of twinlog; choose an empty one",
            path=str(path),
        )
    identity = Identity(pair, site, os.urandom(8).hex())
    write_whole(path / IDENTITY_NAME, msgspec.json.format(msgspec.json.encode(identity)) + b"\n")
    return identity.id
