"""A pair of real sites in this process, its backup, and new pairs from it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gateway.backup.restoring import Restored, Restorer
from gateway.backup.taking import BackupTaker, Taken
from gateway.backup.target import Target, opened
from gateway.backup.verifying import verify
from gateway.config.loading import load_site_config
from gateway.config.model import SiteConfig
from gateway.service.port import Mutation, WriteRequest
from remote_log.dfs.opening import DfsSettings
from storage.backup.manifest import NEWEST, WantedMoment
from storage.engine import StorageEngine, StoredRow
from storage.log.encryption import NO_KEYS, Keyring
from storage.rows.codec import RowCodec
from tests.pair.pair import Pair
from twinlog.errors import PeerError

DEADLINE_S = 60.0
Rows = dict[tuple[int, bytes], tuple[bytes, int]]


class Quiet:
    """A BackupProgress that keeps what it was given."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.figures: list[tuple[int, int | None, str]] = []

    def say(self, line: str) -> None:
        self.lines.append(line)

    begin = say

    def reached(self, done: int, total: int | None, shown: str) -> None:
        self.figures.append((done, total, shown))


class PairSites:
    """The sites of a pair, as twinlog.sites.Sites gives them, without HTTP."""

    def __init__(self, pair: Pair) -> None:
        self._pair, self._loop = pair, asyncio.get_running_loop()
        self.asked: list[str] = []
        self.urls = dict.fromkeys("ab", "")
        self.spoil: Callable[[bytes], bytes] = lambda piece: piece

    def ask_all(self, path: str) -> dict[str, dict[str, Any] | Exception]:
        return {name: {"role": str(running.site.role)} for name, running in self._pair.running.items()}

    def ask(self, site: str, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        if site not in self._pair.running:
            raise PeerError(f"site {site} does not answer")
        backups, (target, _, what) = self._pair.running[site].service.backups, path.rpartition("/")[2].partition(":")
        if method == "DELETE":
            work = backups.release(target)
        else:
            assert (what, body is not None) == ("complete", True)
            work = backups.complete(target, **(body or {}))
        asyncio.run_coroutine_threadsafe(work, self._loop).result(DEADLINE_S)
        return {}

    def stream(self, site: str, path: str, body: Mapping[str, Any]) -> Generator[bytes, None, None]:
        self.asked.append(path.rpartition(":")[2])
        if site not in self._pair.running:
            raise PeerError(f"site {site} does not answer")
        backups, (target, _, what) = self._pair.running[site].service.backups, path.rpartition("/")[2].partition(":")
        after = [body[name] for name in ("identity", "epoch", "seq") if name in body]
        source: AsyncGenerator[bytes, None]
        if what == "base":
            source = backups.base(target)
        else:
            source = backups.log(target, *after) if what == "log" else backups.kept(*after)
        try:
            while piece := asyncio.run_coroutine_threadsafe(_next(source), self._loop).result(DEADLINE_S):
                yield self.spoil(piece)
        finally:  # as a connection that is closed
            asyncio.run_coroutine_threadsafe(source.aclose(), self._loop).result(DEADLINE_S)


async def _next(source: AsyncIterator[bytes]) -> bytes:
    return await anext(source, b"")


@asynccontextmanager
async def target_at(folder: Path, keys: Keyring = NO_KEYS) -> AsyncIterator[Target]:
    async with opened(str(folder), DfsSettings(), makes=True, keys=keys) as target:
        yield target


async def back_up(
    pair: Pair | PairSites, folder: Path, *, new_base: bool = False, in_the_clear: bool = False, keys: Keyring = NO_KEYS
) -> Taken:
    sites = PairSites(pair) if isinstance(pair, Pair) else pair
    async with target_at(folder, keys) as target:
        taker = BackupTaker(sites, target, Quiet(), in_the_clear=in_the_clear)  # type: ignore[arg-type]
        return await taker.take(new_base=new_base)


def new_site(root: Path, site: str = "a", engine: str = "rocksdb") -> SiteConfig:
    """The configuration of a new pair's site, with what it needs."""
    for name in ("dfs-own", "dfs-peer"):
        (root / name).mkdir(parents=True, exist_ok=True)
    file = root / "site.toml"
    file.write_text(f"""
pair = "test"
site = "{site}"
data_dir = "{root / site}"
initial_active = "a"
[http]
port = 8401
[peer]
site = "{'b' if site == 'a' else 'a'}"
url = "http://127.0.0.1:8402"
[engine]
kind = "{engine}"
[dfs.own]
path = "{root / 'dfs-own'}"
[dfs.peer]
path = "{root / 'dfs-peer'}"
[coordinator]
url = "sqlite:///{root / 'coordinator.db'}"
""")
    return load_site_config(file, {})


async def restore(
    folder: Path, root: Path, moment: WantedMoment = NEWEST, site: str = "a", engine: str = "rocksdb",
    keys: Keyring = NO_KEYS,
) -> Restored:
    async with target_at(folder, keys) as target:
        return await Restorer(target, new_site(root, site, engine), Quiet()).restore(moment)


async def verified(folder: Path, keys: Keyring = NO_KEYS) -> tuple[int, list[str]]:
    async with target_at(folder, keys) as target:
        return await verify(target, Quiet())


async def rows_of(engine: StorageEngine) -> Rows:
    """Every row with its version, by table and key."""
    snapshot = await engine.snapshot()
    try:
        tables = sorted((await snapshot.state()).schemas())
        found: list[tuple[int, StoredRow]] = []
        for table in tables:
            found += [(table, row) for row in await snapshot.scan(table, None, None, reverse=False, limit=100_000)]
        return {(table, row.key): (row.value, row.version) for table, row in found}
    finally:
        snapshot.close()


async def put_together(pair: Pair, values: Mapping[int, str]) -> None:
    """Writes these rows of the table `t` in one request."""
    service = pair.running["a"].service
    table = service.tables.get("t")
    codec = RowCodec(table)
    rows = [codec.encode_json_row({"k": key, "v": value}) for key, value in values.items()]
    await service.rows.write(WriteRequest(table, [Mutation("upsert", key, value) for key, value in rows]))
