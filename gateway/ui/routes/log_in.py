"""The routes of the log-in: by a token, and by the OIDC issuer, to which the browser is sent and from which it comes back.

What always holds: every way that does not let somebody in is a page that says what to do and has both log-ins on it; an
answer that ends a log-in takes its cookie away, and one that ends none, such as that of an older tab, leaves the log-in under
way as it is; a browser that comes back is shown a page of this site that leads on, for
the cookie of a session (SameSite=Strict) goes with no request that another site caused; no code and no token stands in an
address of this site behind that page, in the log or in the trail.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gateway.access.caller import CALLER, Caller
from gateway.access.log_in.log_in import LogIn
from gateway.access.log_in.pending import PENDING_S
from gateway.access.needs import IDENTITY
from gateway.access.settings import CALLBACK
from gateway.api.routes.common import context_of
from gateway.trail.events import LOG_IN as LOGGED_IN
from gateway.trail.who import who_of
from gateway.ui.forms import read_form
from gateway.ui.pages import BY_ISSUER, LEAVE, LOG_IN, Pages, own_path
from gateway.ui.routes.page_route import Text, pages_of
from gateway.ui.sessions import cookie_of
from twinlog.errors import InvalidInput, NotFound, TwinlogError

ANSWER_BYTES_MAX, ANSWER_FIELDS_MAX = 8 << 10, 20
PREFIX = "/ui"  # of the router that these are added to


def add_routes(routes: APIRouter) -> None:
    _by_token(routes)
    _by_issuer(routes)


def _by_token(routes: APIRouter) -> None:
    @routes.get(LOG_IN.removeprefix(PREFIX))
    async def log_in_page(request: Request, next: Text = "/ui") -> Response:
        pages = pages_of(request)
        if await pages.is_logged_in(request):
            return pages.see_other(own_path(next))
        return pages.log_in_page(request, next)

    @routes.post(LOG_IN.removeprefix(PREFIX))
    async def log_in(request: Request) -> Response:
        pages = pages_of(request)
        fields = await read_form(request, pages)
        return await pages.log_in(request, fields.get("token", ""), fields.get("next", "/ui"))

    @routes.post("/logout")
    async def log_out(request: Request) -> Response:
        pages = pages_of(request)
        await read_form(request, pages)
        return pages.log_out(request)


def _by_issuer(routes: APIRouter) -> None:
    @routes.get(BY_ISSUER.removeprefix(PREFIX))
    async def begin(request: Request, next: Text = "/ui") -> Response:
        pages = pages_of(request)
        log_in, there = _log_in_of(pages), own_path(next)
        if request.headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return pages.log_in_page(request, there)  # a page of another site begins nobody's log-in
        try:
            with log_in.attempt(_address(request)):
                url, sealed = await log_in.begin(there, pages.sessions.number_of(request.scope["headers"]))
        except TwinlogError as error:
            return await _refused(pages, request, error, there)
        return pages.see_other(url, _cookie(pages, request, sealed).encode("latin-1"))

    @routes.get(LEAVE.removeprefix(PREFIX))
    async def leave(request: Request, next: Text = "/ui") -> Response:
        pages = pages_of(request)
        log_in, there = _log_in_of(pages), own_path(next)
        try:
            with log_in.attempt(_address(request)):
                url = await log_in.leave()
        except TwinlogError as error:
            return await _refused(pages, request, error, there)
        return pages.see_other(url)

    @routes.get(CALLBACK.removeprefix(PREFIX))
    async def come_back(request: Request) -> Response:
        pages = pages_of(request)
        log_in, there, session, taken = _log_in_of(pages), "/ui", "", False
        try:
            with log_in.attempt(_address(request)):
                answer = _answer(request.scope["query_string"])
                pending = log_in.take(answer, cookie_of(request.scope["headers"], _cookie_name(pages, request)))
                there, session, taken = own_path(pending.next_path), pending.session, True
                known = await log_in.finish(answer, pending)
            return await _begun(pages, request, log_in, known, session, there)
        except TwinlogError as error:
            return await _refused(pages, request, error, there, session=session, taken=taken)


async def _begun(
    pages: Pages, request: Request, log_in: LogIn, known: str, session: str, there: str
) -> Response:
    """Begins the session of somebody whom the issuer knows, if the gate lets him in; the browser's session before it ends."""
    gate = pages.gate
    assert gate is not None  # it has the log-in
    kept = [(name, value) for name, value in request.scope["headers"] if name != b"authorization"]
    scope = {**request.scope, "headers": [*kept, (b"authorization", f"Bearer {known}".encode())]}
    try:
        budget = await gate.admit(scope, IDENTITY, CALLBACK, "")
    except TwinlogError as error:  # which the gate has noted
        log_in.end(known)
        return _refusal(pages, request, error, there, session, taken=True)
    if budget is not None:
        budget.leave()
    caller: Caller = scope[CALLER]
    if not caller.grants.texts():
        return await _refused(pages, request, log_in.nothing_granted(known, caller), there, caller, session, taken=True)
    pages.note(request, LOGGED_IN, who_of(scope), {"issuer": log_in.issuer})
    pages.end_session(session)
    values = {"next": there, "subject": caller.name, "issuer": log_in.name}
    return pages.page(
        request, "logged_in.html", "Logged in", values, begun=pages.sessions.begin(known, caller),
        cookies=(_cookie(pages, request, ""),),
    )


