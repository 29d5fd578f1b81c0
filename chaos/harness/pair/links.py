"""The links of the pair, each a proxy of a real Toxiproxy server: what is done to a link, and undone.

What always holds: this is the only room that knows the package `toxiproxy`, whose gaps it fills: its address is global to the
process (so one Links is open at a time), its calls have no deadline (here each has one), a toxic that is added is not looked
at (here it is read back), and only some errors of the server are raised (here an answer that lacks what was asked for is one).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

import toxiproxy  # type: ignore[import-untyped]

from twinlog.errors import ConfigError, Unavailable, words

CALL_S = 10.0
STREAMS = ("upstream", "downstream")
_T = TypeVar("_T")


class Address(Protocol):
    """The place of a server's API."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...


_open: list[Links] = []


class Links:
    """`listen`: link -> HOST:PORT at which its caller connects; `upstream`: link -> HOST:PORT of the one who is called."""

    mark = ""  # begins the name of each toxic

    def __init__(self, server: Address, upstream: Mapping[str, str], listen: Mapping[str, str]) -> None:
        self._server, self._upstream, self._listen = server, upstream, listen
        self._control = toxiproxy.Toxiproxy()
        self._proxies: dict[str, Any] = {}

    def open(self) -> None:
        """Raises ConfigError while another one is open, Unavailable."""
        if _open:
            raise ConfigError("Links are open already, and the package `toxiproxy` knows one server for each process")
        self._control.update_api_consumer(self._server.host, self._server.port)
        _open.append(self)
        self._take_proxies()

    def _take_proxies(self) -> None:
        """Makes them."""
        for link, upstream in self._upstream.items():
            listen = self._listen[link]
            try:
                self._proxies[link] = self._control.create(upstream=upstream, name=link, listen=listen, enabled=True)
            except (KeyError, OSError, ValueError) as error:
                raise Unavailable(f"Toxiproxy does not make the proxy {link} at {listen}: {words(error)}") from error

    def close(self) -> None:
        if self in _open:
            _open.remove(self)

    @contextmanager
    def opened(self) -> Any:
        try:
            self.open()
            yield self
        finally:
            self.close()

    async def add(self, link: str, toxic: str, stream: str, attributes: Mapping[str, int]) -> None:
        """Raises Unavailable when the server does not have it afterwards."""
        name = self._name(toxic, stream)

        def work() -> None:
            proxy = self._proxies[link]
            proxy.add_toxic(type=toxic, stream=stream, name=name, attributes=dict(attributes))
            found = proxy.get_toxic(name)
            if found is None or any(found.attributes.get(key) != value for key, value in attributes.items()):
                raise Unavailable(f"Toxiproxy does not have the toxic {name} of link {link} that it was given")

        await self._call(work)

    async def remove(self, link: str, toxic: str, stream: str) -> None:
        def work() -> None:
            proxy, name = self._proxies[link], self._name(toxic, stream)
            proxy.destroy_toxic(name)
            if proxy.get_toxic(name) is not None:
                raise Unavailable(f"Toxiproxy still has the toxic {name} of link {link}")

        await self._call(work)

    def _name(self, toxic: str, stream: str) -> str:
        return f"{self.mark}{toxic}_{stream}"

    async def switch(self, link: str, *, on: bool) -> None:
        """Off: its connections are closed, and new ones are refused."""
        await self._call(self._proxies[link].enable if on else self._proxies[link].disable)

    async def reset(self) -> None:
        """Every link as at the beginning."""
        def work() -> None:
            self._control.reset()
            for link, proxy in self._control.proxies().items():
                if not proxy.enabled or proxy.toxics():
                    raise Unavailable(f"Toxiproxy did not reset the link {link}")

        await self._call(work)

    async def _call(self, work: Callable[[], _T]) -> _T:
        try:
            return await asyncio.wait_for(asyncio.to_thread(work), CALL_S)
        except (TimeoutError, OSError, toxiproxy.exceptions.NotFound, toxiproxy.exceptions.InvalidToxic) as error:
            raise Unavailable(f"Toxiproxy does not do what it was asked for: {words(error)}") from error
