"""Nobody writes `except*`: Python 3.11 up to 3.11.3 wraps what is raised in it into one more group, and newer ones do not."""

from __future__ import annotations

import re

from tools.sources import repository_files

STAR = re.compile(r"^\s*except\*", re.MULTILINE)


def test_no_try_has_except_star() -> None:
    sources = repository_files(suffix=".py")
    assert sources
    found = [str(path) for path in sources if STAR.search(path.read_text())]
    assert found == [], "take an ExceptionGroup apart by split(), as gateway/load/loading.py does"
