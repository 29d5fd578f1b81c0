"""The token of a client: whom it is shown to, where it comes from, and where it never stands."""

from __future__ import annotations

import asyncio
import logging
import socketserver
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.twinlog.raw_site import RawSite
from twinlog.addresses import address_token
from twinlog.async_client import AsyncClient
from twinlog.client import Client
from twinlog.errors import ConfigError, Forbidden, InvalidInput, OutcomeUnknown, TwinlogError, Unauthenticated
from twinlog.flow import Patience
from twinlog.sites import Sites
from twinlog.wire import token as token_module
from twinlog.wire.async_http import AsyncHttp
from twinlog.wire.exchange import SiteRequest
from twinlog.wire.http import Http
from twinlog.wire.token import Token, token_source

SECRET = "twinlog_a-secret"
HEADER = f"Authorization: Bearer {SECRET}".lower().encode()
EMPTY = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


def answer(status: int, body: str) -> bytes:
    head = f"HTTP/1.1 {status} X\r\ncontent-type: application/problem+json\r\ncontent-length: {len(body)}\r\n"
    return f"{head}connection: close\r\n\r\n{body}".encode()


def ask(url: str, token: Token, *, asynchronous: bool) -> None:
    request = SiteRequest(url, "GET", {}, b"", 10.0)
    if not asynchronous:
        http = Http(token=token)
        http.send(request)
        http.close()
        return

    async def asked() -> None:
        one = AsyncHttp(token=token)
        await one.send(request)
        await one.close()

    asyncio.run(asked())


class Listening(socketserver.ThreadingTCPServer):
    """A site that gives its `answers` to one request a connection, the last of them for ever, and keeps every head."""

    daemon_threads = True

    def __init__(self, *answers: bytes) -> None:
        super().__init__(("127.0.0.1", 0), socketserver.BaseRequestHandler)
        self.answers, self.heads = [*answers], list[bytes]()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))

    def finish_request(self, request: Any, client_address: Any) -> None:
        head = b""
        while b"\r\n\r\n" not in head and (more := request.recv(65536)):
            head += more
        self.heads.append(head)
        request.sendall(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])

    def __enter__(self) -> Listening:
        self._thread.start()
        return self

    def __exit__(self, *ended: object) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()


both = pytest.mark.parametrize("asynchronous", [False, True], ids=["blocking", "asynchronous"])


# ---- to whom
@both
def test_a_site_that_was_given_gets_the_token_and_another_does_not(asynchronous: bool) -> None:
    with RawSite([EMPTY]) as site, RawSite([EMPTY]) as other:
        token = Token(SECRET, [site.url])
        ask(f"{site.url}/v1/cluster", token, asynchronous=asynchronous)
        ask(f"{other.url}/v1/cluster", token, asynchronous=asynchronous)
    assert HEADER in site.heads[0].lower()
    assert b"authorization" not in other.heads[0].lower()


@both
def test_a_redirect_takes_the_token_nowhere(asynchronous: bool) -> None:
    with Listening(EMPTY) as evil:
        moved = f"HTTP/1.1 307 X\r\nlocation: {evil.url}/v1/cluster\r\ncontent-length: 0\r\n\r\n".encode()
        with RawSite([moved]) as site:
            ask(f"{site.url}/v1/cluster", Token(SECRET, [site.url]), asynchronous=asynchronous)
    assert evil.heads == []


@pytest.mark.parametrize("url", [
    "https://gw.example:8401", "http://gw.example:8402", "http://gw.example.evil.example:8401", "http://gw.example",
    "http://gw.example:8401@evil.example", "http://evil.example/gw.example:8401", "http://a:b@gw.example:8401",
])
def test_only_the_very_origin_is_the_sites(url: str) -> None:
    token = Token(SECRET, ["http://GW.example:8401"])
    assert token.headers("http://gw.example:8401/v1/cluster") == {"Authorization": f"Bearer {SECRET}"}
    assert token.headers(f"{url}/v1/cluster") == {}


@both
def test_the_active_that_a_stranger_names_gets_no_token(asynchronous: bool) -> None:
    """A site whose 421 names an address that the client was not given: the token goes there no more than the request does."""
    with Listening(EMPTY) as evil:
        problem = '{"type":"urn:twinlog:problem:not-active","status":421,"detail":"x"'
        cluster = answer(200, '{"site":"a","active":{"site":"a","epoch":1}}')
        with Listening(cluster, *(
            answer(421, f'{problem},"active":{{"site":"{name}","url":"{evil.url}","epoch":9}}}}') for name in "bca"
        ), cluster) as site:
            patience = Patience(deadline_s=0.6, retry_first_s=0.05)

            async def asynchronously() -> None:
                async with AsyncClient({"a": site.url}, patience, token=SECRET) as client:
                    await client.put("t", "k", {})

            def blocking() -> None:
                with Client({"a": site.url}, patience, token=SECRET) as client:
                    client.put("t", "k", {})

            with pytest.raises(TwinlogError):
                asyncio.run(asynchronously()) if asynchronous else blocking()
        assert len(site.heads) > 3
        assert all(HEADER in head.lower() for head in site.heads)
    assert evil.heads == []


# ---- what could not stand in a header
BAD = ["a\nb", "a\r\nHost: evil", "a b", "é", "a\x00", "a\n", "\n", "x" * (1 << 15)]


