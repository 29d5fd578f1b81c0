"""Calls to an OIDC issuer: each with a deadline, a bound on the answer, and no redirect followed.

What always holds: an error names the address and never what was sent to it, for a code or a secret may be in that.
"""

from __future__ import annotations

from typing import NamedTuple

import httpx

from gateway.access.settings import OidcSettings
from twinlog.wire.tls import Tls, client_context


class Fetched(NamedTuple):
    status: int
    body: bytes


def issuer_client(settings: OidcSettings, transport: httpx.AsyncBaseTransport | None) -> httpx.AsyncClient:
    """Returns a client for the addresses of the issuer. `transport`: for tests. Raises ConfigError for a CA that is none."""
    trust = True if settings.ca is None else client_context(Tls(ca=str(settings.ca)))
    return httpx.AsyncClient(timeout=settings.fetch_deadline_s, trust_env=False, transport=transport, verify=trust)


async def answer_to(client: httpx.AsyncClient, request: httpx.Request, bytes_max: int, *, auth: httpx.Auth | None) -> Fetched:
    """Returns the answer, whatever its status. Raises httpx.HTTPError, and ValueError for one that is too long."""
    answer = await client.send(request, stream=True, auth=auth)
    try:
        data = b""
        async for part in answer.aiter_bytes():
            data += part
            if len(data) > bytes_max:
                raise ValueError(f"{request.url.copy_with(query=None)} answers more than {bytes_max} bytes")
        return Fetched(answer.status_code, data)
    finally:
        await answer.aclose()


async def fetched(client: httpx.AsyncClient, url: str, bytes_max: int) -> bytes:
    """Returns what is at `url`. Raises httpx.HTTPError, and ValueError for another status than 200 and what is too long."""
    found = await answer_to(client, client.build_request("GET", url), bytes_max, auth=None)
    if found.status != 200:
        raise ValueError(f"{url} answers {found.status}")
    return found.body
