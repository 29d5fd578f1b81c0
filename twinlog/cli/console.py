"""The console of every command: what data holds never reaches the terminal as a command to it.

What always holds: a control character in what is printed (C0 without the end of a line and the tab, DEL, C1, and the marks that
turn the direction of text round) is shown as the replacement character, however it came there: a row, a name, a site's error.
`:name:` in data stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from twinlog.cli.terminal_text import plain


class SafeConsole(Console):
    """Rich's console, whose own control codes are segments of their own; those of data would be in a segment's text."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(highlight=False, emoji=False, **settings)

    def render_str(self, text: str, **settings: Any) -> Text:
        """Before it is measured: a control character has no width, and what stands for it has one."""
        return super().render_str(plain(text), **settings)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control or text.isprintable() else Segment(plain(text), style)
