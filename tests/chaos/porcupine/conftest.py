from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from chaos.checkers import CHECKERS
from chaos.history.history import History, dump
from chaos.porcupine.second import Judgement, judged
from tests.needs import need_porcupine

_ROW = re.compile(r"Row (\S+) of (\S+) ")
Rows = set[tuple[str, str]]


def ours(history: History, checker: str = "linearizable") -> Rows:
    """Table and key of each row that our own checker finds broken."""
    found = [_ROW.match(violation.sentence) for violation in CHECKERS[checker](history)]
    return {(match[2], match[1]) for match in found if match is not None}


@dataclass(frozen=True)
class Second:
    """The second checker, as built."""

    program: Path

    def judged(self, history: History, row_s: float = 20.0) -> Judgement:
        return judged(self.program, dump(history), row_s)

    def broken(self, history: History) -> Rows:
        """Fails the test when anything was left undecided."""
        told = self.judged(history)
        assert (told.undecided, told.beyond) == ([], "")
        return {(row.table, row.key) for row in told.broken}


@pytest.fixture(scope="session")
def second() -> Second:
    return Second(need_porcupine())


