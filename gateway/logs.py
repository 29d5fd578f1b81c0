"""Logging of a gateway process: structlog, one JSON object a line on standard error (or coloured text on a terminal).

What always holds: the standard library's loggers (uvicorn, SQLAlchemy) come out in the same form through the same
handler; every line carries time in UTC, level, logger, pair and site. Source: product.md section 8.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Annotated, Any

import structlog

from storage.settings import RESTART, RUN_TIME, OneOf

A_MINUTE_MAX = 10
LEVELS = ("debug", "info", "warning", "error")
ALWAYS = "twinlog.trail"  # whoever ships the log elsewhere proves the audit trail by it, at every level


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings:
    level: Annotated[str, OneOf(LEVELS), RUN_TIME] = "info"
    format: Annotated[str, OneOf(("json", "console")), RESTART] = "json"


def configure_logs(settings: LogSettings, **bound: str) -> None:
    """Set up logging for this process, once, at start; `bound` (pair, site) is on every line."""
    shared: list[structlog.types.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: list[structlog.types.Processor] = [structlog.dev.ConsoleRenderer()]
    if settings.format == "json":
        last = [structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer()]
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
    ))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    set_log_level(settings.level)
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    for name in ("uvicorn.access", "httpx", "httpcore"):  # a line for each request says less than the metrics do
        logging.getLogger(name).setLevel("WARNING")
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level, *shared, structlog.processors.StackInfoRenderer(),
            structlog.stdlib.PositionalArgumentsFormatter(), structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(**bound)


def set_log_level(level: str) -> None:
    """Logs from `level` on, one of LEVELS. The lines of the audit trail are logged at each of them."""
    logging.getLogger().setLevel(level.upper())
    logging.getLogger(ALWAYS).setLevel("DEBUG" if level == "debug" else "INFO")


class BoundedWarnings:
    """Warnings that strangers can cause: A_MINUTE_MAX are logged in each minute, and how many more there were."""

    def __init__(self, logger: str, now_s: Callable[[], float]) -> None:
        self._log, self._now_s = structlog.get_logger(logger), now_s
        self._since_s, self._logged, self._left_out = -inf, 0, 0

    def warn(self, event: str, **members: Any) -> None:
        now_s = self._now_s()
        if now_s - self._since_s >= 60.0:
            if self._left_out:
                self._log.warning("more warnings of this kind were left out", count=self._left_out)
            self._since_s, self._logged, self._left_out = now_s, 0, 0
        if self._logged >= A_MINUTE_MAX:
            self._left_out += 1
            return
        self._logged += 1
        self._log.warning(event, **members)
