"""The operator's way to both sites, over HTTP: the PairAccess port of gateway/client/pair_access.py on httpx.

What always holds: a site that cannot be reached is a PeerError whose field `sent` says whether the request may have got
there; whatever else a site answers wrongly is the error of its problem document.
"""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import httpx_sse
import msgspec

from gateway.client.client import broken, resolve_address
from gateway.client.problem_documents import error_from_problem
from gateway.config.loading import monitor_thresholds
from twinlog.errors import PeerError, TwinlogError

ASK_TIMEOUT = httpx.Timeout(30.0, connect=3.0)
LOOK_TIMEOUT = httpx.Timeout(3.0)
VIEW_TIMEOUT = httpx.Timeout(7.0, connect=3.0)  # the site itself waits for the other one, both DFSs and the register
EVENT_TIMEOUT = httpx.Timeout(5.0, read=40.0)  # an idle stream carries a comment every 15 s


def who() -> str:
    """Who runs this command, for the history: user@host, in ASCII. It is what they say, and proves nothing."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no such user, as in a container
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}".encode("ascii", "replace").decode()[:100]


class OperatorHttp:
    """Both sites by their addresses."""

    def __init__(self, address: str) -> None:
        self.urls: Mapping[str, str] = resolve_address(address)
        self.thresholds = monitor_thresholds(address)
        self._http = httpx.Client(trust_env=False)

    def close(self) -> None:
        self._http.close()

    def ask(
        self, site: str, method: str, path: str, body: Mapping[str, Any] | None = None, key: str | None = None, who: str = ""
    ) -> dict[str, Any]:
        slow = method != "GET" or path.startswith("/v1/checks")
        timeout = ASK_TIMEOUT if slow else VIEW_TIMEOUT if path == "/v1/view" else LOOK_TIMEOUT
        return self._exchange(site, method, path, body, timeout, key, who)

    def ask_all(self, path: str) -> dict[str, dict[str, Any] | Exception]:
        def look(site: str) -> dict[str, Any] | Exception:
            try:
                return self._exchange(site, "GET", path, None, LOOK_TIMEOUT)
            except TwinlogError as error:
                return error

        with ThreadPoolExecutor(len(self.urls)) as threads:
            return dict(zip(self.urls, threads.map(look, self.urls), strict=True))

    def events(self, site: str, path: str) -> Iterator[dict[str, Any]]:
        try:
            with httpx_sse.connect_sse(self._http, "GET", self.urls[site] + path, timeout=EVENT_TIMEOUT) as source:
                if source.response.status_code != 200:
                    source.response.read()
                    raise error_from_problem(source.response.status_code, source.response.content)
                for event in source.iter_sse():
                    yield msgspec.json.decode(event.data, type=dict[str, Any])
        except (httpx.HTTPError, httpx_sse.SSEError, msgspec.MsgspecError) as error:
            raise PeerError(f"site {site}: the stream of events broke: {error}", site=site, sent=True) from error

    def _exchange(
        self, site: str, method: str, path: str, body: Mapping[str, Any] | None, timeout: httpx.Timeout,
        key: str | None = None, asked_by: str = "",
    ) -> dict[str, Any]:
        content = None if body is None else msgspec.json.encode(body)
        actor = f"{asked_by} {who()}".strip()[:100]
        headers = {"Accept": "application/json", "Content-Type": "application/json", "Twinlog-Actor": actor}
        if key is not None:
            headers["Idempotency-Key"] = key
        try:
            response = self._http.request(method, self.urls[site] + path, content=content, headers=headers, timeout=timeout)
        except httpx.HTTPError as error:
            failure = broken(error)
            raise PeerError(f"{self.urls[site]}: {failure.detail}", site=site, sent=failure.sent) from error
        if not response.is_success:
            raise error_from_problem(response.status_code, response.content)
        try:
            return msgspec.json.decode(response.content, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            url = self.urls[site]
            raise PeerError(f"site {site} ({url}) does not answer as a twinlog gateway: {error}", site=site) from error
