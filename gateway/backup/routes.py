"""Routes that a backup reads: all rows at one point, and the log behind one, as streams of messages."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated, Any

import msgspec
import structlog
from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from gateway.api import examples
from gateway.api import openapi as api
from gateway.api.documents import BackupPoint
from gateway.api.routes.acts import act
from gateway.api.routes.common import context_of, head_once_whole, json_request
from gateway.api.routes.streams import ClosedStream
from gateway.trail import events
from twinlog.errors import words

_log = structlog.get_logger("gateway.api.backups")
_decode_point = msgspec.json.Decoder(BackupPoint).decode
MESSAGES = "application/octet-stream"
Target = Annotated[str, Path(
    description="the backup, by the 16 digits in its manifest", examples=["0123456789abcdef"],
    json_schema_extra={"pattern": "^[0-9a-f]{16}$"}, pattern="^[0-9a-f]{16}$",
)]

Identity = Annotated[str, Query(
    description="the identity of the pair that the backup is of, by its manifest: another pair answers 409.",
    pattern="^([0-9a-f]{16})?$",
)]


def router() -> APIRouter:
    routes = APIRouter(prefix="/v1/backups", tags=["backups"], default_response_class=Response)
    whole: dict[str, Any] = {
        "description": "messages, of storage/backup/stream.py",
        "content": {MESSAGES: {"schema": {"type": "string", "format": "binary"}}},
    }

    @routes.post(
        "/{target}:base", operation_id="readBackupBase",
        summary="Read all rows of the active at one point, for a backup; its log is kept from there on",
        responses=api.answers({200: whole}, 413, 415, 421, 422, 429, 503),
    )
    async def read_base(target: Target, request: Request) -> Response:
        context = context_of(request)
        await head_once_whole(request, context)
        return await _streamed(request, {"target": target, "what": "base"}, context.service.backups.base(target))

    @routes.post(
        "/{target}:log", operation_id="readBackupLog",
        summary="Read the committed log of the active behind a point, for a backup; it is kept from that point on",
        openapi_extra=api.body(api.ref(BackupPoint), examples.BACKUP_POINT),
        responses=api.answers({200: whole}, 400, 409, 413, 415, 421, 422, 503),
    )
    async def read_log(target: Target, request: Request) -> Response:
        context = context_of(request)
        point = await json_request(request, context, _decode_point)
        what = {"target": target, "what": "log", "epoch": point.epoch, "seq": point.seq}
        return await _streamed(request, what, context.service.backups.log(target, point.identity, point.epoch, point.seq))

    @routes.post(
        "/{target}:kept", operation_id="readKeptLog",
        summary="Read what a site kept of an earlier time as the active behind a point, for a backup",
        openapi_extra=api.body(api.ref(BackupPoint), examples.BACKUP_POINT),
        responses=api.answers({200: whole}, 400, 409, 413, 415, 422, 503),
    )
    async def read_kept(target: Target, request: Request) -> Response:
        context = context_of(request)
        point = await json_request(request, context, _decode_point)
        what = {"target": target, "what": "kept log", "epoch": point.epoch, "seq": point.seq}
        return await _streamed(request, what, context.service.backups.kept(point.identity, point.epoch, point.seq))

    @routes.post(
        "/{target}:complete", operation_id="completeBackup", status_code=204,
        summary="Say that a backup has everything up to a point: at both sites, which keep their log for it from there on",
        openapi_extra=api.body(api.ref(BackupPoint), examples.BACKUP_POINT),
        responses=api.answers({204: {"description": "it is noted"}}, 400, 409, 413, 415, 422, 503),
    )
    async def complete(target: Target, request: Request) -> Response:
        context = context_of(request)
        point = await json_request(request, context, _decode_point)
        async with act(request, events.BACKUP_COMPLETE, {"target": target, "epoch": point.epoch, "seq": point.seq}):
            await context.service.backups.complete(target, point.identity, point.epoch, point.seq)
        return Response(status_code=204)

    @routes.delete(
        "/{target}", operation_id="releaseBackup", status_code=204,
        summary="Keep no log of this site for a backup any more, and forget it", responses=api.answers(
            {204: {"description": "nothing is kept for it"}}, 409, 413, 415, 422, 503
        ),
    )
    async def release(target: Target, request: Request, pair: Identity = "") -> Response:
        context = context_of(request)
        await head_once_whole(request, context)
        async with act(request, events.BACKUP_RELEASE, {"target": target}):
            await context.service.backups.release(target, pair)
        return Response(status_code=204)

    return routes


async def _streamed(request: Request, what: dict[str, Any], messages: AsyncGenerator[bytes, None]) -> Response:
    """An error before the first message is a problem; a later one breaks the connection before the end."""
    async with act(request, events.BACKUP, what):
        first = await anext(messages)
    return ClosedStream(_parts(first, messages), MESSAGES, {"cache-control": "no-store"})


async def _parts(first: bytes, messages: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes]:
    try:
        async with aclosing(messages):  # also where the client goes away: a snapshot is held behind them
            yield first
            async for message in messages:
                yield message
    except Exception as error:
        _log.warning("a backup ended early", error=words(error))
        raise
