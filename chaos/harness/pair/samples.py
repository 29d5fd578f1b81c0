"""Looks at both gateways while the run lasts: what they say of themselves, and what the machine says of their processes.

What always holds: it asks the gateways directly, changes nothing, and a gateway that does not answer is a sample that says so.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from chaos.harness.pair.sites import SITES, RealSites
from twinlog.errors import TwinlogError

SAMPLE_S = 0.5


class Sample(msgspec.Struct, frozen=True):
    """One look at one site. `role`: as it says, or `paused`, `down`, `silent`. None: unknown."""

    site: str
    at_s: float
    role: str
    epoch: int | None = None
    mode: str | None = None
    committed: int | None = None
    applied: int | None = None
    durable: int | None = None
    lag_records: int | None = None
    at_risk: int | None = None
    remote_log_bytes: int | None = None
    remote_log_segments: int | None = None
    memory_bytes: int | None = None
    open_files: int | None = None
    serves: bool | None = None  # reads or writes, as the active


class Sampler:
    def __init__(self, sites: RealSites, now_s: Callable[[], float]) -> None:
        self._sites, self._now_s = sites, now_s
        self.samples: list[Sample] = []

    async def keep(self) -> None:
        """Takes samples until it is cancelled."""
        while True:
            found = await asyncio.gather(*(asyncio.to_thread(self.look, site) for site in SITES))
            self.samples += found
            await asyncio.sleep(SAMPLE_S)

    def look(self, site: str) -> Sample:
        at_s, pid = self._now_s(), self._sites.pid(site)
        if pid is None:
            return Sample(site, at_s, "down")
        memory, files = _resident_bytes(pid), _open_files(pid)
        if self._sites.is_paused(site):
            return Sample(site, at_s, "paused", memory_bytes=memory, open_files=files)
        try:
            document = self._sites.direct.ask(site, "GET", "/v1/cluster")
        except TwinlogError:
            return Sample(site, at_s, "silent", memory_bytes=memory, open_files=files)
        return sample_of(site, at_s, document, memory, files)


def sample_of(site: str, at_s: float, document: dict[str, Any], memory: int | None, files: int | None) -> Sample:
    lag, risk, log = (document.get(name) or {} for name in ("replication_lag", "at_risk", "remote_log"))
    serving = document["serving"]
    return Sample(
        site, at_s, document["role"], document["epoch"], document["mode"], document["committed_seq"], document["applied_seq"],
        document["durable_seq"], lag.get("records"), risk.get("records"), log.get("bytes"), log.get("segments"), memory, files,
        bool(serving["reads"] or serving["writes"]),
    )


def _resident_bytes(pid: int) -> int | None:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):  # it ended meanwhile
        return None


def _open_files(pid: int) -> int | None:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return None
