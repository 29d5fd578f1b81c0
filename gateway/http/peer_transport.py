"""The real Transport: one kept-alive HTTP connection to the other site's gateway.

What always holds: a call ends by its time-out; the peer's problem answer becomes the same error class here; anything else
is a PeerError, whose outcome is unknown; a body is let go once it was sent. Source: remote_log/replication/messages.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec

from remote_log.replication.messages import decode_reply
from twinlog.errors import PeerError, words
from twinlog.problem_documents import error_from_problem

CONTENT_TYPE = "application/x-msgpack"


async def _once(body: bytes) -> AsyncIterator[bytes]:
    """`body` for one sending. The client's objects of a call refer to each other in circles: given the bytes themselves, they
    keep megabytes of shipped frames until the garbage collector comes by, some hundred calls later.
    """
    yield body


class HttpTransport:
    def __init__(self, url: str) -> None:
        self._client = httpx.AsyncClient(base_url=url, limits=httpx.Limits(max_keepalive_connections=2), trust_env=False)
        self._url = url

    async def call(self, method: str, message: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        body = msgspec.msgpack.encode(message)
        headers = {"content-type": CONTENT_TYPE, "content-length": str(len(body)), "accept-encoding": "identity"}
        sending = _once(body)
        del body
        try:
            async with asyncio.timeout(timeout_s):  # httpx counts each read and each write anew
                response = await self._client.post(
                    f"/internal/v1/peer/{method}", content=sending, headers=headers, timeout=timeout_s
                )
        except (httpx.HTTPError, TimeoutError) as error:
            what = f"{type(error).__name__}: {words(error)}"
            raise PeerError(f"the other site at {self._url} does not answer ({what})") from error
        if response.status_code != 200:
            raise error_from_problem(response.status_code, response.content)
        return decode_reply(method, response.content)

    async def close(self) -> None:
        await self._client.aclose()
