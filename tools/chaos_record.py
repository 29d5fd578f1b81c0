"""Draws the tables of runs on real processes, and of the soak, into docs/track-record.md: `python -m tools.chaos_record`.

What always holds: the figures are a function of the records alone (docs/chaos-runs.jsonl, written by `python -m chaos matrix
--record`, and docs/chaos-soak.jsonl, by `python -m chaos soak --record`), and a test compares the page with them; a record
without lines has no figures.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from chaos.harness.matrix.record import Recorded, read
from chaos.harness.soak import record as soak
from chaos.harness.soak.record import Leg
from tools.sources import ROOT

RECORD, PAGE = ROOT / "docs" / "chaos-runs.jsonl", ROOT / "docs" / "track-record.md"
SOAK = ROOT / "docs" / "chaos-soak.jsonl"
BEGIN, END = "<!-- runs on real processes: python -m tools.chaos_record -->", "<!-- end of the runs -->"
SOAK_BEGIN, SOAK_END = "<!-- the soak: python -m tools.chaos_record -->", "<!-- end of the soak -->"
NO_LEGS = "No leg of a soak is in the record.\n"
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


def soak_tables(lines: Sequence[Leg]) -> str:
    """Returns, for each seed and kind of pair, the totals of its legs, the faults by kind, and the legs that did not hold."""
    soaks: dict[tuple[int, str], list[Leg]] = defaultdict(list)
    for line in lines:
        soaks[line.seed, line.parts].append(line)
    drawn = ("\n".join((f"Seed {seed}, {parts}:", "", *_soak(soaks[seed, parts]), "")) for seed, parts in sorted(soaks))
    return "\n".join(drawn) or NO_LEGS


def page(before: str, lines: Sequence[Recorded], legs: Sequence[Leg]) -> str:
    """Returns the page with the tables drawn anew. Raises ValueError when their marks are gone."""
    return _between(_between(before, BEGIN, END, table(lines)), SOAK_BEGIN, SOAK_END, soak_tables(legs))


def _between(before: str, begin: str, end: str, drawn: str) -> str:
    head, tail = before.index(begin) + len(begin), before.index(end)
    return f"{before[:head]}\n\n{drawn}\n{before[tail:]}"


def _soak(legs: Sequence[Leg]) -> Iterator[str]:
    def summed(member: str) -> int:
        return sum(getattr(leg, member) for leg in legs)

    faults: Counter[str] = Counter()
    for leg in legs:
        faults.update(leg.faults)
    lasted_s = sum(leg.lasted_s for leg in legs)
    figures = (
        ("legs", f"{len(legs):,}"), ("hours", f"{lasted_s / 3600:.2f}"), ("faults", f"{faults.total():,}"),
        *((member, f"{summed(member):,}") for member in ("operations", "acknowledged", "unknown")),
        ("operations a second", f"{summed('operations') / lasted_s:.0f}"),
        *((name, f"{summed(member):,}") for name, member in _ENDS), ("no writes", f"{_most(legs, 'without_writes_s'):.1f}"),
        ("no reads", f"{_most(legs, 'without_reads_s'):.1f}"), *_grown(legs),
        ("first and last day", f"{min(leg.day for leg in legs)}, {max(leg.day for leg in legs)}"),
        ("commits", ", ".join(dict.fromkeys(leg.commit for leg in legs))),
        ("steps not reached, faults left out", f"{summed('not_reached'):,}, {summed('left_out'):,}"),
        ("faults by kind", ", ".join(f"{kind} {count:,}" for kind, count in sorted(faults.items()))),
    )
    yield "| | |"
    yield "|---|---|"
    yield from (f"| {name} | {told} |" for name, told in figures)
    for leg in legs:
        if leg.violations:
            yield f"| leg {leg.leg} ({leg.workload}) did not hold | {', '.join(leg.broken)} |"


_ENDS = (("lost", "lost"), ("not linearizable", "not_linearizable"), ("violations", "violations"), ("stuck", "stuck"))


def _most(legs: Sequence[Leg], member: str) -> float:
    return float(max(getattr(leg, member) for leg in legs))


def _grown(legs: Sequence[Leg]) -> Iterator[tuple[str, str]]:
    """The most that the gateway of a site held more, or the least less, at the end of a leg than at its beginning."""
    held = [each for leg in legs for each in leg.held]
    if held:
        yield "memory, end against beginning of a leg, at most", (
            f"{max(each.memory_bytes_last - each.memory_bytes_first for each in held) / (1 << 20):+.0f} MiB"
        )
        yield "descriptors, likewise", f"{max(each.descriptors_last - each.descriptors_first for each in held):+d}"
        yield "threads, likewise", f"{max(each.threads_last - each.threads_first for each in held):+d}"
    yield "legs in which the pair came to rest", f"{sum(bool(leg.held) for leg in legs):,}"


def _row(row: str, parts: str, lines: Sequence[Recorded]) -> str:
    def summed(member: str) -> str:
        return f"{sum(getattr(line, member) for line in lines):,}"

    counts = ("faults", "operations", "acknowledged", "unknown", "lost", "not_linearizable", "violations", "stuck")
    longest = (max(line.without_writes_s for line in lines), max(line.without_reads_s for line in lines))
    cells = (row, parts, f"{len(lines):,}", *map(summed, counts), *(f"{each:.1f}" for each in longest))
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), read(RECORD), soak.read(SOAK)), encoding="utf-8")
