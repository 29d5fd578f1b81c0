"""The story's arguments, what it stops and in which order, and how it counts a remote log on a real HDFS."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hdfs.client import InsecureClient

from chaos.servers.hdfs_cluster import HdfsCluster
from gateway.demo.files import PAIR
from gateway.demo.servers import ROOT, HdfsRoot
from remote_log.layout import RemoteLayout
from storage.log.segment import SegmentHeader, encode_header, wal_name
from tools import story
from tools.story_checks import Findings, hdfs_log_bytes
from twinlog.errors import Unavailable


def test_an_unknown_dfs_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        story.arguments(["--dfs", "tape"])
    assert ended.value.code == 2
    assert "directory" in capsys.readouterr().err
    assert story.arguments([]).dfs == "directory"


def test_after_a_failure_the_sites_are_stopped_and_then_their_hdfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    @contextmanager
    def two_hdfs(directory: Path) -> Iterator[dict[str, HdfsRoot]]:
        try:
            yield {site: HdfsRoot(f"hdfs://{site}/twinlog", f"{site}:9870") for site in "ab"}
        finally:
            done.append("hdfs stopped")

    def run(told: story.Story) -> Findings:
        assert told.hdfs is not None
        done.append(told.hdfs["b"].url)
        raise story.StoryFailed("as wanted")

    monkeypatch.setattr(story, "two_hdfs", two_hdfs)
    monkeypatch.setattr(story, "run", run)
    monkeypatch.setattr(story.Story, "stop_all", lambda told: done.append("sites stopped"))
    with pytest.raises(story.StoryFailed):
        story.tell_it(story.arguments(["--dfs", "hdfs"]), tmp_path)
    assert done == ["hdfs://b/twinlog", "sites stopped", "hdfs stopped"]


def test_an_hdfs_that_does_not_get_ready_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def two_hdfs(directory: Path) -> None:
        raise Unavailable("no Java here")

    monkeypatch.setattr(story, "two_hdfs", two_hdfs)
    monkeypatch.setattr(story.signal, "signal", lambda number, handler: None)
    assert story.main(["--dfs", "hdfs", "--dir", str(tmp_path / "d")]) == 1
    assert "the story failed: no Java here" in capsys.readouterr().out


def test_bytes_of_a_remote_log_on_hdfs(hdfs: HdfsCluster) -> None:
    hdfs.make_folder(ROOT)
    cluster = {"web_url": hdfs.web_url, "user": hdfs.user}
    layout, files = RemoteLayout(PAIR), InsecureClient(hdfs.web_url, user=hdfs.user)
    try:
        assert hdfs_log_bytes(cluster) == 0
        head = encode_header(SegmentHeader(0, 1, 1, wal_name(1, 1)))
        files.write(ROOT + layout.segment(1, wal_name(1, 1), 1), head + bytes(100))
        files.write(ROOT + layout.claim(1), head)
        assert hdfs_log_bytes(cluster) == len(head), "without zeros and claims"
    finally:
        files.delete(ROOT + layout.folder, recursive=True)
