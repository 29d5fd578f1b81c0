"""The names of events are stable: docs/security.md lists each of them, and no other one."""

from __future__ import annotations

import re

from gateway.trail.events import EVENTS
from tools.sources import ROOT


def test_the_page_lists_every_event_and_no_other() -> None:
    page = (ROOT / "docs/security.md").read_text(encoding="utf-8").partition("## The entries")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert sorted(re.findall("`([a-z.]+)`", " ".join(rows))) == sorted(EVENTS)
