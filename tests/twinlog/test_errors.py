"""The words of errors: none is empty, and none of the network or of the system shows what Python calls it."""

from __future__ import annotations

import asyncio
import errno
import http.client
import inspect
import re
import socket
from collections.abc import Iterator

import httpcore
import httpx
import pytest
import requests

from twinlog.errors import named, words


@pytest.mark.parametrize(("error", "said"), [
    (TimeoutError(), "no answer in time"), (asyncio.CancelledError(), "it was cancelled"),
    (OSError("\n"), "the system gave no reason"), (ValueError("no number"), "no number"), (ValueError(), "ValueError"),
    (TimeoutError("TimeoutError"), "no answer in time"), (http.client.IncompleteRead(b""), "the connection ended before"),
    (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)"), "connection refused"),
    (OSError(errno.EHOSTUNREACH, "Connect call failed ('127.0.0.1', 1)"), "no route to host"),
    (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
    (FileNotFoundError(errno.ENOENT, "No such file or directory", "x"), "No such file or directory: 'x'"),
    (socket.gaierror(-2, "Name or service not known"), "name or service not known"),
    (httpx.ConnectError("[Errno 111] Connection refused"), "Connection refused"),
])
def test_the_words_of_an_error(error: BaseException, said: str) -> None:
    assert words(error).startswith(said)


def _of_the_network() -> Iterator[type[Exception]]:
    """Every class of an error that Python's own libraries of the network, and ours, have."""
    for module in (http.client, asyncio.exceptions, httpx, httpcore, socket):
        for _, kind in inspect.getmembers(module, inspect.isclass):
            if issubclass(kind, OSError | http.client.HTTPException | httpx.TransportError | asyncio.IncompleteReadError) or (
                module is httpcore and issubclass(kind, Exception)
            ):
                yield kind
    yield from (ConnectionError, ConnectionResetError, ConnectionAbortedError, BrokenPipeError, TimeoutError)


def _made(kind: type[Exception]) -> Iterator[Exception]:
    if issubclass(kind, http.client.IncompleteRead | asyncio.IncompleteReadError):
        yield kind(b"ab", 4)
        return
    for text in ("", kind.__name__, f"{kind.__name__}()"):
        yield kind(text) if issubclass(kind, httpx.TransportError) or text else kind(*([""] * _needed(kind)))


def _needed(kind: type[Exception]) -> int:
    return 1 if kind in (http.client.BadStatusLine, http.client.LineTooLong, http.client.UnknownProtocol) else 0


@pytest.mark.parametrize("kind", sorted(set(_of_the_network()), key=lambda kind: kind.__name__), ids=lambda kind: kind.__name__)
def test_no_error_of_the_network_shows_what_python_calls_it(kind: type[Exception]) -> None:
    for error in _made(kind):
        for said in (words(error), named(error)):
            assert said
            assert kind.__name__ not in said
            assert not re.search(r"[A-Z][a-z]+(?:[A-Z][a-z]+)+|\bErrno\b|\w+\(", said), said


def test_what_an_error_was_made_of_speaks_where_it_has_no_words() -> None:
    error = httpx.ReadError("")
    error.__cause__ = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
    assert words(error) == "connection reset by peer"


def test_an_error_that_nobody_foresaw_is_named() -> None:
    assert named(KeyError("x")) == "KeyError: 'x'"
    assert named(ValueError()) == "ValueError"


@pytest.mark.parametrize("kind", [requests.ConnectionError, requests.ConnectTimeout, requests.ReadTimeout,
                                  requests.exceptions.ChunkedEncodingError])
@pytest.mark.parametrize("cause", [ConnectionRefusedError(errno.ECONNREFUSED, "x"), TimeoutError("x"), None])
def test_errors_of_requests_say_what_is_behind_them(kind: type[Exception], cause: Exception | None) -> None:
    error = kind("HTTPConnectionPool(host='127.0.0.1', port=9): Max retries exceeded with url: /")
    error.__context__ = ValueError("of a library")
    error.__context__.__cause__ = cause
    said = words(error)
    if isinstance(cause, ConnectionRefusedError):
        assert said == "connection refused"
    elif issubclass(kind, requests.Timeout):
        assert said == "no answer in time"
    else:
        assert said == "the exchange with what answers there failed"
