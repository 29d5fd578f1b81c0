"""All routes of the page share this: an error is a page, and a link of another site costs nobody a session."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

import msgspec
from fastapi import Query
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from gateway.api.problems import Answer
from gateway.api.request import is_write_method
from gateway.api.routes.common import context_of, to_response
from gateway.ui.pages import Pages
from twinlog.decoding import or_none
from twinlog.errors import Forbidden, InvalidInput, TwinlogError, Unavailable

Text = Annotated[str, Query(max_length=500)]


class PageRoute(APIRoute):
    """Answers errors with a page, and whoever followed a link of another site with a way on."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            pages = context_of(request).pages
            if pages is not None and pages.is_from_elsewhere(request):
                return pages.led_on(request)
            try:
                return await handler(request)
            except (TwinlogError, HTTPException, RequestValidationError) as error:
                if isinstance(error, Forbidden):
                    context_of(request).on_forbidden(error, request.scope)
                return refusal_page(request, error)

        return handle


def pages_of(request: Request) -> Pages:
    pages = context_of(request).pages
    if pages is None:
        raise Unavailable("this door has no pages", retry_after_s=60)
    return pages


def refusal_page(request: Request, error: Exception) -> Response:
    """Also for what the gate refuses before a route is reached. Whoever does not ask for a page gets a problem, as anywhere."""
    context = context_of(request)
    answer = context.problem(error, is_write=is_write_method(request.method))
    if context.pages is None or "text/html" not in request.headers.get("accept", ""):
        return to_response(answer)
    shown = error if isinstance(error, TwinlogError) else InvalidInput(_words(answer))
    return context.pages.refused(request, shown, answer)


def _words(answer: Answer) -> str:
    problem = or_none(msgspec.json.decode, answer.body)
    return str(problem["detail"]) if isinstance(problem, dict) and "detail" in problem else "the request cannot be answered"
