"""Audits again and again: each a process of its own, so that Spark takes no memory in between.

What always holds: audits of one schedule never overlap; one that takes longer than the interval is followed by the next at
once, and no start is made up for; a signal ends the audit that runs, and then the schedule.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Sequence

from rich.console import Console

from spark_jobs.audit.stopping import stopping, undisturbed
from twinlog.errors import InvalidInput

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd])")


def seconds(text: str) -> float:
    """Returns the seconds of "90s", "30m", "24h" or "7d". Raises InvalidInput."""
    found = _TIME.fullmatch(text.strip())
    if found is None or float(found[1]) <= 0:
        raise InvalidInput(f"{text!r} is no time: write 90s, 30m, 24h or 7d")
    return float(found[1]) * _UNITS[found[2]]


def run_every(interval_s: float, arguments: Sequence[str], notes: Console) -> int:
    """Until a signal; the exit code of the last audit that ended by itself (0 when there was none)."""
    code, child = 0, None
    with stopping():
        try:
            while True:
                due_s = time.monotonic() + interval_s
                child = subprocess.Popen([sys.executable, "-m", "spark_jobs.run", *arguments], start_new_session=True)
                code = child.wait()
                wait_s = max(0.0, due_s - time.monotonic())
                at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() + wait_s))
                notes.print(f"[dim]exit code {code}; the next audit begins at {at}; Ctrl-C ends the schedule[/]")
                time.sleep(wait_s)
        except KeyboardInterrupt:
            with undisturbed():
                if child is not None and child.poll() is None:
                    child.terminate()  # it puts in order what it has to, and says so
                    child.wait()
            return code
