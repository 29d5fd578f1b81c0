"""A disk as the calls of a program leave it: what is durable, what may be, and every tree of files that a power loss may leave.

What always holds: only a sync makes anything durable: of a file its bytes and its length, never its name; of a folder the names
in it, never those above; a write with RWF_DSYNC, or on a descriptor of O_DSYNC, the sectors that it touches and no others. A
rename is atomic: the old name goes only where the new one is there. `cached` is what the program itself sees.
This module is pure.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from chaos.crash_states.calls import Call, text, texts
from chaos.crash_states.files import Change, ModelFile, ModelFolder, NameChange

Place = tuple[int, int | str | None]  # of an inode: a sector, its length (None), or a name
Tree = dict[str, tuple[int, bytes] | None]  # by path: the inode and its bytes; None: a folder
_ROOT = 0
_UNSEEN = {"copy_file_range", "sendfile", "splice", "io_uring_setup", "io_submit", "symlink", "symlinkat"}


@dataclass(slots=True)
class _Opened:
    inode: int
    appends: bool
    syncs: bool
    position: int = 0


@dataclass(slots=True)
class Disk:
    """The files below `root`. `marks`: the lines that the program wrote to the file `marks_path`, which is not below it.
    `names_in_order`: the names of a folder change on the disk in the order of the calls, as ext4 and XFS have it."""

    root: str
    marks_path: str
    names_in_order: bool = False
    files: dict[int, ModelFile] = field(default_factory=dict)
    folders: dict[int, ModelFolder] = field(default_factory=lambda: {_ROOT: ModelFolder()})
    marks: list[str] = field(default_factory=list)
    _opened: dict[int, _Opened | None] = field(default_factory=dict)  # None: the marks
    _made: int = _ROOT
    _running: dict[int, tuple[ModelFile, list[Change]]] = field(default_factory=dict)  # writes under way, by their beginning

    # ---- trees

    def load(self, tree: Tree) -> None:
        """`tree` is there and durable, before anything else."""
        inodes: dict[int, int] = {}
        for path, node in sorted(tree.items()):
            parent, name = self._parent(path)
            if node is None:
                number = self._number()
                self.folders[number] = ModelFolder()
            elif node[0] in inodes:
                number = inodes[node[0]]
            else:
                number = inodes[node[0]] = self._number()
                self.files[number] = ModelFile(bytearray(node[1]), len(node[1]), len(node[1]))
            self.folders[parent].durable[name] = number

    def write_unsynced(self, path: str, data: bytes, offset: int) -> None:
        """A program that is dead now wrote this into a file of `load`."""
        inode = self._find(path)
        assert inode is not None
        for change in self.files[inode].write(-1, data, offset):
            change.done = -1

    def after_death(self, root: str, marks_path: str) -> Disk:
        """The same disk when the program has died at once, and the power is still there: another one finds what was cached, and
        no more of it is durable than before. The files are below `root` now; the marks stay."""
        dead = copy.deepcopy(self)
        dead.root, dead.marks_path = root, marks_path
        dead._opened.clear()
        dead._running.clear()
        earlier = 1 + max(self.orders(), default=0)  # what comes next counts from 0
        for _, change in dead._changes():
            change.order -= earlier
            change.done = -1
            if isinstance(change, NameChange) and change.rename is not None:
                change.rename -= earlier
        return dead

    def places(self) -> dict[Place, int]:
        """Everything that is not durable, and how many changes it waits for."""
        found: dict[Place, int] = {}
        known = {_ROOT}
        for number, folder in self.folders.items():
            known.update(folder.durable.values())
            known.update(change.target for change in folder.changes if change.target is not None)
            found.update({(number, name): count for name, count in folder.counts().items()})
        for number, file in self.files.items():
            if number in known:
                found.update({(number, sector): count for sector, count in file.counts().items()})
        return found

    def orders(self) -> list[int]:
        """The calls whose changes are not all durable, in order."""
        return sorted({change.order for _, change in self._changes()})

    def taken_at(self, order: int) -> dict[Place, int]:
        """The choice of everything that was done up to the call `order`, and of nothing else."""
        return dict(Counter(place for place, change in self._changes() if change.order <= order))

    def taken_without(self, order: int) -> dict[Place, int]:
        """The choice of everything but the call `order`, as far as nothing came to the same place after it."""
        taken, before = self.places(), Counter[Place]()
        for place, change in self._changes():
            if change.order == order and place in taken:
                taken[place] = before[place]
            before[place] += 1
        return taken

    def tree(self, taken: Mapping[Place, int]) -> Tree:
        """The tree where each place has as many of its changes as `taken` says; what is not named there has none."""
        split: dict[int, dict[int | str | None, int]] = {}
        chosen = self._atomic(taken)
        while self.names_in_order and (ordered := self._atomic(self._in_order(chosen))) != chosen:
            chosen = ordered
        for (number, place), count in chosen.items():
            split.setdefault(number, {})[place] = count
        tree: Tree = {}
        self._walk(tree, "", _ROOT, split)
        return tree

    def cached(self) -> Tree:
        return self.tree(self.places())

    def _walk(self, tree: Tree, path: str, number: int, split: Mapping[int, Mapping[int | str | None, int]]) -> None:
        taken = {place: count for place, count in split.get(number, {}).items() if isinstance(place, str)}
        for name, inode in sorted(self.folders[number].names(taken).items()):
            below = f"{path}{name}"
            if inode in self.folders:
                tree[below] = None
                self._walk(tree, f"{below}/", inode, split)
            else:
                chosen = {place: count for place, count in split.get(inode, {}).items() if not isinstance(place, str)}
                tree[below] = inode, self.files[inode].content(chosen)

    def _changes(self) -> Iterator[tuple[Place, Change | NameChange]]:
        """Everything that is not durable, of each place in order."""
        for number, file in self.files.items():
            yield from (((number, change.sector), change) for change in file.changes)
        for number, folder in self.folders.items():
            yield from (((number, change.name), change) for change in folder.changes)

    def _in_order(self, taken: Mapping[Place, int]) -> dict[Place, int]:
        """Takes of each folder all changes of names before the last one that is taken."""
        chosen = dict(taken)
        for number, folder in self.folders.items():
            before: Counter[str] = Counter()
            upto: Counter[str] = Counter()
            for change in folder.changes:
                before[change.name] += 1
                if before[change.name] <= taken.get((number, change.name), 0):
                    upto = Counter(before)
            chosen.update({(number, name): count for name, count in upto.items()})
        return chosen

    def _atomic(self, taken: Mapping[Place, int]) -> dict[Place, int]:
        """Takes both halves of each rename, or the new name alone where the folders differ."""
        halves: dict[int, dict[bool, tuple[Place, int]]] = {}
        for number, folder in self.folders.items():
            seen: Counter[str] = Counter()
            for change in folder.changes:
                seen[change.name] += 1
                if change.rename is not None:
                    halves.setdefault(change.rename, {})[change.target is not None] = (number, change.name), seen[change.name]
        chosen = dict(taken)
        for _ in range(len(halves) + 1):
            for both in halves.values():
                if len(both) < 2:
                    continue
                (new, new_count), (old, old_count) = both[True], both[False]
                if chosen.get(old, 0) >= old_count:
                    chosen[new] = max(chosen.get(new, 0), new_count)
                elif new[0] == old[0] and chosen.get(new, 0) >= new_count:
                    chosen[old] = max(chosen.get(old, 0), old_count)
        return chosen

    def names_only(self) -> Tree:
        """The tree where every name is there, and of each file what was synced and nothing else. ext4 and XFS have no less: who
        syncs a new file there has its name on the disk, too."""
        return self.tree({(number, place): count for (number, place), count in self.places().items() if isinstance(place, str)})

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
            self._sync(self._inode_of(call), call.began)
        elif call.name in ("sync", "syncfs"):
            for number in (*self.files, *self.folders):
                self._sync(number, call.began)
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
            inode = self._find(self._path(text(args[0])))
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

    def _sync(self, inode: int | None, before: int) -> None:
        if inode in self.files:
            self.files[inode].sync(lambda change: change.done is not None and change.done < before)
        elif inode in self.folders:
            renames = {change.rename for change in self.folders[inode].fold(lambda change: change.done < before)} - {None}
            for folder in self.folders.values():  # the new name of what was renamed out of this folder
                folder.fold(lambda change: change.rename in renames and change.target is not None)

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
        inode = self._find(below)
        if inode is None:
            if "O_CREAT" not in flags:
                raise ValueError(f"the model of the disk has no {below}, which was opened")
            inode = self._number()
            self.files[inode] = ModelFile()
            self._name(below, inode, call)
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
            number = self._number()
            self.folders[number] = ModelFolder()
            self._name(first, number, call)
        elif call.name in ("unlink", "unlinkat", "rmdir"):
            self._name(first, None, call)
        elif call.name in ("link", "linkat"):
            self._name(last, self._find(first), call)
        elif call.name in ("rename", "renameat", "renameat2"):
            inode = self._find(first)
            if inode == self._find(last):
                return  # two names of one file: rename does nothing
            self._name(last, inode, call, call.ended)
            self._name(first, None, call, call.ended)

    def _name(self, path: str, target: int | None, call: Call, rename: int | None = None) -> None:
        parent, name = self._parent(path)
        self.folders[parent].changes.append(NameChange(call.ended, name, target, call.ended, rename))

    def _number(self) -> int:
        self._made += 1
        return self._made

    # ---- paths

    def _path(self, path: bytes) -> str | None:
        """The path below the root; None for one elsewhere."""
        shown = path.decode(errors="surrogateescape").rstrip("/")
        if shown == self.root:
            return ""
        return shown.removeprefix(f"{self.root}/") if shown.startswith(f"{self.root}/") else None

    def _find(self, path: str | None) -> int | None:
        if path is None:
            return None
        inode: int | None = _ROOT
        for part in path.split("/") if path else ():
            inode = self.folders[inode].names().get(part) if inode in self.folders else None
        return inode

    def _parent(self, path: str) -> tuple[int, str]:
        folder, _, name = path.rpartition("/")
        inode = self._find(folder)
        if inode is None or inode not in self.folders:
            raise ValueError(f"the model of the disk has no folder {folder!r}")
        return inode, name

    def _inode_of(self, call: Call) -> int | None:
        opened = self._opened.get(int(call.args[0]))
        return None if opened is None else opened.inode


def equal_trees(one: Tree, other: Tree, *, except_for: Iterable[str] = ()) -> list[str]:
    """The paths at which they differ; hard links are compared as such."""
    skipped = tuple(except_for)
    paths = [path for path in sorted({*one, *other}) if not skipped or not path.endswith(skipped)]
    return [path for path in paths if _shown(one, path) != _shown(other, path)]


def _shown(tree: Tree, path: str) -> object:
    node = tree.get(path, "absent")
    if node is None or isinstance(node, str):
        return node
    return node[1], [other for other, there in sorted(tree.items()) if there is not None and there[0] == node[0]]
