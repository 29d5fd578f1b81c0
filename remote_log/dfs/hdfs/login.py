"""The Kerberos login of one HDFS client from its keytab, kept for as long as the client lives.

What always holds: Hadoop's client logs in again by itself only for the login of the whole process, and a site has two DFSs,
each perhaps with a principal of its own. So each has a login of its own, which is renewed here, from four fifths of a ticket's
life on, on a thread of its own: a KDC that hangs must not hold up a client whose ticket is good. Source: Hadoop's
UserGroupInformation.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

from remote_log.dfs.hdfs.client import HdfsSettings, configuration, connect, use_security
from remote_log.dfs.hdfs.jvm import Java
from storage.disk.workers import Worker

LOOK_INTERVAL_S = 2.0  # at most so often; whether it is time is Hadoop's to say
CLOSE_S = 1.0


class KeytabLogin:
    """It logs in with the first `connect`, and again with each until one has succeeded."""

    def __init__(self, java: Java, settings: HdfsSettings) -> None:
        self._java, self._settings = java, settings
        self._worker = Worker(f"hdfs {settings.section} login", java.leave)
        self._user: Any = None
        self._due_s = 0.0
        self._looking: asyncio.Future[None] | None = None

    def connect(self) -> Any:
        """A client as this user. On any thread; blocks; raises DfsError and Java's exceptions."""
        if self._user is None:
            use_security(self._java, configuration(self._java, self._settings))
            self._user = self._java.UserGroupInformation.loginUserFromKeytabAndReturnUGI(
                self._settings.kerberos_principal, str(self._settings.kerberos_keytab)
            )
        return connect(self._java, self._settings, self._user)

    def keep(self) -> None:
        """Look whether it is to be renewed, without waiting for that. What fails now is tried again at the next look."""
        now_s = time.monotonic()
        if self._user is None or now_s < self._due_s or (self._looking is not None and not self._looking.done()):
            return
        self._due_s = now_s + LOOK_INTERVAL_S
        with suppress(OSError):  # no thread can be started now
            self._looking = self._worker.submit(self._user.checkTGTAndReloginFromKeytab)
            self._looking.add_done_callback(lambda done: done.exception())

    async def close(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._worker.close()
