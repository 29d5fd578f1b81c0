"""The pair as this site sees it: the cluster document, its push stream, and what became of a write."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.responses import Response

from gateway.api import openapi as api
from gateway.api.api_context import ApiContext
from gateway.api.documents import ClusterDocument, ReceiptAnswer
from gateway.api.event_stream import event_stream
from gateway.api.request import decoded_part
from gateway.api.routes.common import json_answer

_ACTIVE = {"site": "a", "url": "http://10.0.0.1:8401", "epoch": 3}
_CLUSTER = {
    "pair": "flights", "site": "b", "role": "STANDBY", "epoch": 3, "mode": "sync", "policy": "protect", "active": _ACTIVE,
    "sites": {"a": {"url": "http://10.0.0.1:8401"}, "b": {"url": "http://10.0.0.2:8401"}}, "committed_seq": 8123,
    "applied_seq": 8123, "replication_lag": {"seconds": 0.02}, "remote_log": {"bytes": 1048576}, "at_risk": {"records": 0},
    "operation": None,
}
_RECEIPT = {**api.EXAMPLE_WRITE, "outcome": "survived", "log": 0, "epoch": 3, "seq": 42}
del _RECEIPT["version"]


def router(context: ApiContext) -> APIRouter:
    routes = APIRouter(prefix="/v1", tags=["cluster"], default_response_class=Response)
    service = context.service

    @routes.get(
        "/cluster", summary="Roles, epoch, mode, addresses",
        responses=api.answers({200: api.answer(ClusterDocument, "the pair as this site sees it", _CLUSTER)}, 503),
    )
    async def get_cluster() -> Response:
        return json_answer(await service.cluster(), 200, (b"cache-control", b"no-store"))

    @routes.get(
        "/cluster/events", summary="The cluster document now and at each change, as server-sent events called `cluster`",
        responses=api.answers({200: api.raw_answer("never ends by itself", "text/event-stream")}, 503),
    )
    async def cluster_events() -> Response:
        return await event_stream("cluster", service.cluster_events(), context.closing)

    @routes.get(
        "/receipts/{receipt}", summary="What became of an acknowledged write",
        responses=api.answers({200: api.answer(ReceiptAnswer, "survived, lost or unknown", _RECEIPT)}, 404, 503),
    )
    async def get_receipt(receipt: str) -> Response:
        return json_answer(await service.receipt(decoded_part(receipt)))

    return routes
