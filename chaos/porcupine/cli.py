"""`python -m chaos porcupine`: judges a history.jsonl by the second checker, or builds that one (`--fetch`).

What always holds: exit codes are 0 linearizable, 1 not, 2 wrong usage or something is not installed, 3 not decided.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec

from chaos.history.history import load
from chaos.porcupine.second import HERE, Judgement, broken_sentence, judged, program_of
from gateway.stopping import Stopped, stopping
from twinlog.errors import TwinlogError, words


def main(given: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m chaos porcupine", description="A second opinion on the rows of a history.")
    parser.add_argument("history", type=Path, nargs="?", help="a history.jsonl, as a run leaves it")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each row (default: 60); then it is undecided")
    parser.add_argument("--fetch", action="store_true", help="build the checker, once; needs Go")
    chosen = parser.parse_args(given)
    if chosen.fetch == (chosen.history is not None) or chosen.seconds <= 0:
        parser.error("it takes a history or --fetch, and --seconds of more than 0")
    try:
        with stopping():
            if chosen.fetch:
                sys.stdout.write(f"Porcupine: {program_of(HERE).fetch()}\n")
                return 0
            lines = chosen.history.read_bytes()
            return _tell(judged(program_of(HERE).fetch(), lines, chosen.seconds), lines, chosen.seconds)
    except Stopped:
        return 3
    except OSError as error:
        sys.stderr.write(f"{chosen.history} cannot be read: {words(error)}\n")
        return 2
    except TwinlogError as error:
        sys.stderr.write(f"{error.message}\n")
        return 2


def _tell(judgement: Judgement, lines: bytes, row_s: float) -> int:
    say = sys.stdout.write
    calls = {call.id: call for call in load(lines).calls} if judgement.broken else {}
    for row in judgement.broken:
        say(f"{broken_sentence(row)}\n")
        for call in row.calls:
            say(f"  {msgspec.json.encode(calls[call]).decode()}\n")
    for each in judgement.undecided:
        say(f"Row {each.key} of {each.table} could not be decided in {row_s:g} s, or in the memory for it.\n")
    if judgement.lossy:
        say(f"{judgement.lossy} rows are judged without what a manifest names as lost.\n")
    if judgement.beyond:
        say(f"Not judged: {judgement.beyond}.\n")
    held = judgement.rows - len(judgement.broken) - len(judgement.undecided)
    say(f"{held} of {judgement.rows} rows are linearizable ({judgement.steps:,} calls on them).\n")
    return 1 if judgement.broken else 3 if judgement.undecided or judgement.beyond else 0
