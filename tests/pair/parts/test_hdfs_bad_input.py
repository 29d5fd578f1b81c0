"""A fault of an HDFS, or of Java, is reported at start with the setting's name; a site opens once it comes right."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from chaos.servers.hdfs_cluster import HdfsCluster
from gateway.demo.files import write_files
from gateway.demo.servers import HdfsRoot
from remote_log.dfs.hdfs.client import HdfsSettings
from remote_log.dfs.hdfs.dfs import HdfsDfs
from remote_log.dfs.hdfs.jvm import java
from remote_log.dfs.port import Dfs
from tests.pair.pair import Pair
from tests.pair.pair_rig import site
from tools.sources import ROOT

# ---- Java
NO_JAVA = "import jpype\ndef none(): raise jpype.JVMNotFoundException('none')\njpype.getDefaultJVMPath = none\n"
SERVE = "import sys\nfrom twinlog.cli.main import main\nmain()"


def serve(tmp_path: Path, java_home: Path, program: str = SERVE) -> str:
    """Start a site on HDFS: it ends with the exit code of a wrong configuration, and says this."""
    hdfs = {"a": HdfsRoot("hdfs://127.0.0.1:1/r", "127.0.0.1:3"), "b": HdfsRoot("hdfs://127.0.0.1:2/r", "127.0.0.1:4")}
    config = write_files(tmp_path, {"a": 1, "b": 2}, engine="rocksdb", hdfs=hdfs)["a"]
    done = subprocess.run(
        [sys.executable, "-c", program, "serve", "--config", str(config)], capture_output=True, text=True, timeout=300,
        check=False, env={**os.environ, "JAVA_HOME": str(java_home)}, cwd=ROOT,
    )
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    return " ".join(done.stderr.split())


@pytest.mark.long
def test_no_java(tmp_path: Path) -> None:
    """JPype looks for one everywhere on the machine: it is made blind."""
    said = serve(tmp_path, tmp_path, NO_JAVA + SERVE)
    assert f'dfs.own.kind is "hdfs": HDFS needs Java 17 or newer, and its client: JAVA_HOME is {tmp_path}, and holds' in said


@pytest.mark.long
def test_a_java_that_is_too_old(tmp_path: Path) -> None:
    library = tmp_path / "old" / "lib" / "server" / "libjvm.so"
    library.parent.mkdir(parents=True)
    library.touch()
    (tmp_path / "old" / "release").write_text('JAVA_VERSION="11.0.2"\n')
    said = serve(tmp_path, tmp_path / "old")
    assert 'dfs.own.kind is "hdfs"' in said
    assert "is 11.0.2, too old" in said
    assert "install Java 17" in said


# ---- the other site's HDFS
class OtherVersion(socketserver.BaseRequestHandler):
    """A NameNode that does not know this version of Hadoop's RPC, and says so as all of them have since version 9."""

    def handle(self) -> None:
        self.request.recv(1024)
        words = [
            b"org.apache.hadoop.ipc.RPC$VersionMismatch", b"Server IPC version 10 cannot communicate with client version 9"
        ]
        fatal = b"\x08\x00\x10\x02\x18\x0a" + b"".join(
            bytes([tag, len(text)]) + text for tag, text in zip(b"\x22\x2a", words, strict=True)
        )
        header = bytes([len(fatal) & 0x7F | 0x80, len(fatal) >> 7]) + fatal
        self.request.sendall(len(header).to_bytes(4, "big") + header)


@pytest.fixture
def other_version() -> Iterator[str]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), OtherVersion) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"hdfs://127.0.0.1:{server.server_address[1]}/r"
        server.shutdown()


@pytest.fixture
def closed_port() -> Iterator[str]:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"hdfs://127.0.0.1:{held.getsockname()[1]}/r"


