"""The DFS of a site by its configuration: a directory or an HDFS. Used by the gateway and by commands that read a remote log.

What always holds: no Java machine is started for a directory.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from remote_log.dfs.directory import DirectoryDfs
from remote_log.dfs.hdfs.client import HdfsSettings
from remote_log.dfs.hdfs.dfs import HdfsDfs
from remote_log.dfs.hdfs.jvm import Java, java
from remote_log.dfs.owner import Owner
from remote_log.dfs.port import Dfs
from storage.settings import MIB, RESTART, OneOf, Within
from twinlog.errors import ConfigError, DfsError

DEFAULT_HEAP_BYTES = 256 * MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class DfsSettings(HdfsSettings):
    """One site's DFS: a directory by its `path`, or an HDFS by its `url` and what belongs to that."""

    kind: Annotated[str, OneOf(("directory", "hdfs")), RESTART] = "directory"
    path: Annotated[Path | None, RESTART] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairDfsSettings:
    """`own` takes the peer's remote log while the peer is active; `peer` takes ours while we are."""

    own: DfsSettings
    peer: DfsSettings
    jvm_heap_bytes: Annotated[int, Within(64 * MIB, 65536 * MIB), RESTART] = DEFAULT_HEAP_BYTES  # of Hadoop's client, for both


def open_dfs(
    settings: PairDfsSettings, which: str, owner: Owner, stack: AsyncExitStack, *, marks: bool = False,
    apart_from: Dfs | None = None,
) -> Dfs:
    """The DFS of `owner`; `which`: own or peer; `stack` closes it. `marks`: the caller is the gateway whose own DFS it is.
    `apart_from`: a directory must not be that of this one.

    Raises ConfigError when it is an HDFS and there is no Java for it. Whether the DFS answers is not asked here.
    """
    part, section = settings.own if which == "own" else settings.peer, f"dfs.{which}"
    if part.kind == "directory":
        assert part.path is not None
        other = apart_from if isinstance(apart_from, DirectoryDfs) else None
        return DirectoryDfs(part.path, f"{section}.path", part.deadline_s, owner=owner, marks=marks, apart_from=other)
    part = replace(part, section=section, site=owner.site)
    hdfs = HdfsDfs(part, _java(settings.jvm_heap_bytes, section), owner=owner, marks=marks)
    stack.push_async_callback(hdfs.close)
    return hdfs


def open_hdfs(settings: DfsSettings, stack: AsyncExitStack) -> Dfs:
    """An HDFS folder that belongs to no site, such as a backup's; `stack` closes it. Raises ConfigError without Java."""
    hdfs = HdfsDfs(settings, _java(DEFAULT_HEAP_BYTES, settings.section))
    stack.push_async_callback(hdfs.close)
    return hdfs


async def warm_up(*dfss: Dfs) -> None:
    """Until an HDFS among them has taken a probe, or none has in time: no look of a site that serves then waits for Java to
    load its classes, which takes longer on a busy machine than a look may."""
    probes = [asyncio.ensure_future(dfs.probe()) for dfs in dfss if isinstance(dfs, HdfsDfs)]
    try:
        for probe in asyncio.as_completed(probes):
            with suppress(DfsError):
                await probe
                return
    finally:
        for probe in probes:
            probe.cancel()
        await asyncio.gather(*probes, return_exceptions=True)


def _java(heap_bytes: int, section: str) -> Java:
    try:
        return java(heap_bytes)
    except ConfigError as error:
        raise ConfigError(f'{section}.kind is "hdfs": {error.message}', **error.fields) from error
