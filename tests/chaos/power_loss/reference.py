"""The files that POSIX promises after a power loss, and no others: a second account that shares no code with the model.

What always holds: a file has the bytes and the length of its last sync, and the sectors of a write that synced itself; a folder
has the names of its last sync; a rename out of a folder that is synced is whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field

SECTOR = 512
Left = dict[str, bytes | None]  # None: a folder


@dataclass
class File:
    cached: bytes = b""
    durable: bytes = b""
    lowest: int = 0  # the shortest that it was since its last sync

    def put(self, offset: int, data: bytes) -> None:
        self.cached = self.cached[:offset].ljust(offset, b"\0") + data + self.cached[offset + len(data):]

    def resize(self, length: int) -> None:
        self.cached = self.cached[:length].ljust(length, b"\0")
        self.lowest = min(self.lowest, length)

    def sync(self) -> None:
        self.durable, self.lowest = self.cached, len(self.cached)

    def sync_part(self, offset: int, length: int) -> None:
        """The sectors of this range, and the length."""
        kept = bytearray(self.durable[: self.lowest].ljust(len(self.cached), b"\0")[: len(self.cached)])
        begin, end = offset // SECTOR * SECTOR, -(-(offset + length) // SECTOR) * SECTOR
        kept[begin:end] = self.cached[begin:end]
        self.durable, self.lowest = bytes(kept), len(self.cached)


@dataclass
class Folder:
    cached: dict[str, int] = field(default_factory=dict)
    durable: dict[str, int] = field(default_factory=dict)
    moved: list[tuple[Folder, str, int]] = field(default_factory=list)  # out of it, unsynced: to which folder, name and inode


@dataclass
class Reference:
    """`step` takes the steps that succeeded (programs/steps.py). Paths are relative; "" is the folder itself."""

    files: dict[int, File] = field(default_factory=dict)
    folders: dict[int, Folder] = field(default_factory=lambda: {0: Folder()})
    made: list[int] = field(default_factory=list)  # inodes, by the number of the file
    count: int = 0

    def find(self, path: str) -> int:
        inode = 0
        for part in path.split("/") if path else ():
            inode = self.folders[inode].cached[part]
        return inode

    def place(self, path: str) -> tuple[Folder, str]:
        above, _, name = path.rpartition("/")
        return self.folders[self.find(above)], name

    def step(self, name: str, *arguments: str | int) -> None:
        first, rest = arguments[0], arguments[1:]
        if isinstance(first, int):
            file = self.files[self.made[first]]
            if name in ("write", "write-synced"):
                offset, data = int(rest[0]), str(rest[1]).encode()
                file.put(offset, data)
                if name == "write-synced" and data:
                    file.sync_part(offset, len(data))
            elif name == "cut":
                file.resize(int(rest[0]))
            elif name == "allocate":
                file.resize(max(int(rest[0]), len(file.cached)))
            else:
                file.sync()
            return
        self.named(name, first, str(rest[0]) if rest else "")

    def named(self, name: str, path: str, other: str) -> None:
        if name == "sync-folder":
            self.sync_folder(self.folders[self.find(path)])
            return
        folder, own = self.place(path)
        if name in ("make", "mkdir"):
            self.count += 1
            folder.cached[own] = self.count
            if name == "make":
                self.files[self.count] = File()
                self.made.append(self.count)
            else:
                self.folders[self.count] = Folder()
        elif name == "empty":
            self.files[folder.cached[own]].resize(0)
        elif name in ("unlink", "rmdir"):
            del folder.cached[own]
        elif name in ("rename", "link"):
            to, new = self.place(other)
            if to.cached.get(new) == folder.cached[own]:
                return
            to.cached[new] = folder.cached[own]
            if name == "rename":
                folder.moved.append((to, new, folder.cached.pop(own)))

    def sync_folder(self, folder: Folder) -> None:
        folder.durable = dict(folder.cached)
        for to, new, inode in folder.moved:
            if to is not folder:
                to.durable[new] = inode
        folder.moved.clear()
        for other in self.folders.values():  # both halves of a rename into it need no more syncs of this one
            other.moved = [move for move in other.moved if move[0] is not folder]

    def left(self, folder: int = 0, path: str = "") -> Left:
        found: Left = {}
        for name, inode in self.folders[folder].durable.items():
            if inode in self.folders:
                found |= {f"{path}{name}": None} | self.left(inode, f"{path}{name}/")
            else:
                found[f"{path}{name}"] = self.files[inode].durable
        return found
