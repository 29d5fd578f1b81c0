"""The units are ones that systemd takes and finds tight, and a pair works inside of what they allow."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

import pytest

from chaos.servers.ports import free_ports
from gateway.demo.child import start_child
from gateway.demo.files import write_files
from tests.deploy import sandbox
from tests.needs import need_program, need_root
from tests.processes import wait_for
from tools.sources import ROOT
from twinlog import Client
from twinlog.cli.main import all_verbs

UNITS = sorted((ROOT / "docs" / "deploy" / "systemd").glob("*.service"))
EXPOSURE_MAX = 2.0  # of 10, as `systemd-analyze security` counts; a unit without a profile has 9.6
DEADLINE_S = 120.0  # a busy machine is no fault of the units
SITE = (ROOT / "docs" / "deploy" / "systemd" / "twinlog@.service").read_text(encoding="utf-8")
FORBIDDEN = """
import ctypes, mmap, os
def refused(call):
    try: call()
    except (OSError, PermissionError) as error: return error.errno
print(refused(lambda: os.chroot("/")), refused(lambda: mmap.mmap(-1, 4096, prot=7)), refused(lambda: open("/made", "w")))
print([line.split()[1] for line in open("/proc/self/status") if line.startswith("CapEff")][0].strip("0"))
"""


@pytest.fixture(scope="module")
def analyze() -> str:
    return need_program("systemd-analyze", "systemd")


def test_each_unit_runs_a_verb_that_there_is() -> None:
    called = {verb for unit in UNITS for verb in re.findall(r"bin/twinlog (\w+)", unit.read_text())}
    assert called == {"serve", "monitor"}
    assert called <= all_verbs().keys()


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_takes_it(analyze: str, unit: Path, tmp_path: Path) -> None:
    """As it stands, but for the program and its page, which have to be there."""
    made = tmp_path / unit.name.replace("@", "@a")
    text = re.sub("^Documentation=.*\n", "", unit.read_text(), flags=re.MULTILINE)
    made.write_text(text.replace("/opt/twinlog/bin/twinlog", "/bin/true"))
    done = subprocess.run([analyze, "verify", str(made)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_finds_it_tight(analyze: str, unit: Path) -> None:
    command = [analyze, "security", "--offline=true", f"--threshold={EXPOSURE_MAX * 10:.0f}", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-300:] + done.stderr


def ends_by(*arguments: str, sent: int | None = None) -> int:
    """The exit code of the command, to which the signal `sent` is sent once it has said something."""
    command = ["env", "--default-signal=INT", sys.executable, "-m", "twinlog", *arguments]  # a job of a shell may ignore it
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            if sent is not None:
                assert process.stdout is not None
                assert process.stdout.readline()
                process.send_signal(sent)
            process.communicate(timeout=DEADLINE_S)
            return process.returncode
        finally:
            process.kill()


def test_a_faulty_configuration_is_not_tried_again(tmp_path: Path) -> None:
    """systemd compares RestartPreventExitStatus= with the exit code of ExecStart= alone: with a check before it the unit began
    anew for ever."""
    (tmp_path / "a.toml").write_text("nonsense = 1\n")
    assert sandbox.directives(SITE, "RestartPreventExitStatus") == [str(ends_by("serve", "--config", str(tmp_path / "a.toml")))]
    assert not [unit.name for unit in UNITS if re.search("^(ExecStartPre|ExecCondition)=", unit.read_text(), re.MULTILINE)]


def test_a_monitor_that_is_stopped_has_not_failed(tmp_path: Path) -> None:
    first, second = free_ports(2)
    write_files(tmp_path, {"a": first, "b": second}, engine="rocksdb")
    (unit,) = [unit.read_text() for unit in UNITS if unit.name.startswith("twinlog-monitor")]
    (stop,) = sandbox.directives(unit, "KillSignal")
    code = ends_by("monitor", "--config", str(tmp_path / "operator.toml"), sent=signal.Signals[stop])
    assert str(code) in ["0", *sandbox.directives(unit, "SuccessExitStatus")]


def run_inside(analyze: str, folder: Path, *command: str) -> list[str]:
    need_root("a mount namespace")
    return sandbox.command_of(sorted(sandbox.allowed_calls(analyze, SITE)), folder, command)


def test_the_sandbox_of_the_next_test_is_in_force(analyze: str, tmp_path: Path) -> None:
    command = run_inside(analyze, tmp_path, sys.executable, "-c", FORBIDDEN)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.split("\n") == ["1 1 30", "", ""], done.stderr


def both_work(ports: tuple[int, int]) -> bool:
    """Returns whether the first site takes writes, and the second one follows."""
    try:
        with urlopen(f"http://127.0.0.1:{ports[0]}/health/primary"), urlopen(f"http://127.0.0.1:{ports[1]}/health/ready"):
            return True
    except OSError:
        return False


@pytest.mark.pair
@pytest.mark.long
def test_a_pair_works_inside_of_what_its_unit_allows(analyze: str, tmp_path: Path) -> None:
    """Both sites with RocksDB and directories, from their first start to SIGINT, with writes, reads and a role change."""
    first, second = free_ports(2)
    configs = write_files(tmp_path, {"a": first, "b": second}, engine="rocksdb")
    address = f"http://127.0.0.1:{first},http://127.0.0.1:{second}"
    with ExitStack() as around:
        gateways = []
        for site, config in configs.items():
            log = around.enter_context((tmp_path / f"{site}.log").open("wb"))
            command = run_inside(analyze, tmp_path, sys.executable, "-m", "twinlog", "serve", "--config", str(config))
            gateways.append(start_child(command, log, folder=ROOT))
            around.callback(gateways[-1].wait, DEADLINE_S)
            around.callback(gateways[-1].terminate)
        assert wait_for(lambda: both_work((first, second)), DEADLINE_S)
        with Client(address) as client:
            client.create_table({"name": "t", "columns": [{"name": "id", "type": "int64"}], "primary_key": ["id"]})
            assert {client.put("t", number, {}).mode for number in range(200)} == {"sync"}
            switched = [sys.executable, "-m", "twinlog", "switchover", "--to", "b", "--yes", "--config", address]
            done = subprocess.run(switched, cwd=ROOT, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
            assert client.get("t", 199) is not None
    logs = "".join((tmp_path / f"{site}.log").read_text() for site in configs)
    assert [gateway.returncode for gateway in gateways] == [0, 0], logs
    assert '"serves"' in logs
    assert [line for line in logs.splitlines() if "not permitted" in line or "EPERM" in line] == []
