"""Trees of files between the model and a real folder."""

from __future__ import annotations

import os
from pathlib import Path

from chaos.crash_states.model import Tree


def write_tree(tree: Tree, folder: Path) -> None:
    """Makes `tree` in `folder`, which is there and empty; two names of one inode become hard links."""
    made: dict[int, Path] = {}
    for path, node in sorted(tree.items()):
        target = folder / path
        if node is None:
            target.mkdir()
        elif node[0] in made:
            os.link(made[node[0]], target)
        else:
            target.write_bytes(node[1])
            made[node[0]] = target


def read_tree(folder: Path) -> Tree:
    """The tree of `folder`, with the inodes of the disk."""
    tree: Tree = {}
    for path in sorted(folder.rglob("*")):
        tree[str(path.relative_to(folder))] = None if path.is_dir() else (path.stat().st_ino, path.read_bytes())
    return tree
