"""Load balancers and Prometheus ask these. None of these waits for anything.

What always holds: `primary` is 200 only on a site that takes writes now, by the one judgement (serving_judgement.py), and so on
one at most; `standby` on a site that follows, not further behind than asked; `ready` on a site that answers reads or follows;
`live` whenever the process answers. Otherwise 503, with the reason and the way out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from gateway.api import examples
from gateway.api import openapi as api
from gateway.api.documents import HealthAnswer
from gateway.api.problems import Answer
from gateway.api.routes.common import context_of, json_answer, to_response
from gateway.service.documents import ServingDocument
from gateway.service.port import SiteService
from twinlog.errors import Unavailable


def router() -> APIRouter:
    routes = APIRouter(tags=["health"], default_response_class=Response)
    probe = api.answers({200: api.answer("yes", examples.HEALTH)}, 503)

    def healthy(service: SiteService, wanted: str, holds: Callable[[ServingDocument], bool]) -> Response:
        cluster = service.cluster
        serving = cluster.serving()
        if not holds(serving):
            said = serving.why or f"site {service.site} is {cluster.role()}"
            way = f"; {serving.do}" if serving.do else ""
            raise Unavailable(f"site {service.site} does not {wanted}: {said}{way}", role=cluster.role(), site=service.site)
        return shown_now(service)

    def shown_now(service: SiteService) -> Response:
        cluster = service.cluster
        serving = cluster.serving()
        answer = HealthAnswer(service.site, cluster.role(), serving.reads, serving.writes, serving.follows, serving.why)
        return json_answer(answer, 200, (b"cache-control", b"no-store"))

    alive = api.answers({200: api.answer("yes", examples.HEALTH)})

    @routes.get("/health/live", operation_id="getLive", summary="Check that the process answers", responses=alive)
    async def live(request: Request) -> Response:
        return shown_now(context_of(request).service)

    @routes.get("/health/ready", operation_id="getReady", summary="Check that this site serves or follows", responses=probe)
    async def ready(request: Request) -> Response:
        return healthy(context_of(request).service, "serve or follow", lambda serving: serving.reads or serving.follows)

    @routes.get("/health/primary", operation_id="getPrimary", summary="Check that this site takes writes", responses=probe)
    async def primary(request: Request) -> Response:
        return healthy(context_of(request).service, "take writes", lambda serving: serving.writes)

    @routes.get(
        "/health/standby", operation_id="getStandby",
        summary="Check that this site follows the active, at most `lag` seconds behind", responses=probe,
    )
    async def standby(
        request: Request, lag: Annotated[float | None, Query(ge=0, description="seconds; left out: any lag")] = None
    ) -> Response:
        service = context_of(request).service
        cluster, answer = service.cluster, healthy(service, "follow", lambda serving: serving.follows)
        vouched_s = cluster.vouched_s()
        behind_s = None if vouched_s is None else cluster.age_s(vouched_s)
        if lag is not None and (behind_s is None or behind_s > lag):
            shown_lag = "unknown" if behind_s is None else f"{behind_s:.3f} s"
            raise Unavailable(f"the lag is {shown_lag}, above {lag:g} s", replication_lag_s=behind_s, role=cluster.role())
        return answer

    @routes.get(
        "/metrics", operation_id="getMetrics", summary="Show the figures for Prometheus",
        responses=api.answers({200: api.raw_answer("text exposition format", "text/plain", examples.METRICS)}),
    )
    async def metrics(request: Request) -> Response:
        content_type, page = context_of(request).metrics.page(request.headers.get("accept", ""))
        return to_response(Answer(200, [(b"content-type", content_type.encode())], page))

    return routes
