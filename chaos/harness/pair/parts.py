"""The parts that a pair is made of: DFSs, storages, a coordinator or none; with the servers and links that come with them.

What always holds: a scenario names the parts that it needs by the words of NEEDS; a server of a site is `nn-a` (the NameNode),
`dn-a` (the DataNode) or `pg-a` (PostgreSQL), that of the coordinator `pg-w`, and the link of gateway a to it `a>nn-a`.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from twinlog.errors import ConfigError

NEEDS: Mapping[str, str] = {  # a word of a plan -> the option that gives it
    "directory": "--dfs directory", "hdfs": "--dfs hdfs", "rocksdb": "--engine rocksdb", "postgresql": "--engine postgresql",
    "coordinator": "--coordinator yes", "coordinator-server": "--coordinator server", "no-coordinator": "--coordinator no",
    "secured": "--secured",
}
TOXIPROXY = "toxiproxy"  # the server that all links are of
WITNESS = "w"  # the place of the coordinator, which is neither site's
HDFS_SERVERS, POSTGRES_SERVERS, COORDINATOR_SERVER = ("nn-a", "nn-b", "dn-a", "dn-b"), ("pg-a", "pg-b"), f"pg-{WITNESS}"
SERVERS = (*HDFS_SERVERS, *POSTGRES_SERVERS, COORDINATOR_SERVER)
GATEWAY_LINKS = ("c>a", "c>b", "a>b", "b>a")  # who calls whom: clients the gateways, the gateways each other
HDFS_LINKS = tuple(f"{site}>{server}" for site in "ab" for server in HDFS_SERVERS)
POSTGRES_LINKS = ("a>pg-a", "b>pg-b")
COORDINATOR_LINKS = tuple(f"{site}>{COORDINATOR_SERVER}" for site in "ab")
LINKS = (*GATEWAY_LINKS, *HDFS_LINKS, *POSTGRES_LINKS, *COORDINATOR_LINKS)
SEVERAL: Mapping[str, tuple[str, ...]] = {
    "a-b": ("a>b", "b>a"), "c-ab": ("c>a", "c>b"),
    **{f"{site}>dfs-{of}": (f"{site}>nn-{of}", f"{site}>dn-{of}") for site in "ab" for of in "ab"},
}


class Parts(msgspec.Struct, frozen=True):
    """`dfs`: of both sites; `engine`: their storages. `coordinator`: a file of SQLite, a PostgreSQL of its own, or none: then
    the register is on the two DFSs. `secured`: TLS on every listener, mutual TLS between the sites, and tokens."""

    dfs: Literal["directory", "hdfs"] = "directory"
    engine: Literal["rocksdb", "postgresql"] = "rocksdb"
    coordinator: Literal["yes", "server", "no"] = "yes"
    secured: bool = False

    @property
    def servers(self) -> tuple[str, ...]:
        databases = POSTGRES_SERVERS if self.engine == "postgresql" else ()
        return (
            *(HDFS_SERVERS if self.dfs == "hdfs" else ()), *databases,
            *([COORDINATOR_SERVER] if self.coordinator == "server" else ()),
        )

    @property
    def no_files(self) -> frozenset[str]:
        """Returns the places of files (faults/files.py) that are a server in this pair."""
        return frozenset((*(["dfs"] if self.dfs == "hdfs" else ()), *(["engine"] if self.engine == "postgresql" else ())))

    @property
    def link_targets(self) -> tuple[str, ...]:
        """Returns what a fault of links can name."""
        links = (*GATEWAY_LINKS, *(link for link in LINKS if link.partition(">")[2] in self.servers))
        return (*links, *(name for name, several in SEVERAL.items() if set(several) <= set(links)))

    def missing(self, needs: Iterable[str]) -> list[str]:
        """Returns the options by which a pair would have what it lacks of `needs`."""
        there = {f"--dfs {self.dfs}", f"--engine {self.engine}", f"--coordinator {self.coordinator}"}
        there |= {"--secured"} if self.secured else set()
        return [NEEDS[word] for word in needs if NEEDS[word] not in there]

    def check(self, name: str, needs: Iterable[str]) -> None:
        """Raises ConfigError when the plan `name` needs other parts."""
        if options := self.missing(needs):
            raise ConfigError(f"{name} needs a pair with other parts: add {' '.join(options)}")

    @property
    def told(self) -> str:
        """Returns them in a few words, for people."""
        storage = {"rocksdb": "RocksDB", "postgresql": "PostgreSQL"}[self.engine]
        dfs = {"directory": "directories as DFS", "hdfs": "HDFS"}[self.dfs]
        coordinator = {"yes": "coordinator in SQLite", "server": "coordinator in PostgreSQL", "no": "no coordinator"}
        secured = ", TLS and tokens" if self.secured else ""
        return f"{storage}, {dfs}, {coordinator[self.coordinator]}{secured}"


PLAIN = Parts()


def need_of(target: str) -> str | None:
    """Returns the part without which a plan cannot name this target."""
    called = target.partition(">")[2] or target
    if called == COORDINATOR_SERVER:
        return "coordinator-server"
    kind = called.partition("-")[0] if "-" in called else ""
    return {"nn": "hdfs", "dn": "hdfs", "dfs": "hdfs", "pg": "postgresql"}.get(kind)
