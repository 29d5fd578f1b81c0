"""The part of the Dfs port that WebHDFS can do, without Java: list, read (open files too), lock files, delete, probe.

What always holds: what is here keeps the promises of dfs.py. What WebHDFS cannot do (open a file for synced appends, recover a
lease) raises DfsError and changes nothing. A whole small file is written under a hidden name, synced block by block, and
renamed to a name that must not exist. Nothing is made or listed when the root is missing. Every request has a time-out and
every call a deadline, after which it is unknown whether it happened. It shows no part of a failed transfer as content.
Limits: the NameNode knows the length of an open file only up to its last whole block, so that is what a listing tells; `read`
gets all synced bytes. With several URLs a request goes to the next one when a NameNode is down or a standby.
Source: reference hdfs-clients.md, `hdfs` 2.7.3.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import requests
from hdfs.client import InsecureClient, _Request, _to_error  # type: ignore[import-untyped]
from hdfs.util import HdfsError  # type: ignore[import-untyped]

from remote_log.dfs.hdfs.errors import judged
from remote_log.dfs.port import DfsEntry, DfsWriter, path_parts
from storage.disk.workers import HangTolerantPool
from twinlog.errors import ConfigError, DfsError, DfsNotFound

T = TypeVar("T")
CALLS_MAX = 8
READ_BYTES = 1 << 20
_FAILURES = (HdfsError, requests.RequestException, KeyError, ValueError)  # the last two: an answer that is no WebHDFS
_BEHIND_BLOCKS = "out of the range"  # the NameNode, of an offset behind the last whole block
_BEHIND_END = "Cannot seek after EOF"  # a DataNode, of an offset behind what it has; a lost connection is an EOF too
_block_locations = _Request("GET").to_method("GET_BLOCK_LOCATIONS")


@dataclass(frozen=True, slots=True)
class WebHdfsSettings:
    """`section` names these settings in messages, e.g. dfs.peer."""

    urls: tuple[str, ...]  # http(s)://NAMENODE:WEB_PORT, one for each NameNode
    root: str  # absolute; must exist
    section: str
    user: str = ""  # empty: the user of this process
    kerberos: bool = False  # the ticket of this process's user, instead of `user`
    deadline_s: float = 10.0  # of every call


class WebHdfs:
    """Blocking calls on threads of its own, within a deadline."""

    def __init__(self, settings: WebHdfsSettings) -> None:
        self._settings = settings
        self._root = settings.root.rstrip("/")
        self._client = _client(settings)
        self._crew = HangTolerantPool(f"webhdfs {settings.section}", CALLS_MAX)
        self._root_id: int | None = None

    async def create_file(self, path: str, content: bytes) -> None:
        abandoned = threading.Event()

        def work() -> None:
            self._check_root()
            target = self._at(path)
            folder, _, name = target.rpartition("/")
            hidden = f"{folder}/.tmp.{secrets.token_hex(8)}.{name}"
            try:
                self._write(hidden, content)
                own_id = self._client.status(hidden)["fileId"]
                if not abandoned.is_set():
                    self._rename(hidden, target, own_id)
            except BaseException:
                with suppress(*_FAILURES):
                    self._client.delete(hidden)
                raise

        try:
            await self._call("create", path, work)
        except BaseException:
            abandoned.set()
            raise

    async def create(self, path: str) -> DfsWriter:
        raise self._cannot("open a file for appending", path)

    async def list(self, folder: str) -> list[DfsEntry]:
        def work() -> list[DfsEntry]:
            entries = []
            for name, status in self._client.list(self._at(folder), status=True):
                if not name.startswith("."):
                    is_folder = status["type"] == "DIRECTORY"
                    entries.append(DfsEntry(name, 0 if is_folder else status["length"], is_folder))
            return sorted(entries, key=lambda entry: entry.name)

        try:
            return await self._call("list", folder, work)
        except DfsNotFound:
            return []

    async def read(self, path: str, offset: int = 0, length: int | None = None) -> bytes:
        def work() -> bytes:
            place = self._at(path)
            try:
                return self._read(place, offset, length)
            except HdfsError as error:
                if _BEHIND_BLOCKS not in str(error.message):
                    raise
            known = self._client.status(place)["length"]  # of whole blocks; behind them there may be one that is written
            before = offset - max(0, known - 1)
            return self._read(place, offset - before, None if length is None else before + length)[before:]

        return b"" if length == 0 else await self._call("read", path, work)

    async def delete(self, path: str) -> None:
        await self._call("delete", path, lambda: self._client.delete(self._at(path), recursive=True))

    async def recover_lease(self, path: str) -> None:
        raise self._cannot("recover a lease", path)

    async def is_closed(self, path: str) -> bool:
        def work() -> bool:
            is_open: bool = _block_locations(self._client, self._at(path)).json()["LocatedBlocks"]["isUnderConstruction"]
            return not is_open

        return await self._call("ask whether somebody writes", path, work)

    async def probe(self) -> None:
        """Write and delete a byte: a DataNode too must take part."""
        def work() -> None:
            self._check_root()
            trial = f"{self._root}/.tmp.{secrets.token_hex(8)}.probe"
            try:
                self._write(trial, b"\0")
            finally:
                self._client.delete(trial)

        await self._call("write to", "/", work)

    async def close(self) -> None:
        await self._crew.close()
        self._client._session.close()

    # ---- on a thread of the crew
    def _at(self, path: str) -> str:
        return "/".join([self._root, *path_parts(path)])

    def _write(self, place: str, content: bytes) -> None:
        """A new file, on the disks of its DataNodes when this returns. The NameNode only says which DataNode takes it."""
        answer = self._client._create(place, overwrite="false", createflag="CREATE,SYNC_BLOCK")
        taken = self._client._request("PUT", answer.headers["location"], data=content)
        if not taken.ok:
            raise _to_error(taken)

    def _rename(self, hidden: str, target: str, own_id: int) -> None:
        """Raises FileAlreadyExistsException as HdfsError. A request that was repeated at another NameNode may find that it
        was done before."""
        try:
            self._client._rename(hidden, destination=target, renameoptions="NONE")
        except HdfsError:
            with suppress(HdfsError):
                if self._client.status(target)["fileId"] == own_id:
                    return
            raise

    def _read(self, place: str, offset: int, length: int | None) -> bytes:
        try:
            with self._client.read(place, offset=offset, length=length, chunk_size=READ_BYTES) as pieces:
                return b"".join(pieces)
        except HdfsError as error:
            if _BEHIND_END in str(error.message):
                return b""
            raise

    def _check_root(self) -> None:
        settings = self._settings
        try:
            seen = self._client.status(self._root or "/")
        except HdfsError as error:
            if error.exception != "FileNotFoundException":
                raise
            seen = {"type": "nothing"}
        if seen["type"] != "DIRECTORY":
            raise DfsError(
                f"the DFS folder {self._where} ({settings.section}) is not there: create it with `hdfs dfs -mkdir -p`, owned by"
                f" the user of the gateway, or correct {settings.section}", setting=settings.section,
            )
        if self._root_id is None:
            self._root_id = seen["fileId"]
        if seen["fileId"] != self._root_id:
            raise DfsError(
                f"the DFS folder {self._where} ({settings.section}) is not the one that was there before: bring the right one"
                " back, or restart if it was replaced on purpose", setting=settings.section,
            )

    # ---- errors and deadlines
    @property
    def _where(self) -> str:
        return f"{self._root or '/'} at {' or '.join(self._settings.urls)}"

    def _cannot(self, doing: str, path: str) -> DfsError:
        return DfsError(
            f"WebHDFS cannot {doing}, as was asked for {path} below {self._where}: use a DFS of kind hdfs with an hdfs://"
            " address, which needs Java", path=path,
        )

    async def _call(self, doing: str, path: str, work: Callable[[], T]) -> T:
        def guarded() -> T:
            try:
                return work()
            except _FAILURES as error:
                found = self._mapped(error, doing, path)
                if isinstance(found, DfsNotFound):
                    with suppress(*_FAILURES):
                        self._check_root()
                raise found from error

        try:
            async with asyncio.timeout(self._settings.deadline_s):
                return await asyncio.shield(await self._crew.start(guarded))
        except TimeoutError as error:
            raise DfsError(
                f"cannot {doing} {path} below {self._where}: no answer within {self._settings.deadline_s} s, so it is unknown"
                f" whether it happened; check that HDFS, the network, or {self._settings.section}", path=path,
            ) from error

    def _mapped(self, error: Exception, doing: str, path: str) -> DfsError:
        settings = self._settings
        words = str(error).partition("\n")[0]
        kind, remedy = DfsError, f"check that WebHDFS answers at {' or '.join(settings.urls)}"
        asked = getattr(getattr(error, "request", None), "url", None) or settings.urls[0]
        if not asked.startswith(settings.urls):
            remedy = "check that the DataNodes run, and can be reached from here by the names that the NameNode has for them"
        if isinstance(error, HdfsError):
            kind, remedy = judged(error.exception or "", words)
            user = settings.user or "this process's user"
            remedy = remedy.format(section=settings.section, url=self._where, user=user)
        where = f"{path} below {self._where}"
        return kind(f"cannot {doing} {where}: {words}" + (f"; {remedy}" if remedy else ""), path=path, setting=settings.section)


def _client(settings: WebHdfsSettings) -> Any:
    urls = ";".join(settings.urls)
    timeout_s = settings.deadline_s / len(settings.urls)  # of each wait for a NameNode, so that the next one has its turn
    if not settings.kerberos:
        return InsecureClient(urls, user=settings.user or None, timeout=timeout_s)
    try:
        from hdfs.ext.kerberos import KerberosClient  # type: ignore[import-untyped]
    except ImportError as error:
        raise ConfigError(
            f"{settings.section} asks for Kerberos over WebHDFS, and the package requests-kerberos is not installed: install it"
            " (`pip install hdfs[kerberos]`)", section=settings.section,
        ) from error
    return KerberosClient(urls, timeout=timeout_s)

