"""The routes of the view *Change*: they show a role change, and ask this site for it as the API does.

What always holds: a change begins only with what confirms it typed in full, once for each page that asks; the audit trail says
who asked, as for the API.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from gateway.api.routes.acts import role_change
from gateway.api.routes.common import caller_of, context_of
from gateway.api.routes.operations import actor_of
from gateway.trail import events
from gateway.ui.forms import read_form
from gateway.ui.pages import Pages
from gateway.ui.routes.page_route import Text, pages_of
from gateway.ui.views.change import CHECKED, KINDS, Ask, ask_of, change_values, checks_shown, options_of
from gateway.ui.watch import PairSeen
from twinlog.errors import InvalidInput, PeerError, TwinlogError

Act = Annotated[Literal["", "abort", "resume"], Query()]


def add_routes(routes: APIRouter) -> None:
    @routes.get("/change")
    async def change(request: Request, kind: Text = "", operation: Text = "", act: Act = "") -> Response:
        pages = pages_of(request)
        seen = await pages.watch.seen()
        ask = ask_of(seen, kind) if kind else None
        return await _page(request, pages, seen, ask, operation, act)

    @routes.post("/change")
    async def begin(request: Request) -> Response:
        pages = pages_of(request)
        fields = await read_form(request, pages)
        seen = await pages.watch.seen()
        ask = ask_of(seen, fields.get("kind", ""))
        try:
            found = await _begin(request, pages, ask, fields)
        except TwinlogError as error:
            context_of(request).problem(error, is_write=True)
            return await _page(request, pages, seen, ask, "", "", error.message)
        return pages.see_other(f"/ui/change?{urlencode({'operation': found})}")

    @routes.post("/operation")
    async def act(request: Request) -> Response:
        pages = pages_of(request)
        what, _, operation = (await read_form(request, pages)).get("act", "").partition(" ")
        operations, actor = pages.service.operations, actor_of(request)
        said = {"operation": operation}
        if what == "abort":
            async with role_change(request, events.ABORT, said, ""):
                await operations.abort(operation, actor)
        elif what == "resume":
            async with role_change(request, events.RESUMED, said, ""):
                await operations.resume(operation, actor)
        else:
            raise InvalidInput("an operation can be given up or resumed: load the page again")
        pages.watch.ask_again()
        return pages.see_other(f"/ui/change?{urlencode(said)}")


async def _begin(request: Request, pages: Pages, ask: Ask, fields: Mapping[str, str]) -> str:
    """Returns the operation that was begun, or was before by this very form. Raises InvalidInput, and what the site refuses."""
    kind, is_dry = ask.kind.name, fields.get("do") == "dry"
    options, actor, start = options_of(kind, fields), actor_of(request), pages.service.operations.start
    if (fields.get("to") or None) != ask.to:
        raise InvalidInput("the pair has changed since this page was loaded, and nothing was done: look at it again")
    if is_dry:
        document = await start(kind, ask.to, options, True, actor)
    else:
        if " ".join(fields.get("typed", "").split()) != ask.typed:
            raise InvalidInput(f"nothing was done: to confirm, type `{ask.typed}`")
        what = {"kind": kind, "to": ask.to, "options": options}
        async with role_change(request, events.ASKED, what, ""):
            document = await start(kind, ask.to, options, False, actor, fields.get("key") or None)
    pages.watch.ask_again()
    return document.id


async def _page(
    request: Request, pages: Pages, seen: PairSeen, ask: Ask | None, operation: str, act: str, error: str = ""
) -> Response:
    checks = None
    if ask is not None and ask.kind.name in CHECKED:
        try:
            if not ask.is_here and seen.silence:
                raise PeerError(seen.silence, site=seen.other)
            name, looks = ask.kind.name, pages.service.looks
            checks = checks_shown(await (pages.service.operations.checks(name) if ask.is_here else looks.other_checks(name)))
        except TwinlogError as silent:
            error = error or f"site {ask.runs_at} does not say whether it would begin: {silent.message}"
    values: dict[str, Any] = {
        **change_values(seen, operation, may_change=pages.may(caller_of(request), "POST", "/ui/change")), "kinds": KINDS,
        "ask": ask, "ask_error": error, "checks": checks, "key": pages.sessions.new_number(),
        "confirming": act if operation else "", "shown_id": operation,
    }
    live = {"view": "change", **({"operation": operation} if operation else {})}
    status = 200 if not error else 409
    return pages.page(request, "change.html", "Change", values, live=live, status=status)
