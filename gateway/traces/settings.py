"""The section [traces] of a site: where its spans go. Without it there are none."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Annotated

from storage.settings import RESTART, Url, Within


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSettings:
    """`endpoint`: of an OTLP/HTTP receiver, with its path. `ratio`: of the calls of tables, those that bring no `traceparent`
    of their own; role changes are traced whatever it is."""

    endpoint: Annotated[Url, RESTART]
    ratio: Annotated[float, Within(0.0, 1.0), RESTART] = 0.01


def missing_package() -> str | None:
    """The package that traces need and that is not there; None: they are all there. Nothing is imported."""
    try:
        for name in ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http"):
            if find_spec(name) is None:
                return name
    except ModuleNotFoundError as error:  # a package above it is not there
        return error.name
    return None
