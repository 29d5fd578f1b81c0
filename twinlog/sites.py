"""Both sites of a pair, each asked by itself and once: what operators, audits and benches need. Apps use client.py.

What always holds: a site that does not answer is a PeerError whose field `sent` says whether the request may have got
there; whatever else a site answers that is no success is the error of its problem document.
"""

from __future__ import annotations

import getpass
import json
import os
import socket
from collections.abc import Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from twinlog.addresses import resolve_address, resolve_tls
from twinlog.errors import PeerError, TwinlogError, words
from twinlog.problem_documents import error_from_problem
from twinlog.wire.exchange import Broken, SiteRequest
from twinlog.wire.http import Http
from twinlog.wire.json_objects import json_object
from twinlog.wire.tls import Tls
from twinlog.wire.token import token_for

ASK_TIMEOUT_S = 30.0
LOOK_TIMEOUT_S = 3.0
ALIVE = "/health/live"
ALIVE_TIMEOUT_S = 1.0  # the site waits for nobody: its process answers, or hangs
VIEW_TIMEOUT_S = 7.0  # the site itself waits for the other one, both DFSs and the register
STREAM_SILENCE_S = 60.0
EVENT_SILENCE_S = 40.0  # an idle stream carries a comment every 15 s
_TIMEOUTS_S = {"/v1/view": VIEW_TIMEOUT_S, ALIVE: ALIVE_TIMEOUT_S}
ACTOR_HEADER = "Twinlog-Actor"
EXPIRES_HEADER = "Twinlog-Expires-Ms"
VALID_S = 120.0  # how long a request for a role change is good for, unless it says otherwise


def who() -> str:
    """The user of this process, for the history: user@host, in ASCII. It is a claim, and proves nothing."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no such user, as in a container
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}".encode("ascii", "replace").decode()[:100]


class Sites:
    """`urls`: site -> its address; `look_s`: how long a site may take for a plain GET; `tls`, `token`: as of a Client.
    Safe to use from several threads."""

    def __init__(
        self, address: str | Mapping[str, str], look_s: float = LOOK_TIMEOUT_S, http: Http | None = None, *,
        tls: Tls | None = None, token: str | None = None,
    ) -> None:
        self.urls: Mapping[str, str] = resolve_address(address)
        self._look_s = look_s
        self._http = http or Http(tls or resolve_tls(address), token_for(address, self.urls, token))

    def close(self) -> None:
        self._http.close()

    def ask(
        self, site: str, method: str, path: str, body: Mapping[str, Any] | None = None, key: str | None = None, who: str = "",
        expires_ms: int | None = None,
    ) -> dict[str, Any]:
        """One JSON exchange with `site`; {} for an answer without content.

        `key`: the idempotency key of what must not be done twice. `who`: who asks through this user. `expires_ms`: after this
        moment by the site's own clock (`clock_ms`), nobody waits for what is asked.
        """
        is_slow = method != "GET" or path.startswith("/v1/checks")
        timeout_s = ASK_TIMEOUT_S if is_slow else _TIMEOUTS_S.get(path, self._look_s)
        content = self._exchange(site, method, path, timeout_s, body, key, who, expires_ms)
        try:
            return json_object(content) if content else {}
        except ValueError as error:
            url = self.urls[site]
            raise PeerError(f"site {site} ({url}) does not answer as a twinlog gateway: {words(error)}", site=site) from error

    def clock_ms(self, site: str) -> int:
        """The site's clock now: a request that expires by it is judged by one clock alone, however wrong this machine's is.
        A site that is stopped or hangs does not answer, and is then asked for nothing. Raises PeerError."""
        try:
            return int(self.ask(site, "GET", "/v1/cluster")["now_ms"])
        except PeerError as error:
            error.fields["sent"] = False  # what is to be asked for was not
            raise
        except KeyError:
            raise PeerError(f"site {site} is of another release: it does not show its clock", site=site, sent=False) from None

    def ask_all(self, path: str) -> dict[str, dict[str, Any] | Exception]:
        """GET `path` from every site at the same time: its document, or the error."""
        def look(site: str) -> dict[str, Any] | Exception:
            try:
                return self.ask(site, "GET", path)
            except TwinlogError as error:
                return error

        with ThreadPoolExecutor(len(self.urls)) as threads:
            return dict(zip(self.urls, threads.map(look, self.urls), strict=True))

    def metrics(self, site: str) -> dict[str, float]:
        """The site's metrics, by name with labels, as in `twinlog_epoch` or `twinlog_acks_total{mode="sync"}`."""
        lines = self._exchange(site, "GET", "/metrics", self._look_s).decode().splitlines()
        samples = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in samples}

    def events(self, site: str, path: str) -> Iterator[dict[str, Any]]:
        """Documents pushed by a site. Ends when the site ends the stream. Raises PeerError when it breaks."""
        for data in self._http.events(self.urls[site] + path, EVENT_SILENCE_S):
            try:
                yield json_object(data.encode())
            except ValueError as error:
                raise PeerError(f"site {site}: an event is not JSON: {words(error)}", site=site, sent=True) from error

    def stream(self, site: str, path: str, body: Mapping[str, Any]) -> Generator[bytes, None, None]:
        """The pieces of a long answer to a POST. Raises PeerError when it breaks, or is silent for too long."""
        headers = {"Content-Type": "application/json", ACTOR_HEADER: who()}
        yield from self._http.stream(SiteRequest(
            self.urls[site] + path, "POST", headers, json.dumps(body).encode(), STREAM_SILENCE_S
        ))

    def _exchange(
        self, site: str, method: str, path: str, timeout_s: float, body: Mapping[str, Any] | None = None,
        key: str | None = None, asked_by: str = "", expires_ms: int | None = None,
    ) -> bytes:
        content = b"" if body is None else json.dumps(body).encode()
        actor = f"{asked_by} {who()}".strip()[:100]
        headers = {"Content-Type": "application/json", ACTOR_HEADER: actor}
        if key is not None:
            headers["Idempotency-Key"] = key
        if expires_ms is not None:
            headers[EXPIRES_HEADER] = str(expires_ms)
        url = self.urls[site]
        answer = self._http.send(SiteRequest(url + path, method, headers, content, timeout_s))
        if isinstance(answer, Broken):
            problem = "does not answer" if answer.sent else "cannot be reached"
            raise PeerError(f"site {site} ({url}) {problem}: {answer.detail}", site=site, sent=answer.sent)
        if not 200 <= answer.status < 300:
            raise error_from_problem(answer.status, answer.content)
        return answer.content
