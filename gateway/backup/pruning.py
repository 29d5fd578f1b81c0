"""Removes from a place of backups what is no longer wanted, and what calls that broke off left over.

What always holds: a base is marked as one that no manifest names, then its manifests go, then what they name, then the mark.
So a prune that ends anywhere leaves a place whose every manifest is whole, and the next one removes what it left over. What
may be of a call that runs goes by command only, and that call then ends without a manifest.
"""

from __future__ import annotations

from collections.abc import Sequence

from gateway.backup.target import Target
from storage.backup.manifest import Manifest
from storage.backup.pruning import Choice, Unfinished, unnamed_bases, unnamed_files


async def prune(target: Target, choice: Choice) -> None:
    """Removes the bases that are to go, and what calls that ended early left over."""
    going = {one.base.id for one in choice.go}
    manifests = await target.held()
    for one in choice.go:
        await target.mark(one.base.id, one.number)
    await target.forget([one for one in manifests if one.base.id in going])
    staying = [one for one in manifests if one.base.id not in going]
    await sweep(target, staying)
    for name in {one.base.id for one in staying}.intersection(await target.marked()):
        await target.unmark(name)


async def sweep(target: Target, manifests: Sequence[Manifest]) -> None:
    """Removes what no call can name any more. `manifests`: those that stay."""
    for one in unnamed_bases(await target.marked(), manifests):
        await target.remove_base(one)
    for folder in sorted({f"base-{each.base.id}" for each in manifests}):
        files = [entry.name for entry in await target.dfs.list(f"/{folder}")]
        for name in unnamed_files(files, folder, manifests):
            await target.dfs.delete(f"/{folder}/{name}")


async def remove_unfinished(target: Target, unfinished: Sequence[Unfinished]) -> int:
    """Removes these, also under a call that still runs. Returns how many: one that was published meanwhile stays."""
    removed = 0
    for one in unfinished:
        await target.give_up(one.base_id)  # before the look at the manifests; its call looks after it has published
        if one.base_id in {each.base.id for each in await target.manifests()}:
            await target.keep(one.base_id)
        else:
            await target.remove_rows(one.base_id)
            removed += 1
    return removed
