"""A Toxiproxy of somebody else: proxies by their names, and nothing in it is changed that the run did not put there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import toxiproxy as package  # type: ignore[import-untyped]

from chaos.harness.attach.proxies import TheirLinks, TheirServer, server_at
from chaos.servers import toxiproxy
from chaos.servers.ports import free_ports
from twinlog.errors import ConfigError, InvalidInput, Unavailable


@pytest.fixture
def theirs(tmp_path: Path) -> Iterator[tuple[TheirServer, package.Toxiproxy]]:
    """A server with the proxies a>b and c>a, and a toxic that was there before."""
    toxiproxy.fetch()
    server = toxiproxy.Toxiproxy(tmp_path)
    server.start()
    control = package.Toxiproxy()
    control.update_api_consumer(server.host, server.port)
    for name, (listen, upstream) in zip(("a>b", "c>a"), (free_ports(2), free_ports(2)), strict=True):
        control.create(upstream=f"127.0.0.1:{upstream}", name=name, listen=f"127.0.0.1:{listen}", enabled=True)
    control.get_proxy("a>b").add_toxic(type="latency", stream="upstream", attributes={"latency": 5, "jitter": 0})
    try:
        yield TheirServer(server.host, server.port), control
    finally:
        server.stop()


async def test_what_was_put_there_goes_and_what_was_there_stays(theirs: tuple[TheirServer, package.Toxiproxy]) -> None:
    server, control = theirs
    with TheirLinks(server, {"a>b"}, "chaos_1_").opened() as links:
        await links.add("a>b", "latency", "upstream", {"latency": 9, "jitter": 0})
        await links.add("a>b", "timeout", "downstream", {"timeout": 0})
        await links.switch("c>a", on=False)
        assert sorted(control.get_proxy("a>b").toxics()) == [
            "chaos_1_latency_upstream", "chaos_1_timeout_downstream", "latency_upstream",
        ]
        await links.reset()
        assert list(control.get_proxy("a>b").toxics()) == ["latency_upstream"]
        assert control.get_proxy("c>a").enabled


async def test_a_proxy_that_others_disabled_meanwhile_stays_disabled(theirs: tuple[TheirServer, package.Toxiproxy]) -> None:
    server, control = theirs
    with TheirLinks(server, {"a>b"}, "chaos_1_").opened() as links:
        control.get_proxy("c>a").disable()
        await links.reset()
        assert not control.get_proxy("c>a").enabled


def test_a_link_without_a_proxy_and_a_disabled_one_are_refused(theirs: tuple[TheirServer, package.Toxiproxy]) -> None:
    server, control = theirs
    with pytest.raises(InvalidInput, match=r"the link b>a, .* has no proxy of that name; it has: a>b, c>a"), \
            TheirLinks(server, {"a>b", "b>a"}, "x").opened():
        pass
    control.get_proxy("a>b").disable()
    with pytest.raises(ConfigError, match=r"the proxy a>b of Toxiproxy at .* is disabled"), \
            TheirLinks(server, {"a>b"}, "x").opened():
        pass
    with TheirLinks(server, (), "x").opened():
        pass


def test_clients_ask_through_the_proxies_that_are_there(theirs: tuple[TheirServer, package.Toxiproxy]) -> None:
    server, control = theirs
    with TheirLinks(server, (), "x").opened() as links:
        urls = links.client_urls({"a": "http://a:1", "b": "http://b:2"})
    assert urls == {"a": f"http://{control.get_proxy('c>a').listen}", "b": "http://b:2"}


def test_a_server_that_does_not_answer_is_named() -> None:
    with pytest.raises(Unavailable, match=r"Toxiproxy at 127.0.0.1:1 does not answer"), \
            TheirLinks(TheirServer("127.0.0.1", 1), {"a>b"}, "x").opened():
        pass
    with TheirLinks(None, (), "x").opened() as links:
        assert links.client_urls({"a": "http://a:1"}) == {"a": "http://a:1"}


@pytest.mark.parametrize("text", ["8474", "host:", ":8474", "host:port"])
def test_an_address_without_a_host_or_a_port_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        server_at(text)
    assert server_at("[::1]:8474") == TheirServer("::1", 8474)
