"""Plays a record on one model for each recorded folder.

What always holds: a model shows as `cached` what programs see below its folder; durable is what a sync covered that began
behind the end of a change. A folder is known from `load` on, as what stands in it then, which is durable; a file without a name
that was there before is nobody's concern.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from chaos.crash_states.files import Change, ModelFile, ModelFolder
from chaos.crash_states.model import ROOT, Model, Tree
from chaos.power_loss.record import (
    ALLOCATED,
    GONE,
    LINKED,
    MADE_FILE,
    MADE_FOLDER,
    RENAMED,
    SIZED,
    SYNCED,
    WROTE,
    Entry,
)


@dataclass(slots=True)
class Played:
    """Models by the path of their folder. `in_order`: which names in each change in the order of the calls (Model)."""

    in_order: Mapping[str, str | None]
    models: dict[str, Model] = field(default_factory=dict)
    _inodes: dict[int, tuple[str, int]] = field(default_factory=dict)  # of the disk: the folder, and the inode of its model
    _order: int = 0

    def load(self, folder: str, tree: Tree, folders: Mapping[str, int]) -> None:
        """`tree` stands in `folder`, durably, and nothing else. `folders`: their inodes by path; "": its own."""
        model = self.models[folder] = Model(in_order=self.in_order[folder])
        self._inodes = {inode: place for inode, place in self._inodes.items() if place[0] != folder}
        for inode, number in model.load(tree).items():
            self._inodes[inode] = folder, number
        for path, inode in folders.items():
            found = model.find(path)
            assert found is not None, path
            self._inodes[inode] = folder, found

    def play(self, entries: Iterable[Entry], cut: Collection[str] = (), cut_ns: int = 0) -> None:
        """`cut`: the folders that lost their power at `cut_ns`. A call on them that ended later was under way: what it was to
        sync may be lost or torn. Raises ValueError for an entry that fits to nothing that was played before."""
        for entry in entries:
            self._order = max(self._order + 1, entry.ended_ns)
            if entry.kind in (MADE_FILE, MADE_FOLDER, LINKED, RENAMED, GONE):
                self._names(entry)
            elif entry.inode in self._inodes:
                folder, number = self._inodes[entry.inode]
                model = self.models[folder]
                was_under_way = folder in cut and entry.ended_ns > cut_ns
                if entry.kind == SYNCED and not was_under_way:
                    model.sync(number, entry.began_ns)
                elif number in model.files:
                    self._change(model.files[number], entry, is_synced=entry.is_synced and not was_under_way)

    def _change(self, file: ModelFile, entry: Entry, *, is_synced: bool) -> None:
        changes: list[Change] = []
        if entry.kind == WROTE:
            changes = file.write(self._order, entry.data, entry.at)
        elif (entry.kind == SIZED and entry.at != file.length) or (entry.kind == ALLOCATED and entry.at > file.length):
            changes = file.set_length(self._order, entry.at)
        for change in changes:
            change.done = self._order
        if is_synced:
            touched = {change.sector for change in changes} | {None}
            file.sync(lambda change: change.sector in touched)

    def _names(self, entry: Entry) -> None:
        folder, path = self._below(entry.path)
        model = self.models[folder]
        if entry.kind in (LINKED, RENAMED):
            to, other = self._below(entry.other)
            if to != folder:
                raise ValueError(f"{entry.path} leads out of the folder that is recorded, to {entry.other}")
            inode = model.find(path)
            if inode is None:
                raise ValueError(f"the record has no {entry.path}")
            if inode == model.find(other):
                return  # two names of one file: rename does nothing
            model.set_name(other, inode, self._order, is_rename=entry.kind == RENAMED)
            if entry.kind == RENAMED:
                model.set_name(path, None, self._order, is_rename=True)
        elif entry.kind == GONE:
            model.set_name(path, None, self._order)
        else:
            number = model.number() if path else ROOT
            self._inodes[entry.inode] = folder, number
            if not path:
                return
            if entry.kind == MADE_FILE:
                model.files[number] = ModelFile()
            else:
                model.folders[number] = ModelFolder()
            model.set_name(path, number, self._order)

    def _below(self, path: str) -> tuple[str, str]:
        """The folder of a model, and the path in it."""
        for folder in self.models:
            if path == folder:
                return folder, ""
            if path.startswith(f"{folder}/"):
                return folder, path.removeprefix(f"{folder}/")
        raise ValueError(f"{path} is in no folder that is recorded")
