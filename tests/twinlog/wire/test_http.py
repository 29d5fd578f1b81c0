"""The blocking HTTP client over real TCP: what it sends, when it gives up, and what it then says of the request."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from tests.twinlog.raw_site import RawSite
from twinlog.errors import InvalidInput, NotFound, PeerError
from twinlog.wire.exchange import Broken, Reply, SiteRequest
from twinlog.wire.http import Http

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Name: v\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n"  # and no end
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


@pytest.fixture
def http() -> Iterator[Http]:
    made = Http()
    yield made
    made.close()


def get(http: Http, url: str, timeout_s: float = 5.0) -> Reply | Broken:
    return http.send(SiteRequest(url, "GET", {"Twinlog-Actor": "me"}, b"", timeout_s))


def test_a_request_and_its_answer_on_one_connection_that_is_kept(http: Http) -> None:
    with RawSite([OK, None, OK]) as site:
        assert get(http, f"{site.url}/v1/x?y=%2F") == Reply(200, {"content-length": "2", "x-name": "v"}, b"ok")
        put = http.send(SiteRequest(f"{site.url}/v1/x", "PUT", {}, b"body", 5.0))
        assert isinstance(put, Reply)
    assert site.heads[0].startswith(b"GET /v1/x?y=%2F HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"\r\nTwinlog-Actor: me\r\n" in site.heads[0]
    assert site.heads[1].startswith(b"PUT /v1/x HTTP/1.1")
    assert b"Content-Length: 4\r\n" in site.heads[1]


def test_a_connection_that_the_site_closed_is_not_used_again(http: Http) -> None:
    with RawSite([OK], [OK]) as site:
        assert isinstance(get(http, site.url), Reply)
        assert site.ended.acquire(timeout=120)  # before that the client cannot know
        assert isinstance(get(http, site.url), Reply), "nothing of the second request was lost in the closed connection"
    assert len(site.heads) == 2


@pytest.mark.parametrize("answer", [
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\nok",
], ids=["chunked", "until the end"])
def test_every_way_to_frame_an_answer(http: Http, answer: bytes) -> None:
    with RawSite([answer]) as site:
        found = get(http, site.url)
    assert isinstance(found, Reply)
    assert found.content == b"ok"


def test_nobody_listens_so_nothing_was_sent(http: Http) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    found = get(http, url)
    assert isinstance(found, Broken)
    assert not found.sent
    assert "refused" in found.detail


@pytest.mark.parametrize("pieces", [[b""], [b"HTTP/1.1 200 OK\r\n"], [OK[:-1]], [CHUNKED], [b"no HTTP\r\n\r\n"]], ids=repr)
def test_an_answer_that_breaks_off_leaves_open_what_became_of_the_request(http: Http, pieces: list[bytes]) -> None:
    with RawSite(pieces) as site:
        found = get(http, site.url)
    assert isinstance(found, Broken)
    assert found.sent


@pytest.mark.parametrize("begin", [b"", OK[:-2]], ids=["silent", "in the body"])
def test_a_site_that_hangs_is_left_at_the_time_out(http: Http, begin: bytes) -> None:
    ended = threading.Event()
    with RawSite([begin, ended]) as site:
        assert get(http, site.url, 0.2) == Broken(True, "no answer in time")
        ended.set()


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"], ids=["head", "body"]
)
def test_a_site_that_sends_byte_by_byte_is_left_at_the_time_out(http: Http, head: bytes) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    left = threading.Event()

    def drip() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(head)
            for _ in range(5000):  # the end of it is another error: each byte began the time anew
                if left.wait(0.02):
                    break
                connection.sendall(b"x")

    thread = threading.Thread(target=drip)
    thread.start()
    found = get(http, f"http://127.0.0.1:{listener.getsockname()[1]}", 0.3)
    left.set()
    thread.join()
    listener.close()
    assert found == Broken(True, "no answer in time")


def test_what_cannot_stand_on_the_wire_is_not_sent(http: Http) -> None:
    with RawSite([OK, None, OK]) as site:
        assert isinstance(get(http, f"{site.url}/v1/operations/ä b"), Reply)
        for headers in ({"Idempotency-Key": "a\r\nX: y"}, {"Idempotency-Key": "\N{SNOWMAN}"}):
            with pytest.raises(InvalidInput, match="cannot be sent"):
                http.send(SiteRequest(site.url.replace("127.0.0.1", "localhost"), "GET", headers, b"", 1.0))
        with pytest.raises(InvalidInput, match="nothing was sent"):
            get(http, f"{site.url}/v1/tables/orders/rows/%2e%2e")
        assert isinstance(get(http, site.url), Reply)
    assert site.heads[0].startswith(b"GET /v1/operations/%C3%A4%20b HTTP/1.1\r\n")


STREAM = b": hello\n\nevent: cluster\ndata: {\"a\":\ndata:  1}\nid: 7\n\r\ndata:x\r\n\r\ndata: cut off"


def test_events_are_read_line_by_line(http: Http) -> None:
    with RawSite([EVENTS + STREAM[:30], STREAM[30:]]) as site:
        assert list(http.events(f"{site.url}/events", 5.0)) == ['{"a":\n 1}', "x"]


@pytest.mark.parametrize("sent", [CHUNKED, CHUNKED[:-5], CHUNKED[:-2], b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nab"])
def test_a_long_answer_that_is_lost_is_told_in_plain_words(http: Http, sent: bytes) -> None:
    with RawSite([sent], [sent]) as site:
        request = SiteRequest(site.url, "GET", {}, b"", 5.0)
        with pytest.raises(PeerError, match="the answer broke: the connection ended before the whole answer was there"):
            list(http.stream(request))
        assert http.send(request) == Broken(True, "the connection ended before the whole answer was there")


def test_a_stream_that_is_silent_or_breaks_or_is_refused(http: Http) -> None:
    ended = threading.Event()
    refused = b'HTTP/1.1 404 No\r\nContent-Length: 37\r\n\r\n{"type":"urn:twinlog:problem:not-found"}'
    with RawSite([EVENTS + b"data: 1\n\n", ended], [CHUNKED], [refused.replace(b"37", b"40")]) as site:
        events = http.events(site.url, 0.2)
        assert next(events) == "1"
        with pytest.raises(PeerError, match="broke: no answer in time"):
            next(events)
        ended.set()
        cut = http.events(site.url, 5.0)
        assert next(cut) == "1"
        with pytest.raises(PeerError, match="broke: the connection ended before the whole answer was there"):
            next(cut)
        with pytest.raises(NotFound):
            next(http.events(site.url, 5.0))
