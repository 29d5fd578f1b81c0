"""A live pair with TLS whose page logs people in by an OIDC provider."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from bench.pair import TWINLOG
from chaos.servers.ports import free_ports
from gateway.access.settings import CALLBACK
from gateway.demo.files import CERTS, write_files
from gateway.tls.issuing import CA
from tests.gateway.access.log_in.provider_twin import AUDIENCE, CLIENT, SECRET
from tests.processes import wait_for
from twinlog.wire.tls import Tls, client_context


def _section(provider: str, url: str) -> str:
    return f"""
[access.oidc]
issuer = "{provider}"
audience = "{AUDIENCE}"
jwks_url = "{provider}/keys"

[access.oidc.login]
client_id = "{CLIENT}"
client_secret = "file:client.secret"
redirect_url = "{url}{CALLBACK}"

[access.oidc.grants]
dba = "admin:* reader:*"
ops = "operator"
"""


def _is_ready(url: str, ca: Path) -> bool:
    try:
        with httpx.Client(trust_env=False, verify=client_context(Tls(ca=str(ca))), timeout=5) as client:
            return client.get(f"{url}/health/ready").status_code == 200
    except httpx.HTTPError:
        return False


def texts(folder: Path) -> str:
    """Returns what the sites have logged, and their trails."""
    files = [*folder.glob("*/site.log"), *folder.glob("*/**/trail/*")]
    return "\n".join(path.read_text(errors="replace") for path in files if path.is_file())


@contextmanager
def log_in_pair(folder: Path, provider: str) -> Iterator[dict[str, str]]:
    """The addresses of both sites, while they run. `provider`: its address."""
    ports = free_ports(4)
    peers = {"a": ports[2], "b": ports[3]}
    configs = write_files(folder, {"a": ports[0], "b": ports[1]}, engine="rocksdb", access=True, peer_ports=peers)
    urls = {"a": f"https://127.0.0.1:{ports[0]}", "b": f"https://127.0.0.1:{ports[1]}"}
    processes = []
    try:
        for site, path in configs.items():
            path.write_text(path.read_text() + _section(provider, urls[site]))
            (path.parent / "client.secret").write_text(SECRET)
            with (folder / site / "site.log").open("wb") as log:
                command = [*TWINLOG, "serve", "--config", str(path)]
                processes.append(subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL))
        assert wait_for(lambda: _is_ready(urls["a"], folder / CERTS / CA)), texts(folder)
        yield urls
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(60)