@asynccontextmanager
async def site_a(tmp_path: Path, own: HdfsSettings, peer: HdfsSettings) -> AsyncIterator[Pair]:
    """Only the one site runs: what its other site's DFS says decides whether it opens."""
    clients: list[HdfsDfs] = []

    def open_dfs(name: str) -> Dfs:
        clients.append(HdfsDfs(own if name == "a" else peer, java(256 << 20)))
        return clients[-1]

    made = Pair(tmp_path, open_dfs=open_dfs)
    try:
        await made.start("a")
        yield made
    finally:
        await made.stop_all()
        for client in clients:
            await client.close()


Wrong = Callable[[pytest.FixtureRequest, str], dict[str, Any]]
WRONG: dict[str, tuple[Wrong, str]] = {
    "nobody listens": (
        lambda request, _: {"url": request.getfixturevalue("closed_port")}, r"cannot be reached: check dfs\.peer\.url"
    ),
    "no such host": (lambda *_: {"url": "hdfs://nowhere.invalid:8020/r"}, r"no such host: check dfs\.peer\.url"),
    "the web port": (
        lambda request, _: {"url": request.getfixturevalue("hdfs").web_url.replace("http:", "hdfs:") + "/r"},
        r"check the port in dfs\.peer\.url .*RPC port, not its web port",
    ),
    "another version": (
        lambda request, _: {"url": request.getfixturevalue("other_version")},
        r"different versions .* this client is Hadoop 3\.5; check dfs\.peer\.url",
    ),
    "no such folder": (lambda _, url: {"url": f"{url}/none"}, r"is not there: create it .* or correct dfs\.peer\.url"),
    "a file": (lambda _, url: {"url": f"{url}/file"}, r"is not there: create it .* or correct dfs\.peer\.url"),
    "below a file": (lambda _, url: {"url": f"{url}/file/r"}, r"is not there: create it .* or correct dfs\.peer\.url"),
    "no rights": (lambda *_: {"user": "stranger"}, r"not permitted: let stranger own .* check dfs\.peer\.user"),
}


@pytest.mark.parametrize("case", WRONG)
async def test_what_is_wrong_is_told_with_its_setting(
    case: str, hdfs: HdfsCluster, hdfs_root: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    wrong, told = WRONG[case]
    url = f"{hdfs.uri}{hdfs_root}"
    own, peer = HdfsSettings(f"{url}/a", "dfs.own"), {"url": f"{url}/b", "section": "dfs.peer", "site": "b"}
    for folder in "ab":
        await asyncio.to_thread(hdfs.make_folder, f"{hdfs_root}/{folder}")
    helper = HdfsDfs(HdfsSettings(url, "dfs.own", deadline_s=30.0), java(256 << 20))
    await helper.create_file("/file", b"1")
    await helper.close()
    given = HdfsSettings(**{**peer, **wrong(request, url)})
    async with site_a(tmp_path, own, given) as pair:
        await pair.until(lambda: "dfs.peer" in (site(pair, "a").waiting_for or ""))
        waiting_for = site(pair, "a").waiting_for
        assert waiting_for is not None
        assert re.search(told, waiting_for), waiting_for
        assert "(the DFS of site b, dfs.peer.url)" in waiting_for
        assert pair.role("a") == "CLOSED"


async def test_it_opens_once_the_setting_comes_right(hdfs: HdfsCluster, hdfs_root: str, tmp_path: Path) -> None:
    """The gateway needs no restart when the missing folder is made."""
    url = f"{hdfs.uri}{hdfs_root}"
    await asyncio.to_thread(hdfs.make_folder, f"{hdfs_root}/a")
    own, peer = HdfsSettings(f"{url}/a", "dfs.own"), HdfsSettings(f"{url}/b", "dfs.peer")
    async with site_a(tmp_path, own, peer) as pair:
        await pair.until(lambda: "is not there" in (site(pair, "a").waiting_for or ""))
        await asyncio.to_thread(hdfs.make_folder, f"{hdfs_root}/b")
        await pair.until(lambda: pair.role("a") == "ACTIVE")
