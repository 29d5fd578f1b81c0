"""The cluster's own handles: what is started is stopped, what is broken heals, and a restart is the same cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chaos.servers import hdfs_cli, hdfs_jars
from chaos.servers.daemon import Daemon
from chaos.servers.hdfs_cluster import HdfsCluster
from tests.processes import has_ended, state, wait_for
from twinlog.errors import DfsError

pytestmark = pytest.mark.long


def sleeper(folder: Path, code: str = "import time; time.sleep(60)") -> Daemon:
    return Daemon("sleeper", [sys.executable, "-c", code, str(folder), "last.Argument"], folder)


# ---- one daemon
def test_a_daemon_is_started_paused_woken_and_stopped(tmp_path: Path) -> None:
    daemon = sleeper(tmp_path)
    daemon.start()
    pid = daemon.pid
    assert pid is not None
    daemon.pause()
    assert wait_for(lambda: state(pid) == "T")
    daemon.resume()
    assert wait_for(lambda: state(pid) in "RS")
    daemon.pause()
    daemon.stop()  # also a paused one
    assert (daemon.pid, state(pid)) == (None, "")
    daemon.stop()


def test_a_daemon_that_heeds_nothing_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chaos.servers.daemon.STOP_DEADLINE_S", 0.5)
    ready = tmp_path / "ready"
    deaf = f"import signal, time; signal.signal(15, lambda *_: 0); open({str(ready)!r}, 'w'); time.sleep(60)"
    daemon = sleeper(tmp_path, deaf)
    daemon.start()
    assert wait_for(ready.exists)
    daemon.stop()
    assert not daemon.is_running


def test_a_daemon_that_dies_says_its_last_words(tmp_path: Path) -> None:
    daemon = sleeper(tmp_path, "raise SystemExit('the port is taken')")
    daemon.start()
    assert wait_for(lambda: not daemon.is_running)
    with pytest.raises(DfsError, match=r"sleeper ended with code 1.*sleeper\.log:\nthe port is taken"):
        daemon.check()


def test_one_folder_has_one_daemon(tmp_path: Path) -> None:
    daemon = sleeper(tmp_path)
    daemon.start()
    try:
        assert wait_for(lambda: Path(f"/proc/{daemon.pid}/cmdline").read_bytes().startswith(os.fsencode(sys.executable)))
        for again in (daemon, sleeper(tmp_path)):
            with pytest.raises(DfsError, match=f"runs already .pid {daemon.pid}"):
                again.start()
    finally:
        daemon.kill()
    sleeper(tmp_path)._note.write_text(str(os.getpid()))  # an id that somebody else has now
    after = sleeper(tmp_path)
    after.start()
    after.kill()


def test_a_daemon_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    """Even when that one is killed, and could stop nothing; and not with the thread that asked for its start."""
    ready, asked = tmp_path / "ready", tmp_path / "asked"
    answering = (
        f"import signal, time; signal.signal(signal.SIGUSR1, lambda *_: open({str(asked)!r}, 'w').close())\n"
        f"open({str(ready)!r}, 'w').close()\n"
        "while True: time.sleep(60)"
    )
    code = (
        "import os, sys, threading; from pathlib import Path; from chaos.servers.daemon import Daemon\n"
        f"daemon = Daemon('sleeper', [sys.executable, '-c', {answering!r}], Path({str(tmp_path)!r}))\n"
        "starter = threading.Thread(target=daemon.start); starter.start(); starter.join()\n"
        "while os.path.exists(f'/proc/self/task/{starter.native_id}'): pass\n"  # the system has signalled whom it would signal
        "print(daemon.pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid = owner.stdout.readline()
        assert wait_for(lambda: ready.exists() or has_ended(int(pid)))
        os.kill(int(pid), signal.SIGUSR1)
        assert wait_for(lambda: asked.exists() or has_ended(int(pid)))
        assert asked.exists(), "it ended with the thread"
        owner.kill()
    assert wait_for(lambda: has_ended(int(pid)))


# ---- the cluster
def test_faults_heal_and_a_restart_is_the_same_cluster(faulty_hdfs: HdfsCluster) -> None:
    cluster = faulty_hdfs
    cluster.make_folder("/kept")
    cluster.safe_mode(True)
    with pytest.raises(DfsError, match="cannot make /refused"):
        cluster.make_folder("/refused")
    assert cluster.status().safe_mode
    cluster.data_nodes[0].pause()
    cluster.name_node.kill()
    assert not cluster.status().answers
    with pytest.raises(DfsError, match=r"not within 0\.3 s: it is back; the last it said was HdfsStatus\(answers=False"):
        cluster.wait(lambda status: status.answers, "it is back", 0.3)
    address = cluster.web_url
    cluster.heal()
    assert (cluster.web_url, cluster.status().live) == (address, 1)
    cluster.set_quota("/kept", 1 << 30)  # fails when the folder is gone
    cluster.set_quota("/kept", None)


def test_a_command_that_fails_says_why(hdfs: HdfsCluster) -> None:
    with pytest.raises(DfsError, match=r"DFSAdmin -setSpaceQuota 1 /nowhere failed .*(.|\n)*does not exist"):
        hdfs.set_quota("/nowhere", 1)
    with pytest.raises(DfsError, match="datanode1 runs"):
        hdfs.wipe(hdfs.data_nodes[0])


def test_the_command_runs_one_in_the_foreground_and_stops_it(tmp_path: Path, shared_hdfs: HdfsCluster) -> None:
    note = tmp_path / "hdfs.json"
    with subprocess.Popen([sys.executable, "-m", "chaos", "hdfs", "--dir", str(tmp_path)], stdout=subprocess.PIPE) as process:
        try:
            assert wait_for(lambda: note.exists() or process.poll() is not None, 120)
            told: dict[str, Any] = msgspec.json.decode(note.read_bytes())["a"]
            assert all(state(pid) in ("R", "S", "D") for pid in told["pids"].values())
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
    assert {state(pid) for pid in told["pids"].values()} == {""}
    assert not note.exists()


def test_what_is_asked_of_the_command_is_checked(capsys: pytest.CaptureFixture[str]) -> None:
    for given, said in (([], "--dir is missing"), (["--dir", "d", "--clusters", "3"], "--clusters"),
                        (["--dir", "d", "--data-nodes", "0"], "at least 1")):
        with pytest.raises(SystemExit):
            hdfs_cli.main(given)
        assert said in capsys.readouterr().err


def test_this_machine_can_run_one_or_says_why() -> None:
    reason = hdfs_jars.missing()
    assert reason is None or "install" in reason or "--fetch" in reason or "make setup" in reason
