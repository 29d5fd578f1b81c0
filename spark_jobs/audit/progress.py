"""The progress of a job, on standard error: a bar on a terminal, plain lines elsewhere.

What always holds: tasks are counted by Spark's own status tracker, from a thread of this module that ends with it; a tracker
that does not answer (Spark is ending) costs nothing but the figure.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_S = 0.5
STEPS_MAX = 200  # that are kept: a wait for a barrier has one for each look
LINE_S = 15.0  # between two plain lines of one step


class _Eta(TimeRemainingColumn):
    """Nothing while it is not known."""

    def render(self, task: Task) -> Text:
        return Text("ETA ", style="dim") + super().render(task) if task.time_remaining else Text()


@dataclass(frozen=True, slots=True)
class StepsNow:
    """The present step; `done` of `total` of its rows, or of Spark's tasks. None: not known."""

    what: str
    elapsed_s: float
    done: int | None
    total: int | None
    is_rows: bool


class Steps:
    """The Progress of job.py: what is being done, and by figures how much of it. `stages`: the steps that ended, with how long
    each took; `pace`: how many rows had been looked at when, in seconds since the beginning."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._what = ""
        self._began_s = self._since_s = self._told_s = time.monotonic()
        self._rows: tuple[int, int | None] | None = None
        self._tasks = (0, 0)
        self.stages: list[tuple[str, float]] = []
        self.pace: list[tuple[float, int]] = []
        self._bar = Progress(
            SpinnerColumn(), TextColumn("{task.description}"), BarColumn(24), TextColumn("{task.fields[figures]}"),
            TimeElapsedColumn(), _Eta(), console=console, transient=True, refresh_per_second=4,
        ) if console.is_terminal else None
        self._task = self._bar.add_task("", total=None, figures="") if self._bar is not None else None

    def step(self, what: str) -> None:
        """Ends the step before. The same words again continue it."""
        with self._lock:
            if what == self._what:
                return
        self._end_step()
        self.end_stage()
        with self._lock:
            self._what, self._rows, self._tasks = what, None, (0, 0)
            self._since_s = self._told_s = time.monotonic()
        if self._bar is not None and self._task is not None:
            self._bar.reset(self._task, total=None, description=escape(what), figures="")
        else:
            self._console.print(f"{time.strftime('%H:%M:%S')} {what}", markup=False, soft_wrap=True)

    def _end_step(self) -> None:
        if self._what and self._bar is not None:
            self._bar.console.print(f"  [green]✓[/] {escape(self._what)} [dim]{time.monotonic() - self._since_s:.1f} s[/]")

    def end_stage(self) -> None:
        """Keeps how long the present step took, up to now."""
        with self._lock:
            if self._what and len(self.stages) < STEPS_MAX:
                self.stages.append((self._what, time.monotonic() - self._since_s))

    def now(self) -> StepsNow:
        with self._lock:
            elapsed_s, (done, total) = time.monotonic() - self._began_s, self._rows or self._tasks
            known = self._rows is not None or total
            return StepsNow(
                self._what or "beginning", elapsed_s, done if known else None, total or None, self._rows is not None
            )

    def rows(self, done: int, total: int | None = None) -> None:
        with self._lock:
            self._rows = (done, total)
            self.pace.append((time.monotonic() - self._began_s, done))
        self.look(0, 0)

    def look(self, done: int, total: int) -> None:
        """So many of Spark's tasks are done; `total` 0: none is known of."""
        with self._lock:
            what, rows = self._what, self._rows
            self._tasks = (done, total) if total else self._tasks
            figures, completed, goal = _figures(rows, done, total, time.monotonic() - self._since_s)
            late = self._bar is None and figures and time.monotonic() - self._told_s > LINE_S
            if late:
                self._told_s = time.monotonic()
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, total=goal or None, completed=completed, figures=figures)
        elif late:
            self._console.print(f"{time.strftime('%H:%M:%S')} {what}: {figures}", markup=False, soft_wrap=True)

    @contextmanager
    def shown(self) -> Iterator[None]:
        if self._bar is None:
            yield
            return
        with self._bar:
            yield
            self._end_step()

    @contextmanager
    def watching(self, spark: SparkSession) -> Iterator[None]:
        """Look at Spark's tasks, from a thread, until the end."""
        ended = threading.Event()
        thread = threading.Thread(target=self._watch, args=(spark, ended), name="progress", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(LOOK_S * 20)

    def _watch(self, spark: SparkSession, ended: threading.Event) -> None:
        tracker = spark.sparkContext.statusTracker()
        while not ended.wait(LOOK_S):
            with suppress(Exception):  # Py4J's, when Java has ended: there is nothing to show then
                stages = [stage for one in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(one)) is not None]
                self.look(sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages))


def _figures(rows: tuple[int, int | None] | None, done: int, total: int, elapsed_s: float) -> tuple[str, int, int]:
    """(text, how much is done, of how much; 0: not known)."""
    parts, completed, goal = [], done, total
    if rows is not None and rows[0]:
        of = f" of {rows[1]:,}" if rows[1] else ""
        rate = f" ({rows[0] / elapsed_s:,.0f}/s)" if elapsed_s > 1 else ""
        parts.append(f"{rows[0]:,}{of} rows{rate}")
        if rows[1]:
            completed, goal = rows[0], rows[1]
    if total:
        parts.append(f"task {done:,} of {total:,}")
    return ", ".join(parts), completed, goal
