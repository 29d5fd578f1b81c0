"""Draws the score of the mutants into docs/track-record.md: `python -m tools.mutants.score`.

What always holds: the figures are a function of the lists alone, and a test compares the page with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from tools.mutants.mutant import Mutant, load
from tools.sources import ROOT

PAGE = ROOT / "docs" / "track-record.md"
BEGIN, END = "<!-- the score of the mutants: python -m tools.mutants.score -->", "<!-- end of the score -->"
SEEDS_MARK = 2000
WIDTH = 126
UNSEEN = {
    "second": "It shows only where a second thing happens within a few steps of a first one: an answer that is lost there, a"
              " site that dies there, a log that is damaged there. In the seeds that were run, the two did not come together,"
              " or nothing looks at that place.",
    "guard": "By its lines, another check stands in front of it or behind it, and does the same in what a run does.",
    "time": "It costs time, and no value: what it delays or does twice comes by itself, with the next frame or the next round.",
    "few": "It was looked for in the first few hundred seeds only (`seeds_run` in the lists).",
    "instant": "It is one instant of a clock, which no run has met.",
    "many": "No run has so many barriers that the oldest have to go.",
    "again": "A client asks for a table that is there only where the answer to its making was lost.",
}
GATE = (  # those that the suite itself plants, each with one quick test (tests/tools/mutants/test_planted.py)
    "key_gate-hold-looks-once", "receipts-outcome-lost", "conditions-exists", "commit_rule-tightening-loose",
    "modes-peer-loading", "read_lease-valid_at-end", "setback-weigh-equal", "trimmer-claims-damaged", "wal_tail-reaches",
    "chain-distinct-data", "continuation-starts-site", "transitions-begin-continues", "loss-accepted-less",
    "executor-resume-free",
)


def score(mutants: Sequence[Mutant]) -> str:
    """Returns the section: the table by room, and the mutants by name that nothing finds."""
    rooms: dict[str, list[Mutant]] = {}
    for mutant in mutants:
        rooms.setdefault(str(Path(mutant.file).parent), []).append(mutant)
    lines = [
        "| room | mutants | equivalent | found | by a test | the simulator runs | and found | missed |",
        "|---|---|---|---|---|---|---|---|",
        *(_row(f"`{room}`", rooms[room]) for room in sorted(rooms)),
        _row("by hand", [each for each in mutants if not each.drawn]), _row("drawn", [each for each in mutants if each.drawn]),
        _row("**all**", mutants), "",
        "Each run of the suite plants these, so that the gate itself is tested:", "",
        *_wrapped(", ".join(f"`{name}`" for name in GATE)), "",
    ]
    lines += _unseen(mutants)
    lines += _named("Missed: nothing finds these yet.", ((each, each.missed) for each in mutants if each.missed))
    lines += _named("Equivalent, or not to be found.", ((each, each.survives) for each in mutants if each.survives))
    return "\n".join(lines).rstrip() + "\n"


def page(before: str, mutants: Sequence[Mutant]) -> str:
    """Returns the page with the section drawn anew. Raises ValueError when its marks are gone."""
    head, tail = before.index(BEGIN) + len(BEGIN), before.index(END)
    return f"{before[:head]}\n\n{score(mutants)}\n{before[tail:]}"


def is_found(mutant: Mutant) -> bool:
    return bool(mutant.tests or mutant.seeds) and not (mutant.survives or mutant.missed)


def _row(name: str, mutants: Sequence[Mutant]) -> str:
    judged = [each for each in mutants if not each.survives]
    found = sum(is_found(each) for each in judged)
    asked = [each for each in judged if each.seeds or (each.seeds_run and not each.unreached)]
    by_simulator = sum(0 < each.seeds <= SEEDS_MARK for each in asked)
    cells = (
        name, len(mutants), len(mutants) - len(judged), f"{found} of {len(judged)} ({_share(found, len(judged))})",
        sum(bool(each.tests) for each in judged), len(asked), f"{by_simulator} ({_share(by_simulator, len(asked))})",
        len(judged) - found,
    )
    return "| " + " | ".join(map(str, cells)) + " |"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %" if whole else "-"


def _named(title: str, named: Iterable[tuple[Mutant, str]]) -> list[str]:
    lines: list[str] = []
    for mutant, why in named:
        lines += _wrapped(f"`{mutant.name}`: {why}")
    return [title, "", *lines, ""] if lines else []


def _unseen(mutants: Sequence[Mutant]) -> list[str]:
    """Returns those that the simulator runs and does not find, by the reason. Raises KeyError for a reason without words."""
    lines: list[str] = []
    for reason in dict.fromkeys((*UNSEEN, *(each.unseen for each in mutants if each.unseen))):
        names = [f"`{each.name}`" for each in mutants if each.unseen == reason]
        lines += _wrapped(f"{UNSEEN[reason]} {len(names)}: {', '.join(names)}") if names else []
    return ["The simulator runs these and does not find them.", "", *lines, ""] if lines else []


def _wrapped(text: str) -> list[str]:
    """Returns the item of a list in lines of the page's width."""
    lines, line = [], "-"
    for word in text.split():
        if len(line) + 1 + len(word) > WIDTH:
            lines.append(line)
            line = " "
        line += f" {word}"
    return [*lines, line]


def main() -> None:
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), load(ROOT)), encoding="utf-8")


if __name__ == "__main__":
    main()
