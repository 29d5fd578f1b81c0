"""Names who acts, as the trail has it, out of the scope of a request."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from gateway.access.caller import CALLER, Caller
from gateway.trail.entry import Who, cut_text

ASKED_BY: ContextVar[Who | None] = ContextVar("twinlog.trail.asked_by", default=None)  # the request that this task serves


def who_of(scope: Any, says: str = "") -> Who:
    """`says`: what whoever asks calls himself, which nothing proves."""
    caller: Caller | None = scope.get(CALLER)
    client = scope.get("client")
    name, kind = ("nobody", "anonymous") if caller is None else (caller.name, caller.kind)
    return Who(cut_text(name), kind, str(client[0]) if client else "", cut_text(says))
