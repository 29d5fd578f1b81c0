"""Every event of the log is documented as it is logged: its name, its level and its fields."""

from __future__ import annotations

import pytest

from gateway.log_events import EVENTS, LEFT_OUT
from tools.sources import ROOT
from tools.watching.event_list import PAGE, faults, logged, logged_in, page

CALLS = list(logged())
LOGGER = 'import structlog\nlog = structlog.get_logger("twinlog.app")\n'


def test_what_is_logged_is_what_is_documented() -> None:
    assert faults(iter(CALLS)) == []


def test_the_page_is_drawn_from_the_list() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `python -m tools.watching.event_list`"


def test_the_one_event_of_bounded_warnings() -> None:
    calls = list(logged_in("logs.py", (ROOT / "gateway/logs.py").read_text(encoding="utf-8")))
    assert {(call.event, call.fields) for call in calls} == {(LEFT_OUT.name, LEFT_OUT.fields), ("", ())}


@pytest.mark.parametrize(("changed", "said"), [
    ('log.info("serves now", url=1)', "not in gateway/log_events.py"),
    ('log.info("serving")', "has the fields"),
    ('log.info("serving", url=1, port=2)', "has the fields"),
    ('log.info("serving", url=1, **more)', "adds fields"),
    ('log.error("serving", url=1)', "logged at"),
    ('log.info(f"serving {url}", url=1)', "not in gateway/log_events.py"),
    ('tell = log.info\ntell("serving", url=1)', "not in gateway/log_events.py"),
    ("", "logged at"),
])
def test_what_differs_is_told(changed: str, said: str) -> None:
    """Each of these in place of `log.info("serving", url=...)` is a fault of its own."""
    others = (call for call in CALLS if (call.logger, call.event) != ("twinlog.app", "serving"))
    found = faults(iter([*others, *logged_in("app.py", LOGGER + changed)]))
    assert found
    assert any(said in fault for fault in found)


def test_loggers_and_events_are_named_once() -> None:
    names = [(logger, event.name) for logger, events in EVENTS.items() for event in events]
    assert len(names) == len(set(names))
