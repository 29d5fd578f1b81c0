"""`python -m chaos from-journal --site a=PLACE --site b=PLACE`: a plan of what happened to a pair.

What always holds: only the plan is written. Exit codes: 0 a plan was written, 2 wrong usage, or nothing to read.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from chaos.harness.incident.draft import incident
from chaos.harness.incident.sources import read
from chaos.harness.incident.texts import for_the_harness, for_the_simulator
from twinlog.errors import InvalidInput, words
from twinlog.wire.home_paths import expanded


def arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m chaos from-journal", description="Makes a plan of an incident: its commands from the journals of both"
        " sites, its faults from their logs.",
    )
    parser.add_argument("--site", action="append", required=True, metavar="NAME=PLACE",
                        help="a or b, and its journal.db, its log (JSON lines), or a folder with both; may be repeated")
    parser.add_argument("--simulate", action="store_true", help="in the simulator's language, for `python -m chaos replay`")
    parser.add_argument("--out", type=Path, help="the file of the plan (default: the screen)")
    return parser.parse_args(given)


def main(given: list[str]) -> int:
    chosen = arguments(given)
    try:
        places = [_place(each) for each in chosen.site]
        found = incident(read(places))
        text = (for_the_simulator if chosen.simulate else for_the_harness)(found)
        if chosen.out is None:
            sys.stdout.write(text)
            return 0
        chosen.out.write_text(text, encoding="utf-8")
    except OSError as error:
        sys.stderr.write(f"{chosen.out} cannot be written: {words(error)}\n")
        return 2
    except InvalidInput as error:
        sys.stderr.write(f"{error.message}\n")
        return 2
    again = "replay" if chosen.simulate else "run"
    sys.stdout.write(f"commands: {len(found.commands)}, faults: {len(found.faults)}; python -m chaos {again} {chosen.out}\n")
    return 0


def _place(text: str) -> tuple[str, Path]:
    site, sign, path = text.partition("=")
    if not sign or site not in ("a", "b") or not path:
        raise InvalidInput(f"--site {text}: write a=PLACE or b=PLACE")
    return site, expanded(path, "--site")
