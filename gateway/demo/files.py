"""The files of a demo: one TOML a site, the operator's, and the folders that they name.

What always holds: writing them again with the same options changes nothing that a site keeps; data and DFS folders are
never touched once they exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlencode

from gateway.demo.servers import Databases, HdfsRoot

PAIR = "demo"


def client_address(urls: Mapping[str, str]) -> str:
    return f"twinlog://{PAIR}?{urlencode(urls, safe=':/')}"


def write_files(
    directory: Path, ports: Mapping[str, int], *, engine: str, databases: Databases | None = None,
    hdfs: Mapping[str, HdfsRoot] | None = None, sync: str = "hsync",
) -> dict[str, Path]:
    """Site -> its configuration.

    `databases`: of the engine postgresql. `hdfs`: of each site; None: directories. `sync`: of an HDFS.
    """
    configs = {}
    for site, peer in (("a", "b"), ("b", "a")):
        folder = directory / site
        (folder / "dfs").mkdir(parents=True, exist_ok=True)
        configs[site] = folder / "site.toml"
        storage, logs = _engine_toml(site, engine, databases), _dfs_toml(site, peer, hdfs, sync)
        configs[site].write_text(_site_toml(directory, site, peer, ports, storage, logs), encoding="utf-8")
    addresses = "".join(f'\n[sites.{site}]\nurl = "http://127.0.0.1:{port}"\n' for site, port in ports.items())
    (directory / "operator.toml").write_text(f'pair = "{PAIR}"\n{addresses}', encoding="utf-8")
    return configs


def _engine_toml(site: str, engine: str, databases: Databases | None) -> str:
    kind = f'[engine]\nkind = "{engine}"'
    if databases is None:
        return kind
    return f"{kind}\nurl = {_quoted(databases.urls[site])}\npassword = {_quoted(databases.password)}"


def _dfs_toml(site: str, peer: str, hdfs: Mapping[str, HdfsRoot] | None, sync: str) -> str:
    if hdfs is None:
        own, of_peer = (f'kind = "directory"\npath = "{path}"' for path in ("dfs", f"../{peer}/dfs"))
    else:
        own, of_peer = (
            f'kind = "hdfs"\nurl = "{root.url}"\nsync = "{sync}"\noptions = {{ "dfs.namenode.http-address" = "{root.web}" }}'
            for root in (hdfs[site], hdfs[peer])
        )
    return f"[dfs.own]\n{own}\n\n[dfs.peer]\n{of_peer}"


def _site_toml(directory: Path, site: str, peer: str, ports: Mapping[str, int], storage: str, logs: str) -> str:
    return f"""\
# Written by `twinlog demo` at each start. `twinlog config show --config FILE` shows every setting there is.
pair = "{PAIR}"
site = "{site}"
data_dir = "data"
initial_active = "a"
policy = "protect"

[http]
port = {ports[site]}

[peer]
site = "{peer}"
url = "http://127.0.0.1:{ports[peer]}"

{storage}

{logs}

[coordinator]
url = {_quoted(f"sqlite:///{directory}/coordinator.db")}
"""


def _quoted(text: str) -> str:
    """A TOML basic string."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
