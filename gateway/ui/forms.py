"""Reads the forms of the page: small, of the one type that forms have, and only with the text of their own page."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request

from gateway.api.request import expect_type
from gateway.api.routes.common import context_of, whole_request
from gateway.ui.pages import Pages
from twinlog.errors import InvalidInput

FORM = "application/x-www-form-urlencoded"
FIELDS_MAX = 30
FORM_BYTES_MAX = 64 << 10


async def read_form(request: Request, pages: Pages) -> Mapping[str, str]:
    """Returns the fields. Raises InvalidInput, and HTTPException 403 for a form of no page of this browser."""
    head, body = await whole_request(request, context_of(request))
    expect_type(head, (FORM,))
    if len(body) > FORM_BYTES_MAX:
        raise InvalidInput(f"the form is longer than {FORM_BYTES_MAX} bytes: send less")
    try:
        fields = dict(parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict"))
    except ValueError as error:
        raise InvalidInput("the body is no form that a browser sends: load the page again") from error
    number = pages.sessions.number_of(request.scope["headers"])
    if not pages.sessions.is_own_form(number, fields.pop("form", "")):
        raise HTTPException(
            403, "this form is not of a page that this gateway gave to this browser, or the gateway was started since: nothing "
            "was done; load the page again",
        )
    return fields