@pytest.mark.parametrize(("way", "bad"), [
    *(("text", bad) for bad in BAD), *(("file", bad) for bad in ["", *BAD]),
    *(("variable", bad) for bad in BAD if "\x00" not in bad),
])
def test_a_token_that_cannot_be_sent_is_an_error_before_anything_is(
    bad: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "file" and bad in ("a\n", "\n"):
        bad += "\n"  # one end of a line is what an editor leaves behind it
    given: str | None = bad
    if way == "file":
        (tmp_path / "token").write_bytes(bad.encode("latin-1"))
        given = f"file:{tmp_path / 'token'}"
    if way == "variable":
        monkeypatch.setenv("TWINLOG_TOKEN", bad)
        given = None
    with pytest.raises(InvalidInput, match="nothing was sent") as caught:
        Client({"a": "http://127.0.0.1:1"}, token=given)
    assert "evil" not in caught.value.message
    assert len(caught.value.message) < 300


@given(st.text(max_size=30))
def test_any_text_is_one_header_or_refused(text: str) -> None:
    try:
        (value,) = Token(text, ["http://x"]).headers("http://x").values()
    except (InvalidInput, ConfigError):
        return
    assert value == f"Bearer {text}"
    assert value.isascii()
    assert value.isprintable()


# ---- where it comes from
def test_what_is_given_counts_before_the_variable_and_that_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "operator.toml"
    path.write_text('token = "file:t"\n')
    assert token_source(str(path)) == f"file:{tmp_path / 't'}"
    monkeypatch.setenv("TWINLOG_TOKEN", "of-variable")
    assert token_source(str(path)) == "of-variable"
    assert token_source(str(path), "given") == "given"
    assert token_source(str(path), "") == "", "nobody, whatever else there is"
    monkeypatch.delenv("TWINLOG_TOKEN")
    for address in ("", "http://a,http://b", str(tmp_path / "none.toml"), {"a": "http://x"}):
        assert token_source(address) == ""


@pytest.mark.parametrize("text", ['token = "twinlog_x"', "token = 7", 'token = "file:"', 'token = "env:NOT_SET"'])
def test_a_token_in_a_configuration_is_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    path = tmp_path / "operator.toml"
    path.write_text(text + "\n")
    with pytest.raises(ConfigError) as caught:
        address_token(str(path))
    assert "twinlog_x" not in repr((caught.value.message, caught.value.fields))


def test_a_demo_has_a_reference_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "demo.json").write_text('{"sites": {}, "token": "env:MINE"}')
    monkeypatch.setenv("MINE", SECRET)
    assert address_token(str(tmp_path / "demo.json")) == SECRET


def test_a_file_is_read_again_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(token_module.time, "monotonic", lambda: now_s)
    path = tmp_path / "token"
    path.write_text("first\n")
    token = Token(f"file:{path}", ["http://x"])
    path.write_text("second-one\n")
    assert token.headers("http://x") == {"Authorization": "Bearer first"}, "looked at once a second"
    now_s += 1.0
    assert token.headers("http://x") == {"Authorization": "Bearer second-one"}
    for spoil in (path.unlink, lambda: path.write_text("a b")):
        spoil()
        now_s += 1.0
        assert token.headers("http://x") == {"Authorization": "Bearer second-one"}, "a call under way ends by its own rules"
    path.write_text("third")
    now_s += 1.0
    assert token.headers("http://x") == {"Authorization": "Bearer third"}
    with pytest.raises(ConfigError, match="cannot be read"):
        Token(f"file:{path}-none", ["http://x"])


# ---- where it never stands
def test_it_stands_in_no_text_of_an_object_and_in_no_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with RawSite([EMPTY]) as site:
        token = Token(SECRET, [site.url])
        ask(site.url, token, asynchronous=True)
    with RawSite([EMPTY]) as site:
        sites = Sites({"a": site.url}, token=SECRET)
        sites.ask("a", "GET", "/v1/cluster")
        shown = [repr(one) for one in (token, sites, vars(sites)["_http"], SiteRequest(site.url, "GET", {}, b"", 1.0))]
        sites.close()
    assert SECRET not in "".join(shown) + caplog.text


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_is_its_error_at_once(status: int) -> None:
    code, kind = {401: ("unauthenticated", Unauthenticated), 403: ("missing-grant", Forbidden)}[status]
    refused = answer(status, f'{{"type":"urn:twinlog:problem:{code}","status":{status},"detail":"no","grant":"g"}}')
    for ask_it in _asks():
        with RawSite([refused]) as site, pytest.raises(kind) as caught:
            ask_it(site.url)
        assert SECRET not in str(caught.value)


def _asks() -> list[Callable[[str], Any]]:
    def client(url: str) -> None:
        with Client({"a": url}, Patience(deadline_s=30), token=SECRET) as one:
            one.get("t", "k")

    def sites(url: str) -> None:
        with closing(Sites({"a": url}, token=SECRET)) as one:
            one.ask("a", "GET", "/v1/cluster")

    return [client, sites]


def test_a_token_that_ends_in_the_middle_of_a_write_leaves_its_outcome_unknown() -> None:
    """The first attempt may have been applied; that the pair may not be looked at any more says nothing about it."""
    cluster = answer(200, '{"site":"a","active":{"site":"a","epoch":1}}')
    refused = answer(401, '{"type":"urn:twinlog:problem:unauthenticated","status":401,"detail":"no"}')
    patience = Patience(deadline_s=0.5, retry_first_s=0.1, retry_max_s=0.1)
    with (
        Listening(cluster, b"", refused) as site, Client({"a": site.url}, patience, token=SECRET) as client,
        pytest.raises(OutcomeUnknown),
    ):
        client.put("t", "k", {})
