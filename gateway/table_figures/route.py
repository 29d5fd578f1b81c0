"""The route of the figures of a table."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from gateway.api import examples
from gateway.api import openapi as api
from gateway.api.request import decoded_part
from gateway.api.routes.common import TableName, context_of, json_answer
from gateway.table_figures.asking import figures_of


def router() -> APIRouter:
    routes = APIRouter(prefix="/v1/tables", tags=["tables"], default_response_class=Response)

    @routes.get(
        "/{table}/figures", operation_id="getTableFigures",
        summary="Show about how many rows a table has, and how it stands at the other site",
        responses=api.answers({200: api.answer("what is known; what is not, is null", examples.TABLE_FIGURES)}, 404, 421, 503),
    )
    async def get_table_figures(request: Request, table: TableName) -> Response:
        service = context_of(request).service
        schema = service.tables.get(decoded_part(table))
        return json_answer(await figures_of(service, schema))

    return routes
