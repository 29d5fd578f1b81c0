"""The pages of one door share these: the watch of the pair, the sessions, and what stands on every page.

What always holds: a page shows a caller only what the routes of the API would answer this caller (gateway/access/needs.py); a
cookie of a session stands for the token that was given for it, and is judged by the gate like that one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from gateway.access.caller import ANONYMOUS, CALLER, NOBODY, Caller
from gateway.access.gate import Gate
from gateway.access.log_in.log_in import LogIn
from gateway.access.log_in.provider import shown_name
from gateway.access.needs import IDENTITY, NEEDS
from gateway.api.problems import Answer
from gateway.api.routes.common import caller_of, context_of, to_response
from gateway.service.port import SiteService
from gateway.table_figures.kept import KeptTables
from gateway.trail.entry import Who
from gateway.trail.events import LOG_IN as LOGGED_IN
from gateway.trail.events import LOG_OUT as LOGGED_OUT
from gateway.trail.who import who_of
from gateway.ui.drawing import Shared
from gateway.ui.rendering import PAGE_HEADERS, SECURITY, render
from gateway.ui.sessions import IDLE_S, Sessions
from gateway.ui.watch import PairWatch
from storage.clock import Clock
from twinlog.errors import Forbidden, TwinlogError, Unauthenticated

TABS = (
    ("Now", "/ui"), ("Change", "/ui/change"), ("History", "/ui/history"), ("Tables", "/ui/tables"), ("Audits", "/ui/audits"),
    ("Log", "/ui/log"),
)
LOG_IN, BY_ISSUER, LEAVE = "/ui/login", "/ui/login/oidc", "/ui/login/oidc/leave"
_PATH_MAX = 500
_OF_ONE = ("/ui/tables/", "/ui/audits/")  # before a name


class Pages:
    """`secret()` makes an unguessable text. `gate` None: nobody is asked who they are."""

    def __init__(
        self, service: SiteService, clock: Clock, closing: asyncio.Event, secret: Callable[[], str], gate: Gate | None
    ) -> None:
        self.service, self.gate = service, gate
        known = () if gate is None else gate.authenticators
        self.log_in_by: LogIn | None = next((one for one in known if isinstance(one, LogIn)), None)
        cluster = service.cluster.document()
        self.site, self.pair = cluster.site, cluster.pair
        self.watch = PairWatch(service, clock, closing)
        self.other_tables = KeptTables(service, clock)
        self.shared = Shared()
        self.sessions = Sessions(f"twinlog_{cluster.pair}_{cluster.site}", secret, clock.monotonic_s)

    # ---- who asks
    def present(self, scope: Scope, *, is_use: bool = True) -> None:
        """Puts the token of the request's session into the request, as if the browser had sent it."""
        headers = scope["headers"]
        if any(name == b"authorization" for name, _ in headers):
            return
        token = self.sessions.token_of(self.sessions.number_of(headers), is_use=is_use)
        if token is not None:
            scope["headers"] = [*headers, (b"authorization", f"Bearer {token}".encode("latin-1", "replace"))]

    async def is_logged_in(self, request: Request) -> bool:
        """Returns whether this browser has a session that the gate still takes, or nobody has to log in."""
        if self.gate is None:
            return True
        token = self.sessions.token_of(self.sessions.number_of(request.scope["headers"]))
        return token is not None and await self.gate.is_known(request.scope)

    def may(self, caller: Caller, method: str, path: str) -> bool:
        """Returns whether this caller may call a route of the API or of the page, as far as no table is named."""
        return NEEDS[method, path].missing(caller, "") is None

    # ---- pages
    def page(
        self, request: Request, name: str, title: str, values: Mapping[str, Any], *, live: Mapping[str, str] | None = None,
        status: int = 200, begun: str = "", session: str = "", cookies: Sequence[str] = (),
    ) -> Response:
        """Returns the page of a template. `live`: what its event stream is asked for; None: it has none. `begun`: the number of
        a session that begins with this page; `session`: of one that the browser has and may not show; `cookies`: more that it
        sets. A request that another site caused changes no session that the browser keeps back."""
        number = begun or self.sessions.number_of(request.scope["headers"]) or session
        is_new = bool(begun) or not (number or _is_caused_elsewhere(request))
        number = number or self.sessions.new_number()
        caller = request.scope.get(CALLER) or NOBODY
        text = render(name, {
            **self.frame(caller, request.scope["path"]), "title": title, "form": self.sessions.form_text(number),
            "live_url": f"/ui/events?{urlencode(live)}" if live is not None else "", **values,
        })
        headers = list(PAGE_HEADERS)
        if is_new:
            headers.append((b"set-cookie", self._cookie(request, number)))
        headers += [(b"set-cookie", cookie.encode("latin-1")) for cookie in cookies]
        return to_response(Answer(status, headers, text.encode()))

    def frame(self, caller: Caller, path: str) -> dict[str, Any]:
        """Returns what stands around each page."""
        tabs = [
            (name, to, path == to or (to != "/ui" and path.startswith(f"{to}/")))
            for name, to in TABS if caller is not NOBODY and self.may(caller, "GET", to)
        ]
        others = (one.url for site, one in self.service.cluster.document().sites.items() if site != self.site)
        return {
            "pair": self.pair, "site": self.site, "tabs": tabs, "caller": caller.name, "other_url": next(others, ""),
            "log_out": caller.kind not in (ANONYMOUS.kind, "certificate"),
        }

    def _cookie(self, request: Request, number: str) -> bytes:
        return self.sessions.cookie(number, is_secure=request.url.scheme == "https").encode("latin-1")

    def see_other(self, to: str, cookie: bytes | None = None) -> Response:
        headers = [(b"location", to.encode("latin-1", "replace")), (b"cache-control", b"no-store"), *SECURITY]
        if cookie is not None:
            headers.append((b"set-cookie", cookie))
        return to_response(Answer(303, headers, b""))

    # ---- log in, log out
    def log_in_page(
        self, request: Request, next_path: str, refusal: str = "", status: int = 200, *, session: str = "",
        cookies: Sequence[str] = (),
    ) -> Response:
        issuer = "" if self.log_in_by is None else shown_name(self.log_in_by.issuer)
        way = urlencode({"next": own_path(next_path)})
        leave = f"{LEAVE}?{way}" if self.log_in_by is not None and self.log_in_by.leads_out else ""
        values = {
            "next": own_path(next_path), "refusal": _sentence(refusal), "idle": f"{IDLE_S // 60:.0f} minutes", "issuer": issuer,
            "there": f"{BY_ISSUER}?{way}", "leave": leave,
        }
        return self.page(request, "login.html", "Log in", values, status=status, session=session, cookies=cookies)

    async def log_in(self, request: Request, token: str, next_path: str) -> Response:
        """A session for a token that the gate takes. The answer to a wrong one does not say why."""
        if self.gate is None:
            return self.see_other("/ui")
        token = token.strip()
        kept = [(name, value) for name, value in request.scope["headers"] if name != b"authorization"]
        scope = {**request.scope, "headers": [*kept, (b"authorization", f"Bearer {token}".encode("latin-1", "replace"))]}
        try:
            budget = await self.gate.admit(scope, IDENTITY, LOG_IN, "")
        except TwinlogError as error:
            await self.gate.before_refusal()
            refusal = "This token is not valid here." if isinstance(error, Unauthenticated) else error.message
            return self.log_in_page(request, next_path, refusal, 401 if isinstance(error, Unauthenticated) else 503)
        if budget is not None:
            budget.leave()
        self.note(request, LOGGED_IN, who_of(scope))
        self.end_session(self.sessions.number_of(request.scope["headers"]))
        return self.see_other(own_path(next_path), self._cookie(request, self.sessions.begin(token, scope[CALLER])))

    def log_out(self, request: Request) -> Response:
        """Ends the session, and is in the audit trail by the identity that logged in: its token may be revoked by now."""
        caller = self.end_session(self.sessions.number_of(request.scope["headers"]))
        if caller is not None:
            what = {"issuer": self.log_in_by.issuer} if self.log_in_by is not None and caller.kind == "oidc" else {}
            self.note(request, LOGGED_OUT, who_of({**request.scope, CALLER: caller}), what)
        return self.see_other(LOG_IN if self.gate is not None else "/ui", self._cookie(request, ""))

    def end_session(self, number: str) -> Caller | None:
        """Keeps nothing of a session. Returns who had logged in; None: there is no such session."""
        token = self.sessions.token_of(number, is_use=False)
        if token is not None and self.log_in_by is not None:
            self.log_in_by.end(token)
        return self.sessions.end(number)

    @staticmethod
    def note(request: Request, event: str, who: Who, what: Mapping[str, Any] | None = None) -> None:
        """A line of the trail. Nobody waits for it: a log-in reads, and has to work while the trail cannot be written."""
        trail = context_of(request).trail
        if trail is not None:
            trail.put(event, who, what=dict(what or {}))

    # ---- a link of another site
    def is_from_elsewhere(self, request: Request) -> bool:
        """Returns whether somebody followed a link of another site, as in a chat or on a dashboard: the browser shows no cookie
        of a session then, whether it has one or not, and would forget it for a new one."""
        headers, path = request.headers, request.scope["path"]
        is_view = path == LOG_IN or own_path(path) == path
        is_link = _is_caused_elsewhere(request) and headers.get("sec-fetch-mode") == "navigate"
        shows_session = self.sessions.number_of(request.scope["headers"]) != ""
        return is_view and is_link and request.scope["method"] == "GET" and not shows_session

    def led_on(self, request: Request) -> Response:
        """Returns a page that asks for the view again, as a page of this site: with the cookie. It sets none."""
        there = own_path(_asked(request))
        text = render("link.html", {**self.frame(NOBODY, ""), "title": "A link", "form": "", "live_url": "", "next": there})
        return to_response(Answer(200, list(PAGE_HEADERS), text.encode()))

    # ---- what goes wrong
    def refused(self, request: Request, error: TwinlogError, answer: Answer) -> Response:
        """The page of an error: for whoever is not known the way to the log-in, where one can be shown a page."""
        if isinstance(error, Unauthenticated) and request.scope["path"] != "/ui/events":
            if self.is_from_elsewhere(request):
                return self.led_on(request)
            there = _asked(request) if request.scope["method"] == "GET" else "/ui"
            return self.see_other(f"{LOG_IN}?{urlencode({'next': own_path(there)})}")
        heading = "This is not granted to you" if isinstance(error, Forbidden) else "This did not work"
        return self.page(
            request, "error.html", heading, {"heading": heading, "detail": error.message}, status=answer.status
        )


def _is_caused_elsewhere(request: Request) -> bool:
    return request.headers.get("sec-fetch-site") == "cross-site"


def _asked(request: Request) -> str:
    query = request.scope["query_string"].decode("latin-1")
    return f"{request.scope['path']}{'?' + query if query else ''}"


def own_path(path: str) -> str:
    """Returns `path` if it is one of the views, else that of *Now*: a log-in leads nowhere else."""
    bare = path.partition("?")[0]
    is_own = any(bare == to for _, to in TABS) or any(
        bare.startswith(of_one) and "/" not in bare.removeprefix(of_one) for of_one in _OF_ONE
    )
    return path if is_own and len(path) <= _PATH_MAX and path.isascii() and path.isprintable() and "\\" not in path else "/ui"


def _sentence(text: str) -> str:
    """Returns the text of an error as a sentence of its own."""
    return f"{text[:1].upper()}{text[1:].rstrip('.')}." if text else ""


def may_see_figures(pages: Pages, request: Request) -> bool:
    """Returns whether the advice and the rates may be shown, which name what nobody without a grant learns."""
    return pages.may(caller_of(request), "GET", "/v1/view")
