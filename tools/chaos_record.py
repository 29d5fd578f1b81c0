"""Draws the table of runs on real processes into docs/track-record.md: `python -m tools.chaos_record`.

What always holds: the figures are a function of the record alone (docs/chaos-runs.jsonl, written by `python -m chaos matrix
--record`), and a test compares the page with it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from chaos.harness.matrix.record import Recorded, read
from tools.sources import ROOT

RECORD, PAGE = ROOT / "docs" / "chaos-runs.jsonl", ROOT / "docs" / "track-record.md"
BEGIN, END = "<!-- runs on real processes: python -m tools.chaos_record -->", "<!-- end of the runs -->"
COLUMNS = (
    "row", "parts", "runs", "faults", "operations", "acknowledged", "unknown", "lost", "not linearizable", "violations",
    "stuck", "no writes", "no reads",
)


def table(lines: Sequence[Recorded]) -> str:
    """Returns the table: a line for each row of the matrix and kind of pair, and one for all. The last two columns are the
    longest times of any run, in seconds."""
    found: dict[tuple[str, str], list[Recorded]] = defaultdict(list)
    for line in lines:
        found[line.row, line.parts].append(line)
    head = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    rows = [_row(row, parts, found[row, parts]) for row, parts in sorted(found)]
    return "\n".join([*head, *rows, *([_row("**all**", "", lines)] if lines else [])]) + "\n"


def page(before: str, lines: Sequence[Recorded]) -> str:
    """Returns the page with the table drawn anew. Raises ValueError when its marks are gone."""
    head, tail = before.index(BEGIN) + len(BEGIN), before.index(END)
    return f"{before[:head]}\n\n{table(lines)}\n{before[tail:]}"


def _row(row: str, parts: str, lines: Sequence[Recorded]) -> str:
    def summed(member: str) -> str:
        return f"{sum(getattr(line, member) for line in lines):,}"

    counts = ("faults", "operations", "acknowledged", "unknown", "lost", "not_linearizable", "violations", "stuck")
    longest = (max(line.without_writes_s for line in lines), max(line.without_reads_s for line in lines))
    cells = (row, parts, f"{len(lines):,}", *map(summed, counts), *(f"{each:.1f}" for each in longest))
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), read(RECORD)), encoding="utf-8")
