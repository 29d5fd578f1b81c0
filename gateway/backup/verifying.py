"""Reads every file that a backup needs."""

from __future__ import annotations

from gateway.backup.progress import BackupProgress, FilesRead
from gateway.backup.target import Target
from storage.backup.manifest import newest_of_each_base
from twinlog.cli.status import figure
from twinlog.errors import DamagedLog


async def verify(target: Target, progress: BackupProgress) -> tuple[int, list[str]]:
    """Returns how many files were read, and what is wrong. Raises NotFound, KeyUnavailable."""
    manifests = newest_of_each_base(await target.held())
    files = [part for manifest in manifests for part in manifest.parts]
    progress.begin(f"reading {figure(len(files), 'files')} of {target.place}")
    read, faults = FilesRead(progress, files), list[str]()
    for manifest in manifests:
        try:
            target.check(manifest)
        except DamagedLog as error:
            faults.append(error.message)
        for part in manifest.parts:
            try:
                await target.read(manifest, part)
            except DamagedLog as error:
                faults.append(error.message)
            read.add(part)
    return len(files), faults
