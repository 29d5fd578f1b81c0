"""WebHDFS against a real cluster: its part of the contract, and what it says when it fails."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import httpx
import pytest

from chaos.servers.hdfs_cluster import HdfsCluster
from chaos.servers.hdfs_settings import METRICS_S
from remote_log.dfs.hdfs.webhdfs import WebHdfs, WebHdfsSettings
from tests.remote_log.dfs.dfs_contract import DfsFilesContract
from twinlog.errors import ConfigError, DfsError, DfsExists, DfsNotFound, InvalidInput

pytestmark = pytest.mark.timeout(180)  # the first test waits for the cluster


def client(cluster: HdfsCluster, root: str, *urls: str, deadline_s: float = 20.0) -> WebHdfs:
    return WebHdfs(WebHdfsSettings(urls or (cluster.web_url,), root, "dfs.peer", cluster.user, deadline_s=deadline_s))


@pytest.fixture
async def dfs(hdfs: HdfsCluster, hdfs_root: str) -> AsyncIterator[WebHdfs]:
    made = client(hdfs, hdfs_root)
    yield made
    await made.close()


class TestWebHdfs(DfsFilesContract):
    @pytest.fixture
    async def other(self, hdfs: HdfsCluster, hdfs_root: str) -> AsyncIterator[WebHdfs]:
        made = client(hdfs, hdfs_root)
        yield made
        await made.close()


@pytest.fixture
def closed_port() -> Iterator[str]:
    """An address that refuses connections."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


# ---- what it cannot do
async def test_what_webhdfs_cannot_do_is_said_and_changes_nothing(dfs: WebHdfs) -> None:
    for refused in (dfs.create("/p/s"), dfs.recover_lease("/p/s")):
        with pytest.raises(DfsError, match=r"WebHDFS cannot .*/p/s.*needs Java"):
            await refused
    assert await dfs.list("/p") == []


async def test_paths_with_hidden_parts_are_refused(dfs: WebHdfs) -> None:
    for path in ("relative", "/p/../q", "/p/.tmp.x"):
        with pytest.raises(InvalidInput):
            await dfs.read(path)


def test_kerberos_needs_a_package_and_names_it() -> None:
    with pytest.raises(ConfigError, match="requests-kerberos"):
        WebHdfs(WebHdfsSettings(("http://127.0.0.1:1",), "/t", "dfs.peer", kerberos=True))


# ---- the two-step creation
async def test_a_file_is_synced_on_the_data_node_before_it_has_its_name(hdfs: HdfsCluster, dfs: WebHdfs) -> None:
    await asyncio.sleep(METRICS_S + 0.1)  # a counter is told anew when it is that old
    before = synced(hdfs)
    await dfs.create_file("/p/claim", b"mine")
    for _ in range(40):
        if synced(hdfs) > before:
            return
        await asyncio.sleep(METRICS_S / 4)
    raise AssertionError("the DataNode did not sync")


def synced(cluster: HdfsCluster) -> int:
    """How often the DataNode has called fsync."""
    beans = httpx.get(f"{cluster.data_node_web_url(0)}/jmx", trust_env=False).json()["beans"]
    return sum(bean["FsyncCount"] for bean in beans if "FsyncCount" in bean)


async def test_who_loses_leaves_nothing_hidden(hdfs: HdfsCluster, hdfs_root: str, dfs: WebHdfs) -> None:
    await dfs.create_file("/p/claim", b"mine")
    for _ in range(3):
        with pytest.raises(DfsExists):
            await dfs.create_file("/p/claim", b"theirs")
    assert names(hdfs, f"{hdfs_root}/p") == ["claim"]


async def test_a_name_that_is_a_folder_is_taken(hdfs: HdfsCluster, hdfs_root: str, dfs: WebHdfs) -> None:
    await dfs.create_file("/p/claim/inside", b"1")
    with pytest.raises(DfsError):
        await dfs.create_file("/p/claim", b"2")
    assert names(hdfs, f"{hdfs_root}/p/claim") == ["inside"]


