"""Handshakes of one address: a burst at once, then so many a second, and none that would wait for too long."""

from __future__ import annotations

import asyncio
import ssl

import pytest

from gateway.tls.rates import ADDRESSES_MAX, BURST_S, HELD_S, HandshakeRates
from gateway.tls.site_tls import SiteTls
from tests.gateway.tls.tls_rig import HOST, Certificates, client_of, public_door, site_tls, until


def test_a_burst_begins_at_once_and_the_rest_in_turn() -> None:
    rates = HandshakeRates(10.0)
    waits = [rates.wait_s("10.0.0.7", 100.0) for _ in range(13)]
    assert waits == pytest.approx([0.0] * 10 + [0.1, 0.2, 0.3])


def test_who_would_wait_for_too_long_is_refused_and_not_counted() -> None:
    rates = HandshakeRates(10.0)
    found = [rates.wait_s("10.0.0.7", 100.0) for _ in range(1000)]
    taken = [wait for wait in found if wait is not None]
    assert len(taken) == 10 * (BURST_S + HELD_S)
    assert max(taken) == pytest.approx(HELD_S)
    assert rates.wait_s("10.0.0.7", 100.1) == pytest.approx(HELD_S), "a tenth of a second later one more has its turn"
    assert rates.wait_s("10.0.0.7", 100.1) is None


def test_over_time_an_address_gets_its_rate_however_quickly_it_asks() -> None:
    rates = HandshakeRates(10.0)
    turns = [at / 100 + wait for at in range(6000) if (wait := rates.wait_s("10.0.0.7", at / 100)) is not None]
    assert sum(turn < 60 for turn in turns) == pytest.approx(10 * 60 + 10, abs=2)


def test_no_address_delays_another_and_an_idle_one_has_its_burst_again() -> None:
    rates = HandshakeRates(10.0)
    for _ in range(100):
        rates.wait_s("10.0.0.7", 100.0)
    assert rates.wait_s("10.0.0.8", 100.0) == 0.0
    assert [rates.wait_s("10.0.0.7", 200.0) for _ in range(10)] == [0.0] * 10


def test_the_number_of_addresses_that_are_kept_is_bounded() -> None:
    rates = HandshakeRates(10.0)
    for number in range(ADDRESSES_MAX + 100):
        rates.wait_s(str(number), 100.0)
    assert len(rates._until_s) == ADDRESSES_MAX


def slow(tls: SiteTls, per_s: float) -> SiteTls:
    """At `per_s` handshakes a second."""
    tls._handshakes_per_s = per_s
    return tls


async def test_a_handshake_beyond_the_rate_waits_for_its_turn_and_is_made_then(certificates: Certificates) -> None:
    tls = slow(site_tls(certificates.site("a")), 2.0)
    async with public_door(tls) as (server, _):
        opened = await asyncio.gather(*(
            asyncio.open_connection(HOST, server.port, ssl=client_of(certificates)) for _ in range(4)
        ))
        counted = tls.metrics()
        assert (counted["tls_handshakes_held_total"], counted["tls_handshakes_refused_total"]) == (2, 0)
        for _, writer in opened:
            writer.close()


async def test_one_that_would_wait_for_too_long_is_refused_and_leaves_its_place(certificates: Certificates) -> None:
    tls = slow(site_tls(certificates.site("a")), 1.0)
    begun = 1 + round(HELD_S)  # one at once, and one in each second that one may wait
    async with public_door(tls) as (server, _):
        held = [await asyncio.open_connection(HOST, server.port) for _ in range(begun)]
        for _, writer in held:
            writer.write(hello(certificates))
        await until(lambda: tls.metrics()["tls_handshakes_held_total"] == begun - 1)
        with pytest.raises(ConnectionError):
            await asyncio.open_connection(HOST, server.port, ssl=client_of(certificates))
        assert tls.metrics()["tls_handshakes_refused_total"] == 1
        for _, writer in held:
            writer.transport.abort()
        await until(lambda: not server.places.served)


async def test_half_a_first_message_takes_no_turn_from_others_of_its_address(certificates: Certificates) -> None:
    """It costs nothing: whoever opens thousands of them at once would else shut his whole address out."""
    tls, begun = slow(site_tls(certificates.site("a")), 1.0), []
    async with public_door(tls) as (server, _):
        for _ in range(20):
            begun.append((await asyncio.open_connection(HOST, server.port))[1])
            begun[-1].write(hello(certificates)[:-1])
        _, writer = await asyncio.open_connection(HOST, server.port, ssl=client_of(certificates))
        counted = tls.metrics()
        assert (counted["tls_handshakes_held_total"], counted["tls_handshakes_refused_total"]) == (0, 0)
        for each in (*begun, writer):
            each.transport.abort()


def hello(certificates: Certificates) -> bytes:
    """The first message of a handshake."""
    outgoing = ssl.MemoryBIO()
    secured = client_of(certificates).wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=HOST)
    with pytest.raises(ssl.SSLWantReadError):
        secured.do_handshake()
    return outgoing.read()
