"""All servers below a pair, by its parts: their lives and losses, their links, and what configurations of gateways say of them.

What always holds: gateways reach every server through a link of their own, the harness past it; a site that was lost has no
server until it is built anew; that of the coordinator is lost with no site. A pair of plain folders with its coordinator in a
file has no servers, and then nothing is done here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from urllib.parse import urlsplit

from chaos.harness.pair.parts import COORDINATOR_SERVER, WITNESS, Parts
from chaos.harness.pair.servers.hdfs import HOSTS, OPTION, SiteHdfs
from chaos.harness.pair.servers.postgres import PASSWORD, SitePostgres
from chaos.harness.pair.servers.server import Server, SiteServers
from chaos.servers import hdfs_jars
from chaos.servers.ports import free_ports
from chaos.servers.postgres import NoPostgres, find_program
from gateway.demo.servers import ROOT, Databases, HdfsRoot
from remote_log.dfs.hdfs import jvm
from twinlog.errors import ConfigError

HOST = "127.0.0.1"
COORDINATOR_URL = "coordinator.url"  # the file in a site's folder
_IN_SQLITE = re.compile(r'\[coordinator\]\nurl = "[^"\n]*"')
_SITES = ("a", "b")


def check_installed(parts: Parts) -> None:
    """Raises ConfigError, which says what to install, when this machine lacks a part."""
    if parts.dfs == "hdfs":
        jvm.java_program()
        hdfs_jars.class_path()
    if parts.engine == "postgresql" or parts.coordinator == "server":
        try:
            find_program("postgres"), find_program("initdb")
        except NoPostgres as error:
            raise ConfigError(str(error)) from error


class Servers:
    """`folder`: that of the pair, with one for each site in it."""

    def __init__(self, parts: Parts, folder: Path) -> None:
        self.parts, self._folder = parts, folder
        self.lost: set[str] = set()
        for site in _SITES if parts.servers else ():
            (folder / site).mkdir(parents=True, exist_ok=True)
        self.hdfs: dict[str, SiteHdfs] = {}
        self.postgres: dict[str, SitePostgres] = {}
        for site in _SITES if parts.dfs == "hdfs" else ():
            self.hdfs[site] = SiteHdfs(site, folder / site)
        for site in _SITES if parts.engine == "postgresql" else ():
            self.postgres[site] = SitePostgres(site, folder / site, *free_ports(1))
        self.witness = self._witness(folder) if parts.coordinator == "server" else None
        self._named: dict[str, Server] = {name: server for each in self._all() for name, server in each.servers.items()}

    def _witness(self, folder: Path) -> SitePostgres:
        (folder / WITNESS).mkdir()
        return SitePostgres(WITNESS, folder / WITNESS, *free_ports(1))

    def _all(self) -> list[SiteServers]:
        return [*(each for site in _SITES for each in self._of(site)), *([self.witness] if self.witness is not None else [])]

    def _of(self, site: str) -> list[SiteServers]:
        kinds: tuple[Mapping[str, SiteServers], ...] = (self.hdfs, self.postgres)
        return [kind[site] for kind in kinds if site in kind]

    # ---- their lives; all of it blocks
    def start(self) -> None:
        """All of them, at once. Raises TwinlogError."""
        self._at_once([each.start for each in self._all()])
        self.lost.clear()

    def build(self, site: str) -> None:
        """New ones where those of the site were lost."""
        if site in self.lost:
            self._at_once([each.start for each in self._of(site)])
            self.lost.discard(site)

    def lose(self, site: str) -> None:
        if self.parts.servers:
            self.lost.add(site)
        for each in self._of(site):
            each.lose()

    def heal(self) -> None:
        """All of them run, awake, and can be used."""
        for server in self._named.values():
            if server.is_paused:
                server.resume()
        self.start()

    def stop(self) -> None:
        for each in self._all():
            each.stop()

    def are_well(self, site: str) -> bool:
        """Returns whether all servers of the site itself run, and none is paused."""
        own = [server for each in self._of(site) for server in each.servers.values()]
        return all(server.is_running and not server.is_paused for server in own)

    def named(self, name: str) -> Server:
        return self._named[name]

    @staticmethod
    def _at_once(work: list[Callable[[], None]]) -> None:
        with ThreadPoolExecutor(max(1, len(work))) as threads:
            for begun in [threads.submit(each) for each in work]:
                begun.result()

    # ---- the links
    @cached_property
    def upstream(self) -> Mapping[str, str]:
        """Returns link -> the address of the server."""
        found = {}
        for gateway in _SITES:
            for site, hdfs in self.hdfs.items():
                found[f"{gateway}>nn-{site}"] = f"{HOST}:{hdfs.name_node_port}"
                found[f"{gateway}>dn-{site}"] = f"{HOST}:{hdfs.data_node_port}"
            if gateway in self.postgres:
                found[f"{gateway}>pg-{gateway}"] = f"{HOST}:{self.postgres[gateway].port}"
            if self.witness is not None:
                found[f"{gateway}>{COORDINATOR_SERVER}"] = f"{HOST}:{self.witness.port}"
        return found

    @cached_property
    def listen(self) -> Mapping[str, str]:
        """Returns link -> the address at which the gateway connects."""
        ports = iter(free_ports(len(self.upstream)))
        return {
            link: f"{HOSTS[link[0]]}:{address.rpartition(':')[2]}" if ">dn-" in link else f"{HOST}:{next(ports)}"
            for link, address in self.upstream.items()
        }

    # ---- what a gateway knows of them
    def databases(self) -> Databases | None:
        if not self.postgres:
            return None
        urls = {site: each.address(self._port(f"{site}>pg-{site}")) for site, each in self.postgres.items()}
        return Databases(urls, f"file:{PASSWORD}")

    def roots(self) -> dict[str, HdfsRoot] | None:
        """Past the links: `configured` puts those in."""
        if not self.hdfs:
            return None
        return {
            site: HdfsRoot(each.cluster.uri + ROOT, urlsplit(each.cluster.web_url).netloc) for site, each in self.hdfs.items()
        }

    def configured(self, gateway: str, text: str) -> str:
        """The configuration of that gateway, by its own links. The coordinator's address is in a file beside it, for it has a
        password."""
        for site, hdfs in self.hdfs.items():
            text = text.replace(f'"{hdfs.cluster.uri}{ROOT}"', f'"hdfs://{self.listen[f"{gateway}>nn-{site}"]}{ROOT}"')
        if self.witness is not None:
            secret = self._folder / gateway / COORDINATOR_URL
            secret.touch(0o600)
            secret.write_text(self.witness.url(self._port(f"{gateway}>{COORDINATOR_SERVER}")))
            text = _IN_SQLITE.sub(f'[coordinator]\nurl = "file:{secret.name}"', text)
        return text.replace("options = { ", f'options = {{ "{OPTION}" = "true", ')

    def environ(self, gateway: str) -> dict[str, str]:
        return {"JAVA_TOOL_OPTIONS": self.hdfs[gateway].java_options} if self.hdfs else {}

    def _port(self, link: str) -> int:
        return int(self.listen[link].rpartition(":")[2])