async def test_a_rename_that_was_done_before_it_was_repeated_counts(dfs: WebHdfs, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two NameNodes a request is sent again when its answer is lost; then the hidden name is gone already."""
    real: Callable[..., object] = dfs._client._rename

    def twice(*given: object, **parameters: object) -> object:
        real(*given, **parameters)
        return real(*given, **parameters)

    monkeypatch.setattr(dfs._client, "_rename", twice)
    await dfs.create_file("/p/claim", b"mine")
    assert await dfs.read("/p/claim") == b"mine"
    with pytest.raises(DfsExists):
        await dfs.create_file("/p/claim", b"theirs")


def names(cluster: HdfsCluster, folder: str) -> list[str]:
    """All of them, hidden ones too, as the NameNode tells."""
    statuses = ask(cluster, "GET", folder, "LISTSTATUS").json()["FileStatuses"]["FileStatus"]
    return sorted(status["pathSuffix"] for status in statuses)


def ask(cluster: HdfsCluster, method: str, path: str, op: str, **more: str) -> httpx.Response:
    url = f"{cluster.web_url}/webhdfs/v1{path}"
    return httpx.request(method, url, params={"op": op, "user.name": cluster.user, **more}, trust_env=False)


# ---- the root
async def test_a_root_that_is_missing_is_no_empty_dfs(hdfs: HdfsCluster) -> None:
    dfs = client(hdfs, "/not/there")
    for refused in attempts(dfs):
        with pytest.raises(DfsError, match=r"/not/there .*dfs\.peer.* is not there: create it"):
            await refused
    assert ask(hdfs, "GET", "/not", "GETFILESTATUS").status_code == 404
    await dfs.close()


async def test_a_root_that_was_made_anew_is_not_the_one_that_was_there(hdfs: HdfsCluster, hdfs_root: str, dfs: WebHdfs) -> None:
    await dfs.probe()
    assert ask(hdfs, "DELETE", hdfs_root, "DELETE", recursive="true").json() == {"boolean": True}
    hdfs.make_folder(hdfs_root)
    for refused in attempts(dfs):
        with pytest.raises(DfsError, match="is not the one that was there before"):
            await refused


def attempts(dfs: WebHdfs) -> list[Awaitable[object]]:
    return [dfs.probe(), dfs.create_file("/p/x", b"1"), dfs.list("/p")]


# ---- who answers
async def test_the_next_name_node_is_asked_when_one_is_down(hdfs: HdfsCluster, hdfs_root: str, closed_port: str) -> None:
    dfs = client(hdfs, hdfs_root, closed_port, hdfs.web_url)
    await dfs.create_file("/p/x", b"1")
    assert await dfs.read("/p/x") == b"1"
    await dfs.close()


async def test_nobody_answers(hdfs: HdfsCluster, closed_port: str) -> None:
    dfs = client(hdfs, "/t", closed_port)
    with pytest.raises(DfsError, match=f"cannot list /p below /t at {closed_port}.*check that WebHDFS answers"):
        await dfs.list("/p")
    await dfs.close()


async def test_one_that_hangs_is_given_up_at_the_deadline(hdfs: HdfsCluster) -> None:
    async with asyncio.timeout(10):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            dfs = client(hdfs, "/t", f"http://127.0.0.1:{silent.getsockname()[1]}", deadline_s=0.5)
            with pytest.raises(DfsError):
                await dfs.list("/p")
            await dfs.close()


async def test_what_is_no_hdfs_is_an_error(hdfs: HdfsCluster) -> None:
    dfs = client(hdfs, "/t", f"{hdfs.web_url}/jmx?")
    with pytest.raises(DfsError, match="check that WebHDFS answers"):
        await dfs.list("/p")
    await dfs.close()


async def test_who_may_not_is_told_whom_to_ask(hdfs: HdfsCluster, hdfs_root: str) -> None:
    stranger = WebHdfs(WebHdfsSettings((hdfs.web_url,), hdfs_root, "dfs.peer", user="stranger"))
    with pytest.raises(DfsError, match=r"not permitted.*let stranger own .*dfs\.peer\.user"):
        await stranger.create_file("/p/x", b"1")
    await stranger.close()
    with pytest.raises(DfsNotFound):
        await client(hdfs, hdfs_root).read("/p/x")
