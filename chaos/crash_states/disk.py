"""A disk as the system calls of a program leave it: the model, with descriptors, and the marks that the program said meanwhile.

What always holds: a sync covers only what had ended before it began; a write with RWF_DSYNC, or on a descriptor of O_DSYNC,
makes the sectors that it touches durable and no others; a call that the model does not know is an error.
This module is pure.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

from chaos.crash_states.calls import Call, text, texts
from chaos.crash_states.files import Change, ModelFile, ModelFolder, NameChange
from chaos.crash_states.model import Model

_UNSEEN = {"copy_file_range", "sendfile", "splice", "io_uring_setup", "io_submit", "symlink", "symlinkat"}


@dataclass(slots=True)
class _Opened:
    inode: int
    appends: bool
    syncs: bool
    position: int = 0


@dataclass(slots=True)
class Disk(Model):
    """The files below `root`. `marks`: the lines that the program wrote to the file `marks_path`, which is not below it."""

    root: str
    marks_path: str
    marks: list[str] = field(default_factory=list)
    _opened: dict[int, _Opened | None] = field(default_factory=dict)  # None: the marks
    _running: dict[int, tuple[ModelFile, list[Change]]] = field(default_factory=dict)  # writes under way, by their beginning

    def after_death(self, root: str, marks_path: str) -> Disk:
        """The same disk when the program has died at once, and the power is still there: another one finds what was cached, and
        no more of it is durable than before. The files are below `root` now; the marks stay."""
        dead = copy.deepcopy(self)
        dead.root, dead.marks_path = root, marks_path
        dead._opened.clear()
        dead._running.clear()
        earlier = 1 + max(self.orders(), default=0)  # what comes next counts from 0
        for _, change in dead.changes():
            change.order -= earlier
            change.done = -1
            if isinstance(change, NameChange) and change.rename is not None:
                change.rename -= earlier
        return dead

    # ---- calls

    def begin(self, call: Call) -> None:
        """The call is under way: what it writes may be on the disk already."""
        if call.name == "close":
            self._opened.pop(int(call.args[0]), None)
            return
        if call.name == "sendfile" and int(call.args[0]) not in self._opened:
            return  # into a socket, or out of the folder
        if call.name in _UNSEEN:
            raise ValueError(f"the model of the disk knows no {call.name}")
        changed = self._changed(call)
        if changed is not None:
            self._running[call.began] = changed

    def end(self, call: Call) -> None:
        running = self._running.pop(call.began, None)
        if running is not None:
            file, changes = running
            for change in changes:
                change.done = call.ended
            if self._is_synced(call):
                touched = {change.sector for change in changes} | {None}
                file.sync(lambda change: change.done is not None and change.sector in touched)
        elif call.name in ("fsync", "fdatasync"):
            self.sync(self._inode_of(call), call.began)
        elif call.name in ("sync", "syncfs"):
            for number in (*self.files, *self.folders):
                self.sync(number, call.began)
        elif call.name in ("open", "openat", "creat"):
            self._open(call)
        elif call.name in ("dup", "dup2", "dup3") or (call.name == "fcntl" and call.args[1].startswith("F_DUPFD")):
            source = int(call.args[0])
            if source in self._opened:
                self._opened[call.result] = self._opened[source]
        elif call.name == "lseek":
            opened = self._opened.get(int(call.args[0]))
            if opened is not None:
                opened.position = call.result
        else:
            self._names(call)

    def _changed(self, call: Call) -> tuple[ModelFile, list[Change]] | None:
        """The changes of a call that writes into a file below the root, or sets its length."""
        name, args = call.name, call.args
        if name == "truncate":
            inode = self.find(self._path(text(args[0])))
            return None if inode is None else (self.files[inode], self.files[inode].set_length(call.ended, int(args[1])))
        if name not in ("write", "writev", "pwrite64", "pwritev", "pwritev2", "ftruncate", "fallocate"):
            return None
        descriptor = int(args[0])
        if descriptor not in self._opened:
            return None
        opened = self._opened[descriptor]
        if opened is None:
            self.marks += texts(args[1]).decode().splitlines()
            return None
        file = self.files[opened.inode]
        if name == "ftruncate":
            return file, file.set_length(call.ended, int(args[1]))
        if name == "fallocate":
            return self._allocated(file, call)
        data = texts(args[1])[: call.result]
        if name in ("write", "writev"):
            offset = file.length if opened.appends else opened.position
            opened.position = offset + len(data)
        else:
            offset = int(args[3])
        return file, file.write(call.ended, data, offset)

    @staticmethod
    def _allocated(file: ModelFile, call: Call) -> tuple[ModelFile, list[Change]] | None:
        mode, end = call.args[1], int(call.args[2]) + int(call.args[3])
        if "PUNCH_HOLE" in mode or "ZERO_RANGE" in mode:
            zeros = min(end, file.length) - int(call.args[2])
            return file, file.write(call.ended, bytes(max(0, zeros)), int(call.args[2]))
        if "KEEP_SIZE" in mode or end <= file.length:
            return None
        return file, file.set_length(call.ended, end)

    def _is_synced(self, call: Call) -> bool:
        opened = self._opened.get(int(call.args[0])) if call.args[0].isdigit() else None
        flags = call.args[4] if call.name == "pwritev2" else ""
        return "RWF_DSYNC" in flags or "RWF_SYNC" in flags or (opened is not None and opened.syncs and "write" in call.name)

    def _open(self, call: Call) -> None:
        at = 0 if call.name == "openat" else -1
        flags = "O_CREAT|O_WRONLY|O_TRUNC" if call.name == "creat" else call.args[at + 2]
        path = text(call.args[at + 1]).decode()
        if path == self.marks_path:
            self._opened[call.result] = None
            return
        below = self._path(text(call.args[at + 1]))
        if below is None:
            self._opened.pop(call.result, None)
            return
        inode = self.find(below)
        if inode is None:
            if "O_CREAT" not in flags:
                raise ValueError(f"the model of the disk has no {below}, which was opened")
            inode = self.number()
            self.files[inode] = ModelFile()
            self.set_name(below, inode, call.ended)
        elif "O_TRUNC" in flags and self.files[inode].length:
            for change in self.files[inode].set_length(call.ended, 0):
                change.done = call.ended
        self._opened[call.result] = _Opened(inode, "O_APPEND" in flags, "O_SYNC" in flags or "O_DSYNC" in flags)

    def _names(self, call: Call) -> None:
        paths = [self._path(text(argument)) for argument in call.args if argument.startswith('"')]
        if not paths or all(path is None for path in paths):
            return
        if any(path is None for path in paths):
            raise ValueError(f"{call.name} leads out of the folder that is recorded")
        first, last = paths[0] or "", paths[-1] or ""
        if call.name in ("mkdir", "mkdirat"):
            number = self.number()
            self.folders[number] = ModelFolder()
            self.set_name(first, number, call.ended)
        elif call.name in ("unlink", "unlinkat", "rmdir"):
            self.set_name(first, None, call.ended)
        elif call.name in ("link", "linkat"):
            self.set_name(last, self.find(first), call.ended)
        elif call.name in ("rename", "renameat", "renameat2"):
            inode = self.find(first)
            if inode == self.find(last):
                return  # two names of one file: rename does nothing
            self.set_name(last, inode, call.ended, is_rename=True)
            self.set_name(first, None, call.ended, is_rename=True)

    # ---- paths

    def _path(self, path: bytes) -> str | None:
        """The path below the root; None for one elsewhere."""
        shown = path.decode(errors="surrogateescape").rstrip("/")
        if shown == self.root:
            return ""
        return shown.removeprefix(f"{self.root}/") if shown.startswith(f"{self.root}/") else None

    def _inode_of(self, call: Call) -> int | None:
        opened = self._opened.get(int(call.args[0]))
        return None if opened is None else opened.inode