async def _refused(
    pages: Pages, request: Request, error: TwinlogError, there: str, caller: Caller | None = None, session: str = "", *,
    taken: bool = False,
) -> Response:
    """The log-in page with what went wrong; the log and the trail have why. `taken`: a log-in was ended by this."""
    if pages.gate is not None:
        pages.gate.note(error, caller, request.scope)
        await pages.gate.before_refusal()
    return _refusal(pages, request, error, there, session, taken=taken)


def _refusal(pages: Pages, request: Request, error: TwinlogError, there: str, session: str, *, taken: bool) -> Response:
    status = context_of(request).problem(error, is_write=False).status
    cookies = (_cookie(pages, request, ""),) if taken else ()
    return pages.log_in_page(request, there, error.message, status, session=session, cookies=cookies)


def _log_in_of(pages: Pages) -> LogIn:
    if pages.log_in_by is None:
        raise NotFound("nobody logs in by an issuer at this site: its configuration has no [access.oidc.login]")
    return pages.log_in_by


def _address(request: Request) -> str:
    return request.client.host if request.client is not None else ""


def _answer(query: bytes) -> Mapping[str, str]:
    """Returns what the issuer sent along. Raises InvalidInput that shows none of it, for a code may be in it."""
    try:
        if len(query) > ANSWER_BYTES_MAX:
            raise ValueError("it is too long")
        pairs: list[tuple[str, str]] = parse_qsl(
            query.decode("ascii"), keep_blank_values=True, max_num_fields=ANSWER_FIELDS_MAX, errors="strict"
        )
    except ValueError:
        raise InvalidInput("the issuer's answer cannot be read: begin the log-in again") from None
    found: dict[str, Any] = dict(pairs)
    if len(found) != len(pairs):
        raise InvalidInput("the issuer's answer has a parameter more than once: begin the log-in again")
    return found


# ---- the cookie of a log-in under way
def _is_secure(request: Request) -> bool:
    return request.url.scheme == "https"


def _cookie_name(pages: Pages, request: Request) -> str:
    """By TLS with a prefix, by which a browser takes it from this very host and from nobody else."""
    return f"{'__Host-' if _is_secure(request) else ''}{pages.sessions.name}_login"


def _cookie(pages: Pages, request: Request, sealed: str) -> str:
    """Returns the value of Set-Cookie; an empty text deletes it. Lax: it has to come back with the issuer's answer."""
    where = "Path=/; Secure" if _is_secure(request) else f"Path={LOG_IN}"
    return f"{_cookie_name(pages, request)}={sealed}; {where}; HttpOnly; SameSite=Lax; Max-Age={PENDING_S if sealed else 0}"
