"""The place of a backup: a directory or an HDFS folder, behind the port of the DFS.

What always holds: a file of a backup is written whole and never again; what is read is what its manifest says, byte for byte,
or an error that names the file.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from gateway.backup.screens import unfinished_text
from remote_log.dfs.directory import DirectoryDfs
from remote_log.dfs.opening import DfsSettings, open_hdfs
from remote_log.dfs.port import Dfs
from storage.backup.manifest import (
    FOLDER,
    GIVEN_UP,
    PART_BYTES,
    UNNAMED,
    BackupFile,
    Manifest,
    decode_manifest,
    decode_mark,
    encode_manifest,
    encode_mark,
    manifest_name,
    manifest_number,
)
from storage.backup.pruning import Unfinished, unfinished_bases
from storage.backup.sealing import check_proof, open_file, proven, seal_file
from storage.disk.os_files import make_folders
from storage.log.encryption import NO_KEYS, Keyring
from twinlog.errors import Conflict, DamagedLog, DfsError, DfsExists, DfsNotFound, InvalidInput, NotFound, reason
from twinlog.wire.home_paths import expanded

DEADLINE_S = 60.0  # of a call, which may write a whole part


@dataclass(slots=True)
class Target:
    """The folder of one backup. `place` names it in messages."""

    place: str
    dfs: Dfs
    keys: Keyring = NO_KEYS

    async def manifests(self) -> list[Manifest]:
        """All of them, in the order of their numbers. Raises DamagedLog, Refused."""
        listed = [manifest_number(entry.name) for entry in await self.dfs.list(f"/{FOLDER}")]
        names = [manifest_name(number) for number in sorted(each for each in listed if each is not None)]
        return [decode_manifest(await self.dfs.read(f"/{name}"), f"{self.place}/{name}") for name in names]

    async def held(self) -> list[Manifest]:
        """As `manifests`. Raises NotFound when there is none."""
        found = await self.manifests()
        if not found:
            unfinished = await self.unfinished([])
            other = ": name the place that `twinlog backup --to` was given"
            part = f"; {unfinished_text(unfinished, self.place)}" if unfinished else other
            raise NotFound(f"{self.place} holds no backup that is whole: no manifest is there{part}")
        return found

    async def publish(self, manifest: Manifest) -> None:
        """Raises Conflict when another backup wrote to this place meanwhile; DfsError, and it may be there all the same."""
        try:
            await self.dfs.create_file(f"/{manifest_name(manifest.number)}", encode_manifest(proven(self.keys, manifest)))
        except DfsExists as error:
            raise Conflict(
                f"another backup wrote to {self.place} at the same time: its manifest stands, run this one again"
            ) from error
        except DfsError as error:
            raise DfsError(f"{error.message}; this one may be whole or not: the next call finds out", **error.fields) from error

    async def mark(self, base_id: str, number: int) -> None:
        """No manifest names this base yet, or soon none will: what there is of it may be removed (pruning.py). `number`: of the
        manifest that does name it, now or later."""
        with suppress(DfsExists):
            await self.dfs.create_file(f"/{UNNAMED}/{base_id}", encode_mark(number))

    async def unmark(self, base_id: str) -> None:
        await self.dfs.delete(f"/{UNNAMED}/{base_id}")

    async def marked(self) -> dict[str, int]:
        """The number of each base that is marked. What cannot be read is no mark of ours."""
        found: dict[str, int] = {}
        for entry in await self.dfs.list(f"/{UNNAMED}"):
            with suppress(DfsNotFound, DamagedLog):  # another call has removed it meanwhile
                name = f"{UNNAMED}/{entry.name}"
                found[entry.name] = decode_mark(await self.dfs.read(f"/{name}"), f"{self.place}/{name}")
        return found

    async def give_up(self, base_id: str) -> None:
        """From now on a call that still makes this base cannot end well (`is_given_up`)."""
        with suppress(DfsExists):
            await self.dfs.create_file(f"/{UNNAMED}/{base_id}{GIVEN_UP}", b"")

    async def is_given_up(self, base_id: str) -> bool:
        return base_id + GIVEN_UP in {entry.name for entry in await self.dfs.list(f"/{UNNAMED}")}

    async def keep(self, base_id: str) -> None:
        """Takes `give_up` back."""
        await self.dfs.delete(f"/{UNNAMED}/{base_id}{GIVEN_UP}")

    async def remove_rows(self, base_id: str) -> None:
        """Removes what there is of a base. Its mark stays, for a write whose answer was lost may land yet."""
        await self.dfs.delete(f"/base-{base_id}")

    async def remove_base(self, base_id: str) -> None:
        """Removes all that there is of a base that nobody can write any more, its marks last."""
        await self.remove_rows(base_id)
        await self.unmark(base_id)
        await self.keep(base_id)

    async def unfinished(self, manifests: Sequence[Manifest]) -> list[Unfinished]:
        """Returns what calls that run, or that broke off, have written of a base that none of the `manifests` names."""
        found: list[Unfinished] = []
        for one in unfinished_bases(await self.marked(), manifests):
            sizes = [entry.length for entry in await self.dfs.list(f"/base-{one}")]
            if sizes:
                found.append(Unfinished(one, len(sizes), sum(sizes)))
        return found

    async def forget(self, manifests: list[Manifest]) -> None:
        """Deletes the files of these manifests alone: newer ones name every part of theirs."""
        for manifest in manifests:
            await self.dfs.delete(f"/{manifest_name(manifest.number)}")

    def check(self, manifest: Manifest) -> None:
        """Raises KeyUnavailable, which names the key, and DamagedLog for a manifest that none of the keys has made."""
        check_proof(self.keys, manifest, f"{self.place}/{manifest_name(manifest.number)}")

    async def read(self, manifest: Manifest, part: BackupFile) -> bytes:
        """The content of a part. Raises KeyUnavailable; DamagedLog, which names the file, unless it is as the manifest says."""
        where = f"{self.place}/{part.name}"
        try:
            data = await self.dfs.read(f"/{part.name}")
        except DfsNotFound as error:
            raise DamagedLog(f"{where} is missing, and the backup needs it: {_REMEDY}", file=where, offset=0) from error
        if len(data) != part.length_bytes or hashlib.sha256(data).hexdigest() != part.sha256:
            seen = f"it has {len(data):,} bytes, and {part.length_bytes:,} were written"
            if len(data) == part.length_bytes:
                seen = "it was changed, for its SHA-256 is not the manifest's"
            raise DamagedLog(f"{where} is damaged: {seen}; {_REMEDY}", file=where, offset=0)
        return open_file(self.keys, manifest.key_id, part.name, data, where)


_REMEDY = "restore the file from a copy of the backup, or restore an earlier moment (`twinlog backup ls`), or another backup"


class PartWriter:
    """Puts what comes into files of about `bytes_max`: `<prefix>-000001` and so on."""

    def __init__(self, target: Target, prefix: str, bytes_max: int = PART_BYTES) -> None:
        self._target, self._prefix, self._bytes_max = target, prefix, bytes_max
        self._held = bytearray()
        self.parts: list[BackupFile] = []
        self.added_bytes = 0

    async def add(self, data: bytes) -> bool:
        """True when a file was ended behind `data`."""
        self._held += data
        self.added_bytes += len(data)
        if len(self._held) < self._bytes_max:
            return False
        await self.end()
        return True

    async def discard(self) -> None:
        """Removes what was written, also a file whose write got no answer."""
        for number in range(1, len(self.parts) + 2):
            await self._target.dfs.delete(f"/{self._name(number)}")

    async def end(self) -> bool:
        """True when there was something left to be written."""
        if not self._held:
            return False
        data, self._held = bytes(self._held), bytearray()
        name = self._name(len(self.parts) + 1)
        data = seal_file(self._target.keys, name, data)
        await self._target.dfs.create_file(f"/{name}", data)
        self.parts.append(BackupFile(name, len(data), hashlib.sha256(data).hexdigest()))
        return True

    def _name(self, number: int) -> str:
        return f"{self._prefix}-{number:06d}"


@asynccontextmanager
async def opened(
    place: str, hadoop: DfsSettings, *, makes: bool = False, keys: Keyring = NO_KEYS
) -> AsyncIterator[Target]:
    """The target at `place`, a directory or hdfs://NAMENODE:PORT/FOLDER. `hadoop`: the client's settings for an HDFS. `makes`:
    a directory that is not there. Raises NotFound, InvalidInput, ConfigError."""
    async with AsyncExitStack() as stack:
        if place.startswith("hdfs://"):
            settings = replace(hadoop, kind="hdfs", path=None, url=place, section="dfs.own", url_from="the place of the backup",
                               deadline_s=DEADLINE_S)
            yield Target(place.rstrip("/"), open_hdfs(settings, stack), keys)
            return
        if "://" in place:
            raise InvalidInput(f"{place} is no place of a backup: it is a directory, or hdfs://NAMENODE:PORT/FOLDER")
        folder = await asyncio.to_thread(_folder, place, makes=makes)
        yield Target(str(folder), DirectoryDfs(folder, "the backup's directory", DEADLINE_S), keys)


def _folder(place: str, *, makes: bool) -> Path:
    folder = expanded(place, "the place of the backup").absolute()
    try:
        if makes:
            make_folders(folder)
        is_there = folder.is_dir()
    except FileExistsError:
        is_there = False
    except OSError as error:
        raise NotFound(f"{folder} cannot be made: {reason(error)}; name a directory below one where you may write") from error
    if not is_there:
        wanted = "one, or a name that is free" if makes else "the one that `twinlog backup --to` was given"
        raise NotFound(f"{folder} is no directory: name {wanted}")
    return folder
