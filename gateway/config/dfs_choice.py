"""The DFS that a configuration names, for the gateway and for the commands that read a remote log.

What always holds: no Java machine is started for a directory. Source: gateway/config/model.py.
"""

from __future__ import annotations

from contextlib import AsyncExitStack

from gateway.config.model import DfsConfig, SiteConfig
from remote_log.dfs.directory import DirectoryDfs
from remote_log.dfs.hdfs.client import HdfsSettings
from remote_log.dfs.hdfs.dfs import HdfsDfs
from remote_log.dfs.hdfs.jvm import Java, java
from remote_log.dfs.port import Dfs
from twinlog.errors import ConfigError


def open_dfs(config: SiteConfig, which: str, stack: AsyncExitStack) -> Dfs:
    """`which`: own or peer; `stack` closes it.

    Raises ConfigError when it is an HDFS and there is no Java for it. Whether the DFS answers is not asked here.
    """
    part, site = (config.dfs.own, config.site) if which == "own" else (config.dfs.peer, config.peer.site)
    section = f"dfs.{which}"
    if part.kind == "directory":
        assert part.path is not None
        return DirectoryDfs(part.path, f"{section}.path", part.deadline_s)
    hdfs = HdfsDfs(
        HdfsSettings(
            url=part.url, section=section, conf_dir=part.conf_dir, options=part.options or {}, user=part.user,
            kerberos_principal=part.kerberos_principal, kerberos_keytab=part.kerberos_keytab, sync=part.sync,
            deadline_s=part.deadline_s, site=site,
        ),
        _java(config.dfs, section),
    )
    stack.push_async_callback(hdfs.close)
    return hdfs


def _java(config: DfsConfig, section: str) -> Java:
    try:
        return java(config.jvm_heap_bytes)
    except ConfigError as error:
        raise ConfigError(f'{section}.kind is "hdfs": {error.message}', **error.fields) from error
