"""Faults of a server beside the gateways: PostgreSQL, a NameNode, a DataNode, and Toxiproxy, the server of all links.

What always holds: a server of a site that was lost meanwhile comes back with its site, and not before; when Toxiproxy is back,
each link is again as the faults in force have it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from chaos.harness.faults.kind import Stage
from chaos.harness.pair.parts import TOXIPROXY


@dataclass
class OnServer:
    """A signal to a server of a site."""

    stage: Stage
    kind: str
    name: str

    async def why_not(self) -> str:
        servers = self.stage.sites.servers
        if self.name not in servers.parts.servers:
            return f"this pair has no {self.name}"
        if self._is_lost():
            return "its site is lost"
        server = servers.named(self.name)
        if not server.is_running:
            return f"{self.name} does not run"
        return f"{self.name} is paused already" if server.is_paused else ""

    async def inject(self) -> str:
        server = self.stage.sites.servers.named(self.name)
        await asyncio.to_thread({"crash": server.kill, "terminate": server.terminate, "pause": server.pause}[self.kind])
        return ""

    async def heal(self) -> str:
        if self._is_lost():
            return "its site was lost meanwhile"
        server = self.stage.sites.servers.named(self.name)
        await asyncio.to_thread(server.resume if server.is_paused else server.start)
        return ""

    def _is_lost(self) -> bool:
        return self.name.partition("-")[2] in self.stage.sites.servers.lost


@dataclass
class OnToxiproxy:
    """All links are cut at once, and refuse whoever connects until it is back."""

    stage: Stage
    kind: str

    async def why_not(self) -> str:
        return f"{TOXIPROXY} does not run" if self.stage.links.is_away else ""

    async def inject(self) -> str:
        assert self.stage.toxiproxy is not None, "a pair behind links of ours"
        server = self.stage.toxiproxy
        await self.stage.links.lose({"crash": server.kill, "terminate": server.stop}[self.kind])
        return ""

    async def heal(self) -> str:
        assert self.stage.toxiproxy is not None, "a pair behind links of ours"
        count = await self.stage.links.bring_back(self.stage.toxiproxy.start)
        return f"set again on its links: {count}"
