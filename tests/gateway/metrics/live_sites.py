"""A pair in this process with everything that the composition root adds, asked over its sockets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx

from chaos.servers.ports import free_ports
from gateway.app import doors, opened_site, traces_of
from gateway.config.loading import load_site_config
from gateway.demo.files import write_files
from gateway.tls.site_tls import SiteTls
from storage.failpoints import Failpoints

TABLE = {"name": "t", "columns": [{"name": "k", "type": "int64"}, {"name": "v", "type": "string"}], "primary_key": ["k"]}
DEADLINE_S = 120.0


class LiveSites:
    """`http`: a client for each site."""

    def __init__(self, http: dict[str, httpx.AsyncClient]) -> None:
        self.http = http

    async def page(self, site: str) -> str:
        answer = await self.http[site].get("/metrics")
        assert answer.status_code == 200
        return answer.text

    async def until(self, site: str, holds: Callable[[str], bool]) -> str:
        """Returns the first page of metrics for which this holds."""
        async with asyncio.timeout(DEADLINE_S):
            page = await self.page(site)
            while not holds(page):  # each look is a request, which lets the sites work
                page = await self.page(site)
        return page


@asynccontextmanager
async def live_sites(folder: Path, *, more: str = "") -> AsyncIterator[LiveSites]:
    """Site a is the active and has acknowledged a row, which b has applied and a has read. `more`: TOML at the end of each
    site's file."""
    configs = write_files(folder, dict(zip("ab", free_ports(2), strict=True)), engine="rocksdb", hdfs=None)
    async with AsyncExitStack() as stack:
        http = {}
        for site in "ab":
            configs[site].write_text(configs[site].read_text() + more)
            config = load_site_config(configs[site])
            tls = SiteTls(config.pair, config.peer.site, None, None, insecure=False, now_s=time.monotonic)
            traces = await stack.enter_async_context(traces_of(config))
            opened = await stack.enter_async_context(opened_site(config, Failpoints(), tls, traces.tracer))
            opened.site.notices = tls.notices
            await stack.enter_async_context(doors(config, opened, tls, None, traces=traces))
            http[site] = await stack.enter_async_context(httpx.AsyncClient(base_url=config.http.url, timeout=30.0))
        sites = LiveSites(http)
        await sites.until("a", lambda page: "twinlog_mode_sync 1.0" in page)
        assert (await http["a"].post("/v1/tables", json=TABLE)).is_success
        assert (await http["a"].put("/v1/tables/t/rows/1", json={"v": "x"})).is_success
        assert (await http["a"].get("/v1/tables/t/rows/1")).is_success
        assert (await http["a"].get("/v1/tables/t/rows/2")).status_code == 404
        await sites.until("a", lambda page: "twinlog_replication_lag_records 0.0" in page)
        yield sites
