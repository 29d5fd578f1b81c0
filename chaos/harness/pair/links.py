"""The links of the pair, each a proxy of a real Toxiproxy server: what is done to a link, and undone.

What always holds: this is the only room that knows the package `toxiproxy`, whose gaps it fills: its address is global to the
process (so one Links is open at a time), its calls have no deadline (here each has one), a toxic that is added is not looked
at (here it is read back), and only some errors of the server are raised (here an answer that lacks what was asked for is one).
A server that is killed forgets its links; when it is back, each has again what was done to it, and nothing passed it meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import toxiproxy  # type: ignore[import-untyped]

from twinlog.errors import ConfigError, Unavailable, words

CALL_S = 10.0
STREAMS = ("upstream", "downstream")
_T = TypeVar("_T")


class Toxic(NamedTuple):
    """One of a link; `kind` is the server's word for it."""

    kind: str
    stream: str
    attributes: Mapping[str, int]


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
        self._toxics: dict[tuple[str, str], Toxic] = {}  # (link, name) -> in force, or in force again once the server is back
        self._off: set[str] = set()  # links that are switched off
        self._is_away = False
        self._one_at_a_time = asyncio.Lock()

    def open(self) -> None:
        """Raises ConfigError while another one is open, Unavailable."""
        if _open:
            raise ConfigError("Links are open already, and the package `toxiproxy` knows one server for each process")
        self._control.update_api_consumer(self._server.host, self._server.port)
        _open.append(self)
        self._take_proxies()

    def _take_proxies(self) -> None:
        """Makes them, each with what is done to it before anybody can connect."""
        for link, upstream in self._upstream.items():
            listen, done = self._listen[link], [toxic for (of, _), toxic in self._toxics.items() if of == link]
            is_on = not done and link not in self._off
            try:
                self._proxies[link] = self._control.create(upstream=upstream, name=link, listen=listen, enabled=is_on)
            except (KeyError, OSError, ValueError) as error:
                raise Unavailable(f"Toxiproxy does not make the proxy {link} at {listen}: {words(error)}") from error
            for toxic in done:
                self._give(link, toxic)
            if not is_on and link not in self._off:
                self._proxies[link].enable()

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
        """Raises Unavailable when the server does not have it afterwards. While it is away, it gets it when it is back."""
        given = Toxic(toxic, stream, dict(attributes))
        async with self._one_at_a_time:
            if not self._is_away:
                await self._call(partial(self._give, link, given))
            self._toxics[link, self._name(toxic, stream)] = given

    def _give(self, link: str, toxic: Toxic) -> None:
        proxy, name, attributes = self._proxies[link], self._name(toxic.kind, toxic.stream), dict(toxic.attributes)
        proxy.add_toxic(type=toxic.kind, stream=toxic.stream, name=name, attributes=attributes)
        found = proxy.get_toxic(name)
        if found is None or any(found.attributes.get(key) != value for key, value in attributes.items()):
            raise Unavailable(f"Toxiproxy does not have the toxic {name} of link {link} that it was given")

    async def remove(self, link: str, toxic: str, stream: str) -> None:
        name = self._name(toxic, stream)

        def work() -> None:
            proxy = self._proxies[link]
            proxy.destroy_toxic(name)
            if proxy.get_toxic(name) is not None:
                raise Unavailable(f"Toxiproxy still has the toxic {name} of link {link}")

        async with self._one_at_a_time:
            self._toxics.pop((link, name), None)
            if not self._is_away:
                await self._call(work)

    def _name(self, toxic: str, stream: str) -> str:
        return f"{self.mark}{toxic}_{stream}"

    async def switch(self, link: str, *, on: bool) -> None:
        """Off: its connections are closed, and new ones are refused."""
        async with self._one_at_a_time:
            if not on:
                self._off.add(link)
            if not self._is_away:
                await self._call(self._proxies[link].enable if on else self._proxies[link].disable)
            if on:
                self._off.discard(link)

    async def reset(self) -> None:
        """Every link as at the beginning. The server is not away."""
        def work() -> None:
            self._control.reset()
            for link, proxy in self._control.proxies().items():
                if not proxy.enabled or proxy.toxics():
                    raise Unavailable(f"Toxiproxy did not reset the link {link}")

        async with self._one_at_a_time:
            await self._call(work)
            self._toxics.clear()
            self._off.clear()

    @property
    def is_away(self) -> bool:
        """True between `lose` and `bring_back`."""
        return self._is_away

    async def lose(self, end: Callable[[], None]) -> None:
        """The server ends by `end`, and with it every connection of every link; new ones are refused."""
        async with self._one_at_a_time:
            self._is_away = True
            await asyncio.to_thread(end)

    async def bring_back(self, start: Callable[[], None]) -> int:
        """The server is back by `start`, and knows nothing: it gets every link again, with what was done to it, and what has
        been asked of it since. Returns how many toxics and links that are switched off that were."""
        async with self._one_at_a_time:
            await asyncio.to_thread(start)
            await self._call(self._take_proxies)
            self._is_away = False
            return len(self._toxics) + len(self._off)

    async def _call(self, work: Callable[[], _T]) -> _T:
        try:
            async with asyncio.timeout(CALL_S):
                return await asyncio.to_thread(work)
        except (TimeoutError, OSError, toxiproxy.exceptions.NotFound, toxiproxy.exceptions.InvalidToxic) as error:
            raise Unavailable(f"Toxiproxy does not do what it was asked for: {words(error)}") from error
