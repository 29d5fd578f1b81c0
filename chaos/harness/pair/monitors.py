"""The availability monitors of a run: each the product's own command, as a process that a plan starts, kills and stops.

What always holds: a monitor asks the sites directly, as one beside the coordinator does; one that ended although nobody ended
it is a find; what it says stands in its log, a JSON document in a line. Its waits are shorter than an operator's, so that it
acts within a run; the least silence that means anything is the product's own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import msgspec

from chaos.servers.daemon import Daemon
from gateway.demo.servers import child_environ

MONITORS = ("m1", "m2")
ACT = "act"  # the option by which it does what it advises
_THRESHOLDS = """
[monitor]
look_after_s = 3.0
degrade_after_s = 3.0
failover_after_s = 3.0
quiet_after_action_s = 5.0
actions_max = 100
"""


class Monitors:
    """`folder`: of the pair. `operator_config`: its operator's file, which is there when the first monitor starts."""

    def __init__(self, folder: Path, operator_config: Path) -> None:
        self._folder, self._operator_config = folder / "monitors", operator_config
        self._daemons: dict[str, Daemon] = {}  # those that are meant to run, and those that faults have ended
        self._wanted: set[str] = set()
        self.paused: set[str] = set()
        self.died: list[str] = []

    def is_running(self, name: str) -> bool:
        """True also while it is paused."""
        return name in self._daemons and self._daemons[name].is_running

    def start(self, name: str, options: list[str]) -> None:
        """`twinlog monitor` with these options. Returns at once."""
        self._folder.mkdir(exist_ok=True)
        config = self._operator_config.with_name("monitors.toml")  # beside that one: files that it names are relative to it
        config.write_text(self._operator_config.read_text(encoding="utf-8") + _THRESHOLDS, encoding="utf-8")
        command = [sys.executable, "-m", "twinlog", "monitor", *options, "--json", "--config", str(config)]
        self._daemons[name] = Daemon(name, command, self._folder, child_environ())
        self.start_again(name)

    def start_again(self, name: str) -> None:
        """As before. Nothing to do while it runs."""
        if not self.is_running(name):
            self._daemons[name].start()
            self._wanted.add(name)

    def kill(self, name: str) -> None:
        self._end(name, self._daemons[name].kill)

    def terminate(self, name: str) -> None:
        self._end(name, self._daemons[name].stop)

    def _end(self, name: str, end: Callable[[], None]) -> None:
        self._look(name)
        self._wanted.discard(name)
        self.paused.discard(name)
        end()

    def pause(self, name: str) -> None:
        self._daemons[name].pause()
        self.paused.add(name)

    def resume(self, name: str) -> None:
        """Nothing to do when it does not run."""
        self.paused.discard(name)
        if self.is_running(name):
            self._daemons[name].resume()

    def end(self) -> None:
        """All of them."""
        for name in self._daemons:
            self.terminate(name)

    def _look(self, name: str) -> None:
        if name in self._wanted and not self.is_running(name):
            self._wanted.discard(name)
            self.died.append(f"The monitor {name} ended by itself: {self._daemons[name].log_tail()}")

    def orders(self) -> list[str]:
        """Returns what each has asked the sites for, and what became of that."""
        found = []
        for name in sorted(self._daemons):
            for line in (self._folder / f"{name}.log").read_text(encoding="utf-8", errors="replace").splitlines():
                try:
                    said = msgspec.json.decode(line)
                except msgspec.DecodeError:  # a line that a kill has cut, or of an error
                    continue
                if isinstance(said, dict) and said.get("became"):
                    found.append(f"{name} at {said['at'][11:23]}: {said['kind']} at site {said['site']}, {said['became']}")
        return found
