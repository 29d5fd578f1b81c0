"""Routes that show the pair as this site sees it: the cluster document, its event stream, the outcome of a write."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from gateway.api import examples
from gateway.api import openapi as api
from gateway.api.request import decoded_part
from gateway.api.routes.common import context_of, json_answer
from gateway.api.routes.streams import event_stream

Receipt = Annotated[str, Path(description="the receipt of a write's answer", examples=[examples.WRITTEN.receipt])]


def router() -> APIRouter:
    routes = APIRouter(prefix="/v1", tags=["cluster"], default_response_class=Response)

    @routes.get(
        "/cluster", operation_id="getCluster", summary="Show the pair as this site sees it: roles, epoch, mode, addresses",
        responses=api.answers({200: api.answer("the pair as this site sees it", examples.CLUSTER)}, 503),
    )
    async def get_cluster(request: Request) -> Response:
        return json_answer(context_of(request).service.cluster.document(), 200, (b"cache-control", b"no-store"))

    @routes.get(
        "/cluster/events", operation_id="followCluster",
        summary="Follow the cluster document: now and at each change, as server-sent events called `cluster`",
        responses=api.answers({200: api.events("the stream never ends by itself", "cluster", examples.CLUSTER)}, 503),
    )
    async def cluster_events(request: Request) -> Response:
        context = context_of(request)
        return await event_stream(request, "cluster", context.service.cluster.events(), context.closing)

    @routes.get(
        "/receipts/{receipt}", operation_id="getReceipt", summary="Look up what became of an acknowledged write",
        responses=api.answers({200: api.answer("survived, lost or unknown", examples.RECEIPT)}, 404, 503),
    )
    async def get_receipt(request: Request, receipt: Receipt) -> Response:
        return json_answer(await context_of(request).service.rows.receipt(decoded_part(receipt)))

    return routes
