"""The files that a run leaves in its folder: report.html, report.json, plan.txt and the history; and the way back to the run.

What always holds: report.json has what it takes to run it again: plan, rounds, parts and bug.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from chaos.checkers.violation import Violation
from chaos.harness.nemesis import Span
from chaos.harness.pair.commands import Typed
from chaos.harness.pair.parts import WITNESS, Parts
from chaos.harness.pair.samples import Sample
from chaos.harness.pair.sites import SITES
from chaos.harness.plan import HarnessPlan, parse, text
from chaos.harness.promises import Verdict
from chaos.harness.report.evidence import Evidence, evidence, first_of_each
from chaos.harness.report.figures import Cost, Latency, Second, Totals, costs, latencies, seconds, totals
from chaos.harness.report.origin import Origin, origin
from chaos.harness.report.page import page
from chaos.harness.run import Run
from chaos.history.edn import edn
from chaos.history.history import dump
from twinlog.errors import InvalidInput, words


class Report(msgspec.Struct, frozen=True):
    """The document. `plan`: the text of one. `costs`: of each fault, in their order. `evidence`: of the first violations
    of each checker."""

    name: str
    plan: str
    rounds: int
    parts: Parts | None
    bug: str
    replay: str
    origin: Origin
    lasted_s: float
    totals: Totals
    violations: list[Violation]
    evidence: list[Evidence]
    verdicts: list[Verdict]
    faults: list[Span]
    costs: list[Cost]
    latencies: list[Latency]
    commands: list[Typed]
    seconds: list[Second]
    samples: list[Sample]
    rest: list[Sequence[Sample]]


def keep(run: Run, name: str, folder: Path, again: str = "") -> Path:
    """Writes all of it; the page's path. `again`: the command that runs it again, unless `replay` does."""
    replay, made = again or f"python -m chaos replay {folder / 'report.json'}", origin()
    shown = [evidence(run.history, run.samples, each) for each in first_of_each(run.violations)]
    document = Report(
        name, text(run.plan), run.rounds, run.parts, run.bug, replay, made, run.lasted_s, totals(run.history),
        list(run.violations), shown, list(run.verdicts), list(run.spans), costs(run.history, run.spans, run.samples),
        latencies(run.history, run.spans), list(run.typed), seconds(run.history), list(run.samples), list(run.rest),
    )
    (folder / "report.json").write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=1))
    (folder / "history.jsonl").write_bytes(dump(run.history))
    (folder / "history.edn").write_text(edn(run.history), encoding="utf-8")
    (folder / "plan.txt").write_text(text(run.plan), encoding="utf-8")
    path = folder / "report.html"
    path.write_text(page(run, name, replay, shown, made), encoding="utf-8")
    return path


def new_folder(chosen: Path | None) -> Path:
    """Makes it. Raises InvalidInput when it holds something."""
    folder = chosen or Path("out/chaos") / f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise InvalidInput(f"{folder} is not empty: a run starts from nothing; name a new folder")
    return folder.resolve()


def tidy(folder: Path, *, keep_all: bool) -> None:
    """Removes what is large from the folder of a run, the sites' files and the history, unless all is to be kept."""
    if keep_all:
        return
    for site in (*SITES, WITNESS):
        shutil.rmtree(folder / site, ignore_errors=True)
    for name in ("history.jsonl", "history.edn"):
        (folder / name).unlink(missing_ok=True)


def read_back(path: Path) -> tuple[str, HarnessPlan, Parts, int, str]:
    """Name, plan, parts, rounds and bug of a report.json. Raises InvalidInput."""
    try:
        found: dict[str, Any] = msgspec.json.decode(path.read_bytes())
        parts = msgspec.convert(found["parts"], Parts)
        return str(found["name"]), parse(found["plan"]), parts, int(found["rounds"]), str(found["bug"])
    except (OSError, msgspec.DecodeError, KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"{path} is no report of a run: {words(error)}") from error
