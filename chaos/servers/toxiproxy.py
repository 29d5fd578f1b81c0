"""A real Toxiproxy server on this machine: built by Go from its module, once, into the cache, and run as a child.

What always holds: the version is pinned here; the server listens on 127.0.0.1 alone and does not outlive this process.
Source: docs/decisions/2026-11-24-a-harness-on-real-processes.md.
"""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path

from chaos.servers.daemon import Daemon
from chaos.servers.golang import GoProgram
from chaos.servers.ports import free_ports
from gateway.stopping import Stopped, stopping
from twinlog.errors import ConfigError, Unavailable

VERSION = "2.12.0"
MODULE = f"github.com/Shopify/toxiproxy/v2/cmd/server@v{VERSION}"
READY_S = 20.0
POLL_S = 0.02
_SERVER = GoProgram("Toxiproxy", MODULE, "server", f"toxiproxy-{VERSION}", "python -m chaos toxiproxy --fetch")
program, fetch = _SERVER.program, _SERVER.fetch


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

    def kill(self) -> None:
        self._daemon.kill()

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
