"""The proxies of a Toxiproxy that is not ours, named as a plan names links.

What always holds: only proxies that a plan names are touched, and only toxics of this run are removed: each is named by it. A
proxy that was disabled when the run began is refused.
"""

from __future__ import annotations

import socket
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from chaos.harness.pair.links import CALL_S, Links
from chaos.harness.pair.parts import LINKS
from twinlog.errors import ConfigError, InvalidInput, Unavailable, words

_ANYWHERE = ("", "0.0.0.0", "::", "127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class TheirServer:
    """The place of its API."""

    host: str
    port: int


def server_at(text: str) -> TheirServer:
    """Reads HOST:PORT. Raises InvalidInput."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit():
        raise InvalidInput(f"--toxiproxy {text}: write HOST:PORT, the address of its API (by default it listens on port 8474)")
    return TheirServer(host.strip("[]"), int(port))


class TheirLinks(Links):
    """`server` None: there is none, and no link. `needed`: the links that the plan names. `mark` begins the names of toxics."""

    def __init__(self, server: TheirServer | None, needed: Collection[str], mark: str) -> None:
        super().__init__(server or TheirServer("", 0), {}, {})
        self._there, self._needed = server, needed
        self.mark = mark

    def client_urls(self, direct: dict[str, str]) -> dict[str, str]:
        """`direct`, but through the proxies `c>a` and `c>b`, where there are such."""
        through = {}
        for site, url in direct.items():
            proxy = self._proxies.get(f"c>{site}")
            if proxy is None:
                through[site] = url
                continue
            host, _, port = proxy.listen.rpartition(":")
            host = host.strip("[]")
            host = self._server.host if host in _ANYWHERE else host
            through[site] = f"http://{f'[{host}]' if ':' in host else host}:{port}"
        return through

    def _take_proxies(self) -> None:
        """Those that are there. Raises InvalidInput where one is missing, ConfigError where one is disabled."""
        if self._there is None:
            return
        there = f"Toxiproxy at {self._there.host}:{self._there.port}"
        try:
            socket.create_connection((self._there.host, self._there.port), CALL_S).close()
            found: dict[str, Any] = self._control.proxies()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise Unavailable(f"{there} does not answer: {words(error)}") from error
        self._proxies = {name: proxy for name, proxy in found.items() if name in LINKS}
        missing = sorted(set(self._needed) - set(self._proxies))
        if missing:
            known = ", ".join(sorted(found)) or "none"
            raise InvalidInput(f"the plan names the link {missing[0]}, and {there} has no proxy of that name; it has: {known}")
        for name in self._needed:
            if not self._proxies[name].enabled:
                raise ConfigError(f"the proxy {name} of {there} is disabled: enable it, or leave its faults out of the plan")

    async def reset(self) -> None:
        """Toxics of this run are removed, and proxies that it disabled are enabled. Raises Unavailable with what is left."""
        left: list[str] = []

        def work() -> None:
            for name, proxy in self._proxies.items():
                if name in self._off:
                    proxy.enable()
                for toxic in proxy.toxics():
                    if toxic.startswith(self.mark):
                        proxy.destroy_toxic(toxic)
                left.extend(f"{toxic} of {name}" for toxic in proxy.toxics() if toxic.startswith(self.mark))

        await self._call(work)
        self._off.clear()
        if left:
            raise Unavailable(f"Toxiproxy still has the toxics {', '.join(left)}: remove them by hand")


