"""A second opinion on the rows of a history, from a program that shares no code with the checkers: Porcupine, asked in Go.

What always holds: what could not be decided in its time, or was not looked at, is said, and is never called held; the program
is kept under the digest of its source, so a change of that builds another one.
Source: github.com/anishathalye/porcupine, at the version that go.mod and go.sum pin.
"""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import msgspec

from chaos.checkers.violation import Violation
from chaos.history.history import History, dump
from chaos.servers.golang import GoProgram
from twinlog.errors import ConfigError, InvalidInput, Unavailable

NAME = "porcupine"
HERE = Path(__file__).parent
ROW_S = 20.0  # for the judgement of one row, in a run of the harness
_JUDGED = (0, 1, 3)


class BrokenRow(msgspec.Struct, frozen=True):
    """`calls`: the smallest part found whose answers no order explains."""

    table: str
    key: str
    calls: list[int]


class UndecidedRow(msgspec.Struct, frozen=True):
    table: str
    key: str


class Judgement(msgspec.Struct, frozen=True):
    """The program's document. `steps`: calls on the rows, counted once for each row. `lossy`: rows with a loss that a manifest
    names, judged without it. `beyond`: why nothing was judged, or empty."""

    rows: int
    steps: int
    lossy: int
    broken: list[BrokenRow]
    undecided: list[UndecidedRow]
    beyond: str


class SecondOpinion(msgspec.Struct, frozen=True):
    """A verdict on a run. `decided`: there were rows, and none is undecided."""

    sentence: str
    decided: bool
    looked_at: int
    violations: list[Violation]


def program_of(source: Path) -> GoProgram:
    """The program that the Go files of a folder make."""
    digest = hashlib.sha256()
    for path in sorted((*source.glob("*.go"), source / "go.mod", source / "go.sum")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    kept_as = f"porcupine-{digest.hexdigest()[:12]}"
    return GoProgram("The second checker", ".", "porcupine", kept_as, "python -m chaos porcupine --fetch", source)


def judged(program: Path, lines: bytes, row_s: float) -> Judgement:
    """Judges the bytes of a history's file. Raises InvalidInput when they are none, Unavailable when the program ends early."""
    ended = subprocess.run([program, "-seconds", str(row_s), "-"], input=lines, capture_output=True, check=False)
    told = ended.stderr.decode(errors="replace").strip()[-400:]
    if ended.returncode == 2:
        raise InvalidInput(told)
    if ended.returncode not in _JUDGED:
        raise Unavailable(f"The second checker ended with {ended.returncode}: {told}")
    return msgspec.json.decode(ended.stdout, type=Judgement)


def second_opinion(history: History) -> SecondOpinion:
    """Never fetches and never raises: a run without the program, or which it cannot judge, is not checked by it."""
    sentence = "each row behaves like one atomic object, by the word of a second checker (Porcupine)"
    try:
        told = judged(program_of(HERE).program(), dump(history), ROW_S)
    except (ConfigError, InvalidInput, Unavailable) as error:
        return SecondOpinion(f"{sentence}: {error.message}", False, 0, [])
    problem = told.beyond
    if told.undecided:
        problem = f"{len(told.undecided)} of {told.rows} rows could not be decided in {ROW_S:g} s each, or in the memory for it"
    calls = {call.id: call for call in history.calls}
    found = []
    for row in told.broken:
        times = sorted({at for each in row.calls for at in (calls[each].invoked_s, calls[each].returned_s) if at is not None})
        found.append(Violation("P3", NAME, broken_sentence(row), tuple(row.calls), tuple(times)))
    return SecondOpinion(f"{sentence}: {problem}" if problem else sentence, not problem, told.steps, found)


def broken_sentence(row: BrokenRow) -> str:
    calls = ", ".join(map(str, row.calls))
    return f"Row {row.key} of {row.table} is not linearizable: no order explains the answers to calls {calls}."
