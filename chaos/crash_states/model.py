"""A model of a tree of files: the durable part, the part that may be durable, and every tree that a power loss may leave.

What always holds: only a sync makes anything durable: of a file its bytes and its length, never its name; of a folder the names
in it, never those above. A rename is atomic: the old name goes only where the new one is there. `cached` is what programs see.
This module is pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from chaos.crash_states.files import Change, ModelFile, ModelFolder, NameChange

Place = tuple[int, int | str | None]  # of an inode: a sector, its length (None), or a name
Tree = dict[str, tuple[int, bytes] | None]  # by path: the inode and its bytes; None: a folder
ROOT = 0


@dataclass(slots=True, kw_only=True)
class Model:
    """The files below one folder, by inodes of the model. `in_order`: the names of this folder, and of those below it, change
    on the disk in the order of the calls, as ext4 and XFS have it ("": of all folders; None: of no folder)."""

    in_order: str | None = None
    files: dict[int, ModelFile] = field(default_factory=dict)
    folders: dict[int, ModelFolder] = field(default_factory=lambda: {ROOT: ModelFolder()})
    _made: int = ROOT

    def load(self, tree: Tree) -> dict[int, int]:
        """`tree` is there and durable, before anything else. Returns the inode here of each inode of a file there."""
        inodes: dict[int, int] = {}
        for path, node in sorted(tree.items()):
            parent, name = self._parent(path)
            if node is None:
                number = self.number()
                self.folders[number] = ModelFolder()
            elif node[0] in inodes:
                number = inodes[node[0]]
            else:
                number = inodes[node[0]] = self.number()
                self.files[number] = ModelFile(bytearray(node[1]), len(node[1]), len(node[1]))
            self.folders[parent].durable[name] = number
        return inodes

    def write_unsynced(self, path: str, data: bytes, offset: int) -> None:
        """A program that is dead now wrote this into a file of `load`."""
        inode = self.find(path)
        assert inode is not None
        for change in self.files[inode].write(-1, data, offset):
            change.done = -1

    def places(self) -> dict[Place, int]:
        """Everything that is not durable, and how many changes it waits for."""
        found: dict[Place, int] = {}
        known = {ROOT}
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
        return sorted({change.order for _, change in self.changes()})

    def taken_at(self, order: int) -> dict[Place, int]:
        """The choice of everything that was done up to the call `order`, and of nothing else."""
        return dict(Counter(place for place, change in self.changes() if change.order <= order))

    def taken_without(self, order: int) -> dict[Place, int]:
        """The choice of everything but the call `order`, as far as nothing came to the same place after it."""
        taken, before = self.places(), Counter[Place]()
        for place, change in self.changes():
            if change.order == order and place in taken:
                taken[place] = before[place]
            before[place] += 1
        return taken

    def tree(self, taken: Mapping[Place, int]) -> Tree:
        """The tree where each place has as many of its changes as `taken` says; what is not named there has none."""
        split: dict[int, dict[int | str | None, int]] = {}
        chosen = self._atomic(taken)
        while self.in_order is not None and (ordered := self._atomic(self._in_order(chosen))) != chosen:
            chosen = ordered
        for (number, place), count in chosen.items():
            split.setdefault(number, {})[place] = count
        tree: Tree = {}
        self._walk(tree, "", ROOT, split)
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

    def changes(self) -> Iterator[tuple[Place, Change | NameChange]]:
        """Everything that is not durable, of each place in order."""
        for number, file in self.files.items():
            yield from (((number, change.sector), change) for change in file.changes)
        for number, folder in self.folders.items():
            yield from (((number, change.name), change) for change in folder.changes)

    def _in_order(self, taken: Mapping[Place, int]) -> dict[Place, int]:
        """Takes of each folder that is in order all changes of names before the last one that is taken."""
        chosen = dict(taken)
        for number in self._below(self.find(self.in_order)):
            folder = self.folders[number]
            before: Counter[str] = Counter()
            upto: Counter[str] = Counter()
            for change in folder.changes:
                before[change.name] += 1
                if before[change.name] <= taken.get((number, change.name), 0):
                    upto = Counter(before)
            chosen.update({(number, name): count for name, count in upto.items()})
        return chosen

    def _below(self, number: int | None) -> Iterator[int]:
        """This folder and those below it; none where it is no folder."""
        if number in self.folders:
            yield number
            for each in set(self.folders[number].names().values()):
                yield from self._below(each)

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

    # ---- changes

    def sync(self, inode: int | None, before: int) -> None:
        """Makes durable what had ended before `before`: of a file what it holds, of a folder its names."""
        if inode in self.files:
            self.files[inode].sync(lambda change: change.done is not None and change.done < before)
        elif inode in self.folders:
            renames = {change.rename for change in self.folders[inode].fold(lambda change: change.done < before)} - {None}
            for folder in self.folders.values():  # the new name of what was renamed out of this folder
                folder.fold(lambda change: change.rename in renames and change.target is not None)

    def set_name(self, path: str, target: int | None, order: int, *, is_rename: bool = False) -> None:
        """The name leads to the inode `target` since the call `order`, which has ended; None: it is gone."""
        parent, name = self._parent(path)
        self.folders[parent].changes.append(NameChange(order, name, target, order, order if is_rename else None))

    def number(self) -> int:
        """Returns an inode that nobody had."""
        self._made += 1
        return self._made

    # ---- paths

    def find(self, path: str | None) -> int | None:
        """Returns the inode to which programs see this name lead; None: there is none."""
        if path is None:
            return None
        inode: int | None = ROOT
        for part in path.split("/") if path else ():
            inode = self.folders[inode].names().get(part) if inode in self.folders else None
        return inode

    def _parent(self, path: str) -> tuple[int, str]:
        folder, _, name = path.rpartition("/")
        inode = self.find(folder)
        if inode is None or inode not in self.folders:
            raise ValueError(f"the model of the disk has no folder {folder!r}")
        return inode, name


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
