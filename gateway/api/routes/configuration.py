"""The configuration of a site that runs: read again from its file, and how much is logged."""

from __future__ import annotations

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gateway.api import examples
from gateway.api import openapi as api
from gateway.api.api_context import ApiContext
from gateway.api.documents import LogLevelBody
from gateway.api.routes.acts import act
from gateway.api.routes.common import context_of, head_once_whole, json_answer, json_request
from gateway.service.port import Configuration
from gateway.trail import events
from twinlog.errors import Unavailable

_decode = msgspec.json.Decoder(LogLevelBody).decode


def router() -> APIRouter:
    routes = APIRouter(prefix="/v1/configuration", tags=["operations"], default_response_class=Response)

    @routes.post(
        ":reload", operation_id="reloadConfiguration",
        summary="Read the site's file again, and put into effect what can change while it runs",
        responses=api.answers(
            {200: api.answer("what changed, and what needs a restart", examples.RELOADED)}, 400, 409, 413, 415, 503
        ),
    )
    async def reload_configuration(request: Request) -> Response:
        context = context_of(request)
        await head_once_whole(request, context)
        configuration = _configuration(context)
        async with act(request, events.RELOAD, {}) as ended:
            done = await configuration.reload()
            ended |= done.told()
        return json_answer(done)

    @routes.post(
        ":log-level", operation_id="setLogLevel", summary="Log more or less, until the next reload or start",
        openapi_extra=api.body(api.ref(LogLevelBody), examples.LOG_LEVEL),
        responses=api.answers({200: api.answer("what changed", examples.LOG_LEVEL_SET)}, 400, 413, 415, 422, 503),
    )
    async def set_log_level(request: Request) -> Response:
        context = context_of(request)
        asked = await json_request(request, context, _decode)
        configuration = _configuration(context)
        async with act(request, events.LOG_LEVEL, {"level": asked.level[:40]}, needed=False) as ended:
            done = configuration.log_level(asked.level)
            ended |= done.told()
        return json_answer(done)

    return routes


def _configuration(context: ApiContext) -> Configuration:
    if context.configuration is None:
        raise Unavailable("this gateway was not started from a file: there is nothing to read again")
    return context.configuration
