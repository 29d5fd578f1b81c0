"""A server below a site as faults see it, and all servers of one site.

What always holds: a server that was started is ended by `stop` of its site's servers, paused or not; every call blocks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Server(Protocol):
    """One server: a process, or a few that live and die together. One thing is done to it at a time: whoever kills one that
    starts waits until it has. What is asked of it in vain raises TwinlogError."""

    @property
    def is_running(self) -> bool:
        """True also while it is paused."""

    is_paused: bool

    def start(self) -> None:
        """Returns when it answers, as far as that is its own affair. Nothing to do while it runs."""

    def terminate(self) -> None:
        """In the way in which its administrator stops it."""

    def kill(self) -> None:
        """SIGKILL."""

    def pause(self) -> None:
        """SIGSTOP; when this returns, nothing of it runs."""

    def resume(self) -> None:
        """SIGCONT."""


class SiteServers(Protocol):
    """The servers of one kind of one site, by their names in a plan."""

    servers: Mapping[str, Server]

    def start(self) -> None:
        """All that do not run, made anew where nothing is there; returns when they can be used."""

    def lose(self) -> None:
        """They are killed, and what they kept is gone."""

    def stop(self) -> None:
        """Whatever runs is ended."""
