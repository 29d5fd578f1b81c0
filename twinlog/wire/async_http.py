"""The asynchronous HTTP client of the API, over httpx. It keeps what http.py, its blocking form, keeps."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping

import httpx

from twinlog.errors import PeerError
from twinlog.problem_documents import error_from_problem
from twinlog.wire.exchange import Broken, Reply, SiteRequest
from twinlog.wire.http import CONNECT_TIMEOUT_S, EVENT_HEADERS, EventLines, unfolded
from twinlog.wire.tls import Tls, client_context, tls_words
from twinlog.wire.token import Token

_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


class AsyncHttp:
    def __init__(
        self, connections_max: int = 100, transport: httpx.AsyncBaseTransport | None = None, tls: Tls | None = None,
        token: Token | None = None,
    ) -> None:
        """Raises ConfigError where a file of `tls` is wrong."""
        self._token = token
        limits = httpx.Limits(max_connections=connections_max, max_keepalive_connections=connections_max)
        self._client = httpx.AsyncClient(
            headers={"Accept-Encoding": "identity"}, timeout=None, trust_env=False, limits=limits, transport=transport,
            verify=client_context(tls or Tls()),
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def send(self, request: SiteRequest) -> Reply | Broken:
        headers = {**request.headers, **self._identity(request.url)}
        try:
            async with asyncio.timeout(request.timeout_s):
                response = await self._client.request(
                    request.method, unfolded(request.url), headers=headers, content=request.content
                )
        except TimeoutError:
            return Broken(sent=True, detail=f"no answer within {request.timeout_s:g} s")
        except (httpx.HTTPError, ssl.SSLError) as error:
            return _broken(error)
        return Reply(response.status_code, {name.lower(): value for name, value in response.headers.items()}, response.content)

    def _identity(self, url: str) -> Mapping[str, str]:
        return {} if self._token is None else self._token.headers(url)

    async def events(self, url: str, silence_s: float) -> AsyncIterator[str]:
        """The data of each event until the site ends the stream. Raises PeerError when it breaks or is silent for so long."""
        lines, headers = EventLines(), {**EVENT_HEADERS, **self._identity(url)}
        timeout = httpx.Timeout(silence_s, connect=min(silence_s, CONNECT_TIMEOUT_S))
        try:
            async with self._client.stream("GET", unfolded(url), headers=headers, timeout=timeout) as response:
                if response.status_code != 200:
                    await response.aread()
                    raise error_from_problem(response.status_code, response.content)
                async for line in response.aiter_lines():
                    if (data := lines.take(line)) is not None:
                        yield data
        except (httpx.HTTPError, ssl.SSLError) as error:
            raise PeerError(f"{url}: the stream of events broke: {_broken(error).detail}", sent=True) from error


def _broken(error: httpx.HTTPError | ssl.SSLError) -> Broken:
    """The reason why there is no answer, and whether the request may have reached the site. httpx lets an alert of TLS pass as
    what it is, once the handshake is done."""
    if isinstance(error, httpx.TimeoutException):
        detail = "no connection in time" if isinstance(error, _NOT_SENT) else "no answer in time"
    else:
        detail = tls_words(error)
    return Broken(sent=not isinstance(error, _NOT_SENT), detail=detail)
