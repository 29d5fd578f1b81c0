"""The one HTTP client of the API, over httpx, in a blocking and an asynchronous form. Everything else builds on it.

What always holds: an attempt ends by its time-out, with a `Reply` or with a `Broken` that says whether the request may have
reached the site; a stream of events yields the data of each event, and raises only errors of errors.py; a path that httpx
would fold (`..`) is an InvalidInput, and nothing is sent: folded it would name something else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from urllib.parse import unquote, urlsplit

import httpx

from twinlog.errors import InvalidInput, PeerError, TwinlogError
from twinlog.flow import Broken, Reply, SiteRequest
from twinlog.problem_documents import error_from_problem

CONNECT_TIMEOUT_S = 3.0
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
_EVENT_HEADERS = {"Accept": "text/event-stream", "Cache-Control": "no-store"}


class Http:
    """The blocking form. Safe to use from several threads."""

    def __init__(self, transport: httpx.BaseTransport | None = None) -> None:
        self._client = httpx.Client(timeout=None, trust_env=False, transport=transport)

    def close(self) -> None:
        self._client.close()

    def send(self, request: SiteRequest) -> Reply | Broken:
        try:
            response = self._client.request(
                request.method, _unfolded(request.url), headers=dict(request.headers), content=request.content,
                timeout=_timeout(request.timeout_s),
            )
        except httpx.HTTPError as error:
            return _broken(error)
        return _reply(response)

    def events(self, url: str, silence_s: float) -> Iterator[str]:
        """The data of each event until the site ends the stream. Raises PeerError when it breaks or is silent for so long."""
        lines = _EventLines()
        try:
            with self._client.stream("GET", _unfolded(url), headers=_EVENT_HEADERS, timeout=_timeout(silence_s)) as response:
                if response.status_code != 200:
                    response.read()
                    raise error_from_problem(response.status_code, response.content)
                for line in response.iter_lines():
                    if (data := lines.take(line)) is not None:
                        yield data
        except httpx.HTTPError as error:
            raise _stream_broke(url, error) from error


class AsyncHttp:
    """The asynchronous form."""

    def __init__(self, connections_max: int = 100, transport: httpx.AsyncBaseTransport | None = None) -> None:
        limits = httpx.Limits(max_connections=connections_max, max_keepalive_connections=connections_max)
        self._client = httpx.AsyncClient(timeout=None, trust_env=False, limits=limits, transport=transport)

    async def close(self) -> None:
        await self._client.aclose()

    async def send(self, request: SiteRequest) -> Reply | Broken:
        try:
            async with asyncio.timeout(request.timeout_s):
                response = await self._client.request(
                    request.method, _unfolded(request.url), headers=dict(request.headers), content=request.content
                )
        except TimeoutError:
            return Broken(sent=True, detail=f"no answer within {request.timeout_s:g} s")
        except httpx.HTTPError as error:
            return _broken(error)
        return _reply(response)

    async def events(self, url: str, silence_s: float) -> AsyncIterator[str]:
        lines = _EventLines()
        try:
            timeout = _timeout(silence_s)
            async with self._client.stream("GET", _unfolded(url), headers=_EVENT_HEADERS, timeout=timeout) as response:
                if response.status_code != 200:
                    await response.aread()
                    raise error_from_problem(response.status_code, response.content)
                async for line in response.aiter_lines():
                    if (data := lines.take(line)) is not None:
                        yield data
        except httpx.HTTPError as error:
            raise _stream_broke(url, error) from error


class _EventLines:
    """Collects the data of a server-sent event line by line; comments and other fields are left out."""

    def __init__(self) -> None:
        self._data: list[str] = []

    def take(self, line: str) -> str | None:
        """The data of the event that an empty line ends; None until then."""
        if line.startswith("data:"):
            self._data.append(line.removeprefix("data:").removeprefix(" "))
        elif not line and self._data:
            data, self._data = "\n".join(self._data), []
            return data
        return None


def _unfolded(url: str) -> str:
    """Returns `url`. Raises InvalidInput where a segment of its path is `.` or `..`, percent-encoded or not."""
    if "/." in url or "/%2" in url:
        path = urlsplit(url).path
        if any(unquote(segment) in (".", "..") for segment in path.split("/")):
            raise InvalidInput(
                f"{path[:200]!r} has a segment `.` or `..`, which is folded on the way and would name something else: nothing "
                "was sent; give a name (docs/api.md says how a key is written)"
            )
    return url


def _timeout(timeout_s: float) -> httpx.Timeout:
    return httpx.Timeout(timeout_s, connect=min(timeout_s, CONNECT_TIMEOUT_S))


def _broken(error: httpx.HTTPError) -> Broken:
    """The reason why there is no answer, and whether the request may have reached the site."""
    if isinstance(error, httpx.TimeoutException):
        detail = "no connection in time" if isinstance(error, _NOT_SENT) else "no answer in time"
    else:
        detail = str(error) or type(error).__name__
    return Broken(sent=not isinstance(error, _NOT_SENT), detail=detail)


def _stream_broke(url: str, error: httpx.HTTPError) -> TwinlogError:
    return PeerError(f"{url}: the stream of events broke: {_broken(error).detail}", sent=True)


def _reply(response: httpx.Response) -> Reply:
    return Reply(response.status_code, {name.lower(): value for name, value in response.headers.items()}, response.content)
