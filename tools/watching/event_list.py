"""Draws docs/events.md from the catalogue of events: `python -m tools.watching.event_list`.

What always holds: the page is a function of gateway/log_events.py alone. `logged` finds every call in the code that logs, as
the code has it; a test compares both, and the file with the page.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from gateway.log_events import EVENTS, LEFT_OUT, LogEvent
from tools.sources import ROOT, repository_files

PAGE = ROOT / "docs" / "events.md"
FOLDERS = ("gateway", "switchover", "remote_log", "storage")
_LEVELS = {"debug": "debug", "info": "info", "warning": "warning", "warn": "warning", "error": "error", "exception": "error"}
_MAKERS = ("get_logger", "BoundedWarnings")
_BOUNDED = Path("gateway/logs.py")  # passes on what others name, and has the one event of LEFT_OUT
_HOLDERS = ("log", "_log", "_warnings")


class Logged(NamedTuple):
    """One call that logs. `fields`: as they are named in it; `has_more`: it adds some that it does not name."""

    place: str
    logger: str
    event: str
    level: str
    fields: tuple[str, ...]
    has_more: bool


def logged() -> Iterator[Logged]:
    """Yields every call that logs. One whose event is no plain text, or that is handed on by another name, has an
    empty `event`."""
    for path in repository_files(suffix=".py"):
        if path.parts[0] in FOLDERS and path != _BOUNDED:
            yield from logged_in(str(path), (ROOT / path).read_text(encoding="utf-8"))


def logged_in(place: str, text: str) -> Iterator[Logged]:
    tree = ast.parse(text)
    loggers, called = dict(_loggers(tree)), set[ast.expr]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_of_logger(node) and node not in called:
            yield Logged(f"{place}:{node.lineno}", loggers.get(_name(node.value), ""), "", _LEVELS[node.attr], (), False)
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not _is_of_logger(node.func):
            continue
        called.add(node.func)
        holder = _name(node.func.value)
        event = node.args[0] if node.args else None
        said = event.value if isinstance(event, ast.Constant) and isinstance(event.value, str) else ""
        named = tuple(sorted(keyword.arg for keyword in node.keywords if keyword.arg is not None))
        has_more = any(keyword.arg is None for keyword in node.keywords)
        yield Logged(f"{place}:{node.lineno}", loggers.get(holder, ""), said, _LEVELS[node.func.attr], named, has_more)


def _is_of_logger(node: ast.Attribute) -> bool:
    return _name(node.value) in _HOLDERS and node.attr in _LEVELS


def _loggers(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yields (the name that holds a logger, the logger's name)."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign):
            continue
        for target, value in _pairs(node):
            if isinstance(value, ast.Call) and _name(value.func) in _MAKERS and value.args:
                first = value.args[0]
                if isinstance(first, ast.Constant):
                    yield _name(target), str(first.value)


def _pairs(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=True)
        else:
            yield target, node.value


def _name(node: ast.expr) -> str:
    """The last name of an expression: `self._log` is `_log`."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def faults(calls: Iterator[Logged]) -> list[str]:
    """Returns how the calls differ from the catalogue: events that one of them does not know, and those that differ."""
    known = {(logger, event.name): event for logger, events in EVENTS.items() for event in events}
    seen: dict[tuple[str, str], set[str]] = {}
    found = []
    for call in calls:
        event = known.get((call.logger, call.event))
        if event is None:
            found.append(f"{call.place}: {call.logger} logs {call.event!r}, which is not in gateway/log_events.py")
            continue
        seen.setdefault((call.logger, call.event), set()).add(call.level)
        if call.fields != tuple(sorted(event.fields)):
            found.append(f"{call.place}: {call.event!r} has the fields {call.fields}, documented are {event.fields}")
        if call.has_more != bool(event.more):
            found.append(f"{call.place}: {call.event!r} adds fields, or not: documented is {event.more!r}")
    for (logger, name), event in known.items():
        if (levels := seen.get((logger, name), set())) != set(event.levels):
            found.append(f"{logger} {name!r} is documented at {event.levels}, and logged at {sorted(levels)}")
    return found


_INTRODUCTION = """# Events

Every event in the log of a gateway. The page is drawn from `gateway/log_events.py` by `python -m tools.watching.event_list`;
change the list, never this page. A line of the log is a JSON object: `event` and `logger` are the names below, `level` and
`timestamp` say how grave it is and when it was, `pair` and `site` say where, and the fields follow.

- An event is known by `logger` and `event` together. Both are stable; the [changelog](../CHANGELOG.md) names one that changes.
- A role change logs one line for each step: `trail` with `act` = `operation.step` and the step in `what`. A change of role logs
  `role` besides.
- A request logs nothing, unless it fails in a way that nobody foresaw, or is refused: [metrics](metrics.md) count requests, and
  [traces](traces.md) show single ones.
- A logger may write `{left_out}` with the field `count`: strangers can cause its warnings, and a
  limit holds for each minute.
- Loggers that are not listed are those of libraries: uvicorn, SQLAlchemy, asyncio.
"""


def page() -> str:
    lines = [_INTRODUCTION.replace("{left_out}", LEFT_OUT.name)]
    for logger, events in EVENTS.items():
        lines += [f"## `{logger}`\n", "| event | level | fields | what it means | what to do |", "|---|---|---|---|---|"]
        lines += [_row(event) for event in events]
        lines.append("")
    return "\n".join(lines)


def _row(event: LogEvent) -> str:
    fields = "; ".join(part for part in (", ".join(f"`{field}`" for field in event.fields), event.more) if part)
    return f"| `{event.name}` | {', '.join(event.levels)} | {fields} | {event.meaning} | {event.do} |"


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
