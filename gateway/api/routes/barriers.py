"""Routes of barriers, behind which each site keeps a snapshot, and of what audits found."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from gateway.access.grants import READER
from gateway.api import examples
from gateway.api import openapi as api
from gateway.api.documents import AuditDocument, AuditList, BarrierBody
from gateway.api.request import decoded_part
from gateway.api.routes.acts import act
from gateway.api.routes.common import caller_of, context_of, head_once_whole, json_answer, json_request
from gateway.audits.notes import AuditBody, AuditRun
from gateway.trail import events
from twinlog.errors import InvalidInput
from twinlog.wire.audit_report import AUDIT_ID, AuditProgress, ProgressBody, ReportBody, as_seen_by, decode_report

_decode_barrier = msgspec.json.Decoder(BarrierBody).decode
_decode_progress = msgspec.json.Decoder(AuditProgress).decode
_decode_audit = msgspec.json.Decoder(AuditRun).decode
_NO_STORE = (b"cache-control", b"no-store")
AuditName = Annotated[str, Path(description="the id of an audit", examples=["20130101T050000Z-compare"])]
BarrierName = Annotated[str, Path(description="the name of a barrier", examples=["audit-1"])]


def router() -> APIRouter:
    routes = APIRouter(prefix="/v1/barriers", tags=["audits"], default_response_class=Response)

    @routes.post(
        "", operation_id="takeBarrier",
        summary="Take a barrier at the active: both sites keep a snapshot exactly there", status_code=201,
        openapi_extra=api.body(api.ref(BarrierBody), examples.NEW_BARRIER),
        responses=api.answers({
            201: api.answer("taken, and kept at this site", examples.BARRIER),
            200: api.answer("held already under this name", examples.BARRIER),
        }, 400, 409, 413, 415, 421, 503, 504),
    )
    async def take_barrier(request: Request) -> Response:
        context = context_of(request)
        asked = await json_request(request, context, _decode_barrier)
        async with act(request, events.TAKE, {"barrier": asked.name}) as ended:
            document, is_new = await context.service.barriers.take(asked.name)
            ended |= {"barrier": document.name, "is_new": is_new}
        return json_answer(document, 201 if is_new else 200, (b"location", f"/v1/barriers/{document.name}".encode()))

    @routes.get(
        "", operation_id="listBarriers", summary="List the barriers whose snapshot this site holds, the oldest first",
        responses=api.answers({200: api.answer("what is held here", examples.BARRIERS)}),
    )
    async def list_barriers(request: Request) -> Response:
        return json_answer(context_of(request).service.barriers.all(), 200, _NO_STORE)

    @routes.get(
        "/{name}", operation_id="getBarrier", summary="Show a barrier whose snapshot this site holds",
        responses=api.answers({200: api.answer("held here", examples.BARRIER)}, 404),
    )
    async def get_barrier(request: Request, name: BarrierName) -> Response:
        return json_answer(context_of(request).service.barriers.get(decoded_part(name)), 200, _NO_STORE)

    @routes.delete(
        "/{name}", operation_id="releaseBarrier", summary="Release the snapshot of this site", status_code=204,
        responses=api.answers({204: {"description": "released"}}, 404, 413, 415),
    )
    async def release_barrier(name: BarrierName, request: Request) -> Response:
        context = context_of(request)
        await head_once_whole(request, context)
        async with act(request, events.RELEASE, {"barrier": decoded_part(name)}, needed=False):  # it gives space back
            await context.service.barriers.release(decoded_part(name))
        return Response(status_code=204)

    return routes


def audits_router() -> APIRouter:
    routes = APIRouter(prefix="/v1/audits", tags=["audits"], default_response_class=Response)

    @routes.post(
        "", operation_id="noteAudit", summary="Record what an audit found; each site keeps it for itself", status_code=201,
        openapi_extra=api.body(api.ref(AuditBody), examples.NEW_AUDIT),
        responses=api.answers({201: api.answer("kept", examples.AUDIT)}, 400, 413, 415, 422, 503),
    )
    async def note_audit(request: Request) -> Response:
        context = context_of(request)
        audit = await json_request(request, context, _decode_audit)
        what = {"id": audit.id, "job": audit.job, "outcome": audit.outcome, "differences": audit.differences, "by": audit.by}
        async with act(request, events.AUDIT, what):
            await context.service.audits.note(audit)
        return json_answer(audit, 201)

    @routes.get(
        "/last", operation_id="getLastAudits",
        summary="Show the last audit of each job, and the last comparison that found both sites equal",
        responses=api.answers({200: api.answer("null: never", examples.AUDITS)}),
    )
    async def last_audits(request: Request) -> Response:
        return json_answer(context_of(request).service.audits.all(), 200, _NO_STORE)

    _shown(routes)
    _reported(routes)
    return routes


def _shown(routes: APIRouter) -> None:
    @routes.get(
        "", operation_id="listAudits", summary="List the audits that run, and the last runs that this site was notified of",
        responses=api.answers({200: api.answer("what this site knows", examples.AUDIT_LIST)}),
    )
    async def list_audits(request: Request) -> Response:
        audits = context_of(request).service.audits
        return json_answer(AuditList(audits.running.all(), audits.past()), 200, _NO_STORE)

    @routes.get(
        "/{audit}", operation_id="getAudit",
        summary="Show an audit: its end, its report without keys of tables that the caller may not read, its progress",
        responses=api.answers({200: api.answer("known here", examples.AUDIT_SHOWN)}, 404),
    )
    async def get_audit(request: Request, audit: AuditName) -> Response:
        audits, name = context_of(request).service.audits, decoded_part(audit)
        progress, run, tables = audits.running.get(name), None, 0
        if progress is None:
            found = audits.run(name)
            run, tables = found.run, found.tables
        report, hidden = audits.report(name), 0
        if report is not None:
            grants = caller_of(request).grants
            report, hidden = as_seen_by(report, lambda table: grants.on(READER, table))
        return json_answer(AuditDocument(name, run, tables, report, hidden, progress), 200, _NO_STORE)


def _reported(routes: APIRouter) -> None:
    @routes.put(
        "/{audit}/report", operation_id="reportAudit", status_code=204,
        summary="Keep the report of an audit whose end was noted, in place of an earlier one",
        openapi_extra=api.body(api.ref(ReportBody), examples.NEW_REPORT),
        responses=api.answers({204: {"description": "kept"}}, 400, 404, 413, 415, 422, 503),
    )
    async def keep_report(request: Request, audit: AuditName) -> Response:
        context, name = context_of(request), _audit_id(audit)
        report = await json_request(request, context, decode_report)
        async with act(request, events.AUDIT_REPORT, {"id": name, "differences": report.differences_count}):
            await context.service.audits.keep_report(name, report)
        return Response(status_code=204)

    @routes.put(
        "/{audit}/progress", operation_id="reportAuditProgress", status_code=204,
        summary="Say how far an audit is that runs: kept in memory, and forgotten at its end",
        openapi_extra=api.body(api.ref(ProgressBody), examples.NEW_PROGRESS),
        responses=api.answers({204: {"description": "known"}}, 400, 413, 415, 422),
    )
    async def report_progress(request: Request, audit: AuditName) -> Response:
        context, name = context_of(request), _audit_id(audit)
        context.service.audits.progress(name, await json_request(request, context, _decode_progress))
        return Response(status_code=204)


def _audit_id(text: str) -> str:
    """Raises InvalidInput."""
    name = decoded_part(text)
    if AUDIT_ID.fullmatch(name) is None:
        raise InvalidInput(
            f"{name[:60]!r} is no id of an audit that can be reported on: write at most 128 letters, digits, `.`, `_` and `-`, "
            "with a letter or digit first", parameter="audit",
        )
    return name
