"""A line of a log says who wrote it: no event has fields of its own under the names that stand on every line."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
EVERY_LINE = frozenset(("pair", "site", "level", "logger", "timestamp"))
LEVELS = ("debug", "info", "warning", "error", "exception")


def overwritten(source: str) -> list[tuple[int, str]]:
    """Line and name of each such field in a call of a logger."""
    return [
        (call.lineno, str(word.arg)) for call in ast.walk(ast.parse(source))
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in LEVELS
        and ast.unparse(call.func.value).lower().endswith("log")
        for word in call.keywords if word.arg in EVERY_LINE
    ]


def test_no_event_overwrites_who_wrote_it() -> None:
    found = {
        str(path.relative_to(ROOT)): lines for folder in ("gateway", "switchover", "remote_log", "storage")
        for path in sorted((ROOT / folder).rglob("*.py")) if (lines := overwritten(path.read_text(encoding="utf-8")))
    }
    assert not found


def test_such_a_field_is_seen() -> None:
    assert overwritten("_log.warning('x', table=1, site=2)") == [(1, "site")]


def test_a_request_is_no_line_of_the_log() -> None:
    """Metrics count requests, and traces show single ones (docs/events.md)."""
    ask = (
        "import logging\n"
        "from gateway.logs import LogSettings, configure_logs\n"
        "configure_logs(LogSettings(level='debug'), pair='p', site='a')\n"
        "print([logging.getLogger(name).isEnabledFor(logging.INFO) for name in ('uvicorn.access', 'uvicorn.error')])"
    )
    said = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True, timeout=120)
    assert said.stdout.strip() == "[False, True]"
