"""The real Transport: one kept-alive HTTP connection to the other site's gateway.

What always holds: a call ends by its time-out; the peer's problem answer becomes the same error class here; anything else
is a PeerError, whose outcome is unknown; an answer is bounded; a body is let go once it was sent.
Source: remote_log/replication/messages.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, TypeVar

import httpx
import msgspec

from remote_log.replication.messages import REPLY_BYTES_MAX, decode_reply
from twinlog.errors import PeerError, words
from twinlog.problem_documents import error_from_problem

CONTENT_TYPE = "application/x-msgpack"
_T = TypeVar("_T")


async def _once(body: bytes) -> AsyncIterator[bytes]:
    """`body` for one sending. The client's objects of a call refer to each other in circles: given the bytes themselves, they
    keep megabytes of shipped frames until the garbage collector comes by, some hundred calls later.
    """
    yield body


class HttpTransport:
    def __init__(self, url: str) -> None:
        self._client = httpx.AsyncClient(base_url=url, limits=httpx.Limits(max_keepalive_connections=2), trust_env=False)
        self._url = url

    async def call(self, method: str, message: dict[str, Any], kind: type[_T], timeout_s: float) -> _T:
        body = msgspec.msgpack.encode(message)
        headers = {"content-type": CONTENT_TYPE, "content-length": str(len(body)), "accept-encoding": "identity"}
        sending = _once(body)
        del body
        try:
            async with asyncio.timeout(timeout_s):  # httpx counts each read and each write anew
                status, answer = await self._post(method, sending, headers, timeout_s)
        except (httpx.HTTPError, TimeoutError) as error:
            what = f"{type(error).__name__}: {words(error)}"
            raise PeerError(f"the other site at {self._url} does not answer ({what})") from error
        if status != 200:
            raise error_from_problem(status, answer)
        return decode_reply(kind, method, answer)

    async def _post(
        self, method: str, sending: AsyncIterator[bytes], headers: dict[str, str], timeout_s: float
    ) -> tuple[int, bytes]:
        """The answer's status and body. No more of it is taken than one byte above what an answer may have."""
        url = f"/internal/v1/peer/{method}"
        answer = bytearray()
        async with self._client.stream("POST", url, content=sending, headers=headers, timeout=timeout_s) as response:
            async for part in response.aiter_raw():
                answer += part
                if len(answer) > REPLY_BYTES_MAX:
                    break
        return response.status_code, bytes(answer[: REPLY_BYTES_MAX + 1])

    async def close(self) -> None:
        await self._client.aclose()
