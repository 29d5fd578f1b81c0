"""Removes from a place of backups what is no longer wanted.

What always holds: a base is marked as one that no manifest names, then its manifests go, then what they name, then the mark.
So a prune that ends anywhere leaves a place whose every manifest is whole, and the next one removes what it left over.
"""

from __future__ import annotations

from gateway.backup.target import Target
from storage.backup.manifest import UNNAMED, Manifest
from storage.backup.pruning import Choice, unnamed_bases, unnamed_files


async def prune(target: Target, choice: Choice) -> None:
    """Removes the bases that are to go, and what calls that ended early left over."""
    going = {one.base.id for one in choice.go}
    manifests = await target.held()
    for one in sorted(going):
        await target.mark(one)
    await target.forget([one for one in manifests if one.base.id in going])
    await _sweep(target, [one for one in manifests if one.base.id not in going])


async def _sweep(target: Target, manifests: list[Manifest]) -> None:
    marked = [entry.name for entry in await target.dfs.list(f"/{UNNAMED}")]
    unnamed = unnamed_bases(marked, manifests)
    for one in unnamed:
        await target.dfs.delete(f"/base-{one}")
        await target.unmark(one)
    bases = {each.base.id for each in manifests}
    for one in bases.intersection(marked):
        await target.unmark(one)
    for folder in sorted(f"base-{one}" for one in bases):
        files = [entry.name for entry in await target.dfs.list(f"/{folder}")]
        for name in unnamed_files(files, folder, manifests):
            await target.dfs.delete(f"/{folder}/{name}")
