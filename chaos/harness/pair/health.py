"""Looks at the pair that wait for something: that it is whole, and that it is idle, equal and durable.

What always holds: these are the gateways' own words; whether they are true is judged from their files later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from chaos.harness.pair.asked import AskedSites
from chaos.harness.pair.recovery import describe, is_whole
from chaos.harness.pair.sites import SEGMENT_BYTES

DRAIN_S = 60.0
POLL_S = 0.2
REMOTE_BYTES_MAX = SEGMENT_BYTES + 4096  # one open segment, and the header of the one that is made ahead
_MARKS_MAX = 4  # an idle active goes on writing marks
Waits = Callable[[Mapping[str, Mapping[str, Any]], int], str]


def durable_and_trimmed(documents: Mapping[str, Mapping[str, Any]], target: int) -> str:
    """Returns what an idle pair with small segments lacks of being equal and durable up to `target`; empty: nothing."""
    if not is_whole(documents):
        return describe(documents)
    active = next(document for document in documents.values() if document["role"] == "ACTIVE")
    behind = [site for site, document in documents.items() if document["durable_seq"] < target]
    if behind:
        return f"site {behind[0]} has durably {documents[behind[0]]['durable_seq']} of {target}"
    if any(active["applied_seq"] - document["applied_seq"] > _MARKS_MAX for document in documents.values()):
        return "the standby has not applied what the active has"
    remote = active["remote_log"]
    if remote is None or remote["bytes"] > REMOTE_BYTES_MAX:
        return f"the remote log holds {remote['bytes'] if remote else 'an unknown number'} of bytes, not {REMOTE_BYTES_MAX}"
    return ""


class Health:
    def __init__(self, sites: AskedSites, now_s: Callable[[], float]) -> None:
        self._sites, self._now_s = sites, now_s

    async def wait_whole(self, within_s: float, in_vain: Callable[[], str] = str) -> str:
        """Returns what it still waited for when the time was up, or why it waits `in_vain`; else an empty text."""
        end_s = self._now_s() + within_s
        while True:
            documents = await self._documents()
            if is_whole(documents):
                return ""
            if why := in_vain():
                return why
            if self._now_s() >= end_s:
                return describe(documents)
            await asyncio.sleep(POLL_S)

    async def drain(self, waits_for: Waits = durable_and_trimmed) -> str:
        """Until `waits_for`, asked with the documents and the sequence that was committed at the call, names nothing more.
        Returns what it waits for in vain, else an empty text."""
        documents = await self._documents()
        target = max((document["committed_seq"] for document in documents.values()), default=0)
        end_s = self._now_s() + DRAIN_S
        waits = describe(documents)
        while self._now_s() < end_s:
            waits = waits_for(await self._documents(), target)
            if not waits:
                return ""
            await asyncio.sleep(POLL_S)
        return waits

    async def _documents(self) -> dict[str, dict[str, Any]]:
        return await asyncio.to_thread(self._sites.documents)
