"""Shows on the operator's terminal how far a backup, a look at one, or a restore is.

What always holds: lines and bar are on standard error; the bar is drawn once a second at most, on a terminal alone, and it is
gone when its command says how it ended.
"""

from __future__ import annotations

from types import TracebackType

from rich.markup import escape
from rich.progress import BarColumn, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn

from twinlog.terminal import progress_bar

PER_SECOND = 1.0
BAR_WIDTH = 20
SHARE_MAX = 0.99  # a total may be an estimate, and only the end of the command says that all is done


class TerminalProgress:
    """Implements gateway.backup.progress.BackupProgress. `lines`: each thing that is begun is a line, which stays. Use as a
    context."""

    def __init__(self, *, lines: bool) -> None:
        self._lines = lines
        self._bar = progress_bar(
            BarColumn(BAR_WIDTH), TaskProgressColumn(), TextColumn("{task.fields[shown]}"), TimeElapsedColumn(),
            per_second=PER_SECOND, transient=True,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> TerminalProgress:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bar.stop()

    def say(self, line: str) -> None:
        if self._lines:
            self._bar.console.print(f"[dim]{escape(line)}[/]")

    def begin(self, line: str) -> None:
        self.say(line)
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._task = self._bar.add_task("", total=None, shown="")

    def reached(self, done: int, total: int | None, shown: str) -> None:
        if self._task is not None:
            seen = done if total is None else min(done, SHARE_MAX * total)
            self._bar.update(self._task, completed=seen, total=total, shown=shown)
