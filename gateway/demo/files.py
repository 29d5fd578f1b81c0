"""The files of a demo: one TOML a site, the operator's, and the folders that they name.

What always holds: writing them again with the same options changes nothing that a site keeps; data and DFS folders are
never touched once they exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlencode

from gateway.access.grants import EVERYTHING
from gateway.access.token_file import OWNER_ONLY, changing, new_token
from gateway.access.tokens import with_token, without_token
from gateway.demo.servers import Databases, HdfsRoot
from gateway.tls.issuing import CA, CRL, Issuer

PAIR = "demo"
TOKENS, TOKEN, HEADER = "tokens.json", "token", "token.header"
IDENTITY, GRANTS = "demo", EVERYTHING.texts()
_ACCESS = f"""
[access]
tokens = "../{TOKENS}"
"""
_PLAIN_CALLS = 'peer_calls = "plain"\n'
CERTS = "certs"
_HOSTS = ("127.0.0.1", "localhost")
_CERTIFICATE_DAYS = 3650


def client_address(urls: Mapping[str, str]) -> str:
    return f"twinlog://{PAIR}?{urlencode(urls, safe=':/')}"


def write_files(
    directory: Path, ports: Mapping[str, int], *, engine: str, databases: Databases | None = None,
    hdfs: Mapping[str, HdfsRoot] | None = None, sync: str = "hsync", access: bool = False,
    peer_ports: Mapping[str, int] | None = None,
) -> dict[str, Path]:
    """Site -> its configuration.

    `databases`: of the engine postgresql. `hdfs`: of each site; None: directories. `sync`: of an HDFS. `access`: the sites know
    one identity, which may do everything, and nobody else. `peer_ports`: of the listeners for the other site, with which all is
    TLS; None: without TLS.
    """
    configs = {}
    if peer_ports is not None:
        _make_certificates(directory / CERTS)
    for site, peer in (("a", "b"), ("b", "a")):
        folder = directory / site
        (folder / "dfs").mkdir(parents=True, exist_ok=True)
        configs[site] = folder / "site.toml"
        storage, logs = _engine_toml(site, engine, databases), _dfs_toml(site, peer, hdfs, sync)
        doors = _plain_toml(site, peer, ports) if peer_ports is None else _tls_toml(site, peer, ports, peer_ports)
        text = _site_toml(directory, site, doors, storage, logs)
        if access:
            text += _ACCESS + (_PLAIN_CALLS if peer_ports is None else "")
        configs[site].write_text(text, encoding="utf-8")
    urls, ca = site_urls(ports, is_tls=peer_ports is not None), "" if peer_ports is None else f'ca = "{CERTS}/{CA}"\n'
    addresses = "".join(f'\n[sites.{site}]\nurl = "{url}"\n' for site, url in urls.items())
    token = f'token = "file:{TOKEN}"\n' if access else ""
    (directory / "operator.toml").write_text(f'pair = "{PAIR}"\n{ca}{token}{addresses}', encoding="utf-8")
    if access:
        _write_token(directory)
    return configs


def token_of(directory: Path) -> str:
    """Returns where clients of the demo find their token."""
    return f"file:{directory / TOKEN}"


def _write_token(directory: Path) -> None:
    """Makes the one token of a demo, unless there is one already: for the sites its digest, for clients the token itself, and
    for curl the header, so that it stands in no command line."""
    made = directory / TOKEN
    with changing(directory / TOKENS) as (tokens, store):
        is_known = any(entry.name == IDENTITY for entry in tokens.tokens)
        if is_known and made.exists():
            return
        token, others = new_token(), without_token(tokens, IDENTITY) if is_known else tokens
        store(with_token(others, IDENTITY, token, GRANTS, datetime.now(UTC), None))
        for path, text in ((made, token), (directory / HEADER, f"Authorization: Bearer {token}")):
            path.unlink(missing_ok=True)
            path.touch(OWNER_ONLY)
            path.write_text(f"{text}\n", encoding="ascii")


def site_urls(ports: Mapping[str, int], *, is_tls: bool) -> dict[str, str]:
    """Site -> the address for clients."""
    return {site: f"{'https' if is_tls else 'http'}://127.0.0.1:{port}" for site, port in ports.items()}


def _make_certificates(folder: Path) -> None:
    """A CA and what it signs, once."""
    if (folder / CA).exists():
        return
    issuer = Issuer(folder)
    issuer.make_ca(PAIR, _CERTIFICATE_DAYS)
    for site in ("a", "b"):
        issuer.make_site(PAIR, site, _HOSTS, _CERTIFICATE_DAYS)


def _plain_toml(site: str, peer: str, ports: Mapping[str, int]) -> str:
    return f"""\
[http]
port = {ports[site]}

[peer]
site = "{peer}"
url = "http://127.0.0.1:{ports[peer]}\""""


def _tls_toml(site: str, peer: str, ports: Mapping[str, int], peer_ports: Mapping[str, int]) -> str:
    own = f"""\
certificate = "../{CERTS}/site-{site}.pem"
key = "../{CERTS}/site-{site}.key\""""
    return f"""\
[http]
port = {ports[site]}

[http.tls]
{own}

[peer_http]
port = {peer_ports[site]}
{own}
ca = "../{CERTS}/{CA}"
crl = "../{CERTS}/{CRL}"

[peer]
site = "{peer}"
url = "https://127.0.0.1:{peer_ports[peer]}"
advertised_url = "https://127.0.0.1:{ports[peer]}\""""


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


def _site_toml(directory: Path, site: str, doors: str, storage: str, logs: str) -> str:
    return f"""\
# Written by `twinlog demo` at each start. `twinlog config show --config FILE` shows every setting there is.
pair = "{PAIR}"
site = "{site}"
data_dir = "data"
initial_active = "a"
policy = "protect"

{doors}

{storage}

{logs}

[coordinator]
url = {_quoted(f"sqlite:///{directory}/coordinator.db")}
"""


def _quoted(text: str) -> str:
    """A TOML basic string."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
