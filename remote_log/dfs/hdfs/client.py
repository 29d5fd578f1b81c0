"""Hadoop's client for one HDFS: its settings, its login, and the settings that it must not have.

What always holds: the site's own Hadoop files come first, then what is set here for a log's sake where those say nothing,
and over both the keys that the configuration names one by one; a file's checksum chunk is what the remote log's frames are
aligned to, whatever any of them says; nothing is read from the environment's class path. Reads that
may be stale are refused: a writer that lists the claims must see the newest. Source: reference hdfs-clients.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from remote_log.dfs.hdfs.jvm import Java
from storage.log.segment import REMOTE_ALIGNMENT
from storage.settings import RESTART, NotInFile, OneOf, Within
from twinlog.errors import DfsError

SITE_FILES = ("core-site.xml", "hdfs-site.xml")
CHUNK_KEY = "dfs.bytes-per-checksum"


@dataclass(frozen=True, slots=True)
class HdfsSettings:
    """`section` names these settings in messages, e.g. dfs.peer; `site` whose HDFS it is, if that is known; `url_from` what
    gave the address, where that is no setting."""

    url: Annotated[str, RESTART] = ""  # hdfs://NAMENODE:PORT/ROOT or hdfs://NAMESERVICE/ROOT; the root must exist
    section: Annotated[str, NotInFile()] = "dfs"
    conf_dir: Annotated[Path | None, RESTART] = None  # holds core-site.xml, hdfs-site.xml
    options: Annotated[Mapping[str, str], RESTART] = field(default_factory=dict)  # Hadoop's own keys, over everything else
    user: Annotated[str, RESTART] = ""  # who the client says it is; empty: the user of this process, or of its Kerberos ticket
    kerberos_principal: Annotated[str, RESTART] = ""
    kerberos_keytab: Annotated[Path | None, RESTART] = None
    sync: Annotated[str, OneOf(("hsync", "hflush")), RESTART] = "hsync"  # hsync: on the DataNodes' disks; hflush: in memory
    deadline_s: Annotated[float, Within(0.1, 600), RESTART] = 5.0  # of every call
    site: Annotated[str, NotInFile()] = ""
    url_from: Annotated[str, NotInFile()] = ""
    # NameNodes ignore a second call for 30 heartbeats; old ones begin anew with each
    recover_again_s: Annotated[float, NotInFile()] = 31.0

    @property
    def root(self) -> str:
        return urlsplit(self.url).path.rstrip("/")

    @property
    def url_name(self) -> str:
        """Returns what to correct where the address is wrong."""
        return self.url_from or f"{self.section}.url"

    @property
    def where(self) -> str:
        """Names this DFS in messages: the address, whose it is, and where it was given."""
        return f"{self.url} ({f'the DFS of site {self.site}, ' if self.site else ''}{self.url_name})"


def log_defaults(deadline_s: float) -> dict[str, str]:
    """Returns the settings of a log on a small cluster: no waiting for a third DataNode that there is not, and no time-out far
    beyond the deadline of the port, so that the threads of calls that were given up come back."""
    deadline_ms = str(int(deadline_s * 1000))
    return {
        "dfs.client.block.write.replace-datanode-on-failure.policy": "NEVER",
        "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": "20",
        "dfs.client.block.write.locateFollowingBlock.retries": "9",
        "dfs.client.socket-timeout": deadline_ms,
        "dfs.client.datanode-restart.timeout": "1",
        "dfs.client.retry.window.base": "500",
        "dfs.client.retry.interval-ms.get-last-block-length": "500",
        "dfs.client.failover.sleep.max.millis": "2000",
        "dfs.client.failover.max.attempts": "6",
        "ipc.client.connect.timeout": deadline_ms,
        "ipc.client.connect.max.retries": "1",
        "ipc.client.connect.max.retries.on.timeouts": "0",
        "ipc.client.rpc-timeout.ms": deadline_ms,
        "ipc.client.tcpnodelay": "true",
        "fs.automatic.close": "false",
    }


def configuration(java: Java, settings: HdfsSettings) -> Any:
    """A Hadoop Configuration. Raises DfsError for one that would break a promise."""
    conf, site = java.HdfsConfiguration(), java.Configuration(False)
    for name in SITE_FILES if settings.conf_dir is not None else ():
        path = f"{settings.conf_dir}/{name}"
        if Path(path).is_file():
            conf.addResource(java.Path(path))
            site.addResource(java.Path(path))
    for key, value in log_defaults(settings.deadline_s).items():
        if site.get(key) is None:
            conf.set(key, value)
    for key, value in settings.options.items():
        conf.set(key, value)
    _pin_chunk(conf, settings)
    authority = urlsplit(settings.url).netloc
    provider = conf.get(f"dfs.client.failover.proxy.provider.{authority}")
    if provider is not None and "Observer" in str(provider):
        raise DfsError(
            f"{settings.url} ({settings.section}) would be read from observer NameNodes, whose answers may be old: a fenced"
            f" writer could miss the claim against it; set dfs.client.failover.proxy.provider.{authority} to"
            f" ConfiguredFailoverProxyProvider under {settings.section}.options", section=settings.section,
        )
    return conf


def _pin_chunk(conf: Any, settings: HdfsSettings) -> None:
    """Sets the checksum chunk, over the site's Hadoop files too. Raises DfsError for an option that names another one."""
    wanted = settings.options.get(CHUNK_KEY, str(REMOTE_ALIGNMENT))
    if wanted != str(REMOTE_ALIGNMENT):
        raise DfsError(
            f"{CHUNK_KEY} is {wanted} under {settings.section}.options, and the remote log needs {REMOTE_ALIGNMENT}: a DataNode"
            " that dies in mid append loses what stands in the last chunk; remove that option", section=settings.section,
        )
    conf.set(CHUNK_KEY, wanted)


def connect(java: Java, settings: HdfsSettings, user: Any = None) -> Any:
    """An own client, with a lease holder's name of its own. Blocks; raises DfsError and Java's exceptions.

    `user`: of a login from a keytab (hdfs_login.py)."""
    conf = configuration(java, settings)
    uri = java.URI(settings.url)
    use_security(java, conf)
    if user is not None:
        action = {"run": lambda: java.FileSystem.newInstance(uri, conf)}
        return user.doAs(java.proxy("java.security.PrivilegedExceptionAction", dict=action))
    if settings.user:
        return java.FileSystem.newInstance(uri, conf, settings.user)
    return java.FileSystem.newInstance(uri, conf)


def use_security(java: Java, conf: Any) -> None:
    """Sets the security of the whole Java machine, before the first login."""
    if str(conf.get("hadoop.security.authentication", "simple")) != "simple":
        java.UserGroupInformation.setConfiguration(conf)
