"""Makes a mistake in the product for each guarded sentence, and looks whether its tests fail; draws docs/guards.md.

The files *.toml beside this one have an entry for each sentence of what strangers found: the tests that guard it, and a small
mistake (each text of `old` stands once in `file`, and becomes that of `new`) with which all of them must fail. `python -m
tests.guards.ledger` draws the page. With `--break` it makes each mistake in a clone of the last commit, so that no checkout is
touched, and ends with 1 when a test passes all the same, or when a mistake no longer fits the code.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import msgspec

from tools.sources import ROOT

PAGE = "docs/guards.md"
FOLDER = "tests/guards"
LISTS = ("tests", "old", "new")
PYTEST = (sys.executable, "-m", "pytest", "-q", "-x", "--tb=line", "-p", "no:cacheprovider")
HEAD = """# Guards

Strangers attacked the pair from outside at commit 50909f1. For each sentence of their report this page says what holds now,
which tests guard it, and with which mistake in the product all of these tests were seen to fail. Most of the tests cannot run
on that commit itself, because names and modules have changed since; the mistake brings its fault back. `python -m
tests.guards.ledger` draws the page from the files in `tests/guards/`. With `--break` it makes each mistake again and runs its
tests, and with `--break --only A.3` those of one point. The points from F on are of what was built since then.
"""


class Guard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`how`: with which mistake the tests fail. Without `old` nothing is broken: then it says what guards the sentence."""

    point: str
    says: str
    how: str
    tests: tuple[str, ...] = ()
    file: str = ""
    old: tuple[str, ...] = ()
    new: tuple[str, ...] = ()


def guards(root: Path = ROOT) -> list[Guard]:
    """All guards, in the order of the points. Raises msgspec.ValidationError."""
    found: list[Guard] = []
    for path in sorted((root / FOLDER).glob("*.toml")):
        for entry in tomllib.loads(path.read_text(encoding="utf-8"))["guard"]:
            texts = {name: [entry[name]] if isinstance(entry[name], str) else entry[name] for name in LISTS if name in entry}
            found.append(msgspec.convert({**entry, **texts}, Guard))
    return found


def page(all_guards: list[Guard]) -> str:
    lines, point = [HEAD.rstrip()], ""
    for guard in all_guards:
        if guard.point != point:
            point = guard.point
            lines += ["", f"## {point}", "", "| what holds now | tests | seen to fail |", "|---|---|---|"]
        named = "<br>".join(f"`{test}`" for test in guard.tests)
        where = f" (`{guard.file}`)" if guard.file else ""
        lines.append(f"| {guard.says} | {named} | {guard.how}{where} |")
    return "\n".join(lines) + "\n"


def misfits(guard: Guard, root: Path = ROOT) -> list[str]:
    """Returns a sentence for each text of the mistake that does not stand once in its file."""
    if not guard.old:
        return []
    source = (root / guard.file).read_text(encoding="utf-8")
    return [f"{old!r} stands {source.count(old)} times in {guard.file}" for old in guard.old if source.count(old) != 1]


def _broken(guard: Guard, clone: Path, timeout_s: float) -> str:
    """The verdict on one guard: `fails`, as it must, or what is wrong."""
    if wrong := misfits(guard, clone):
        return f"does not fit: {'; '.join(wrong)}"
    path = clone / guard.file
    source = broken = path.read_text(encoding="utf-8")
    for old, new in zip(guard.old, guard.new, strict=True):
        broken = broken.replace(old, new)
    path.write_text(broken, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(clone), "PYTHONDONTWRITEBYTECODE": "1"}
    passed = []
    try:
        for test in guard.tests:
            done = subprocess.run(
                [*PYTEST, f"--timeout={timeout_s}", test],
                cwd=clone, env=environment, capture_output=True, text=True, check=False,
            )
            if done.returncode not in (0, 1):
                return f"cannot be run: {test}: {done.stdout[-300:]}"
            if done.returncode == 0:
                passed.append(test)
    finally:
        path.write_text(source, encoding="utf-8")
    return f"passes all the same: {', '.join(passed)}" if passed else "fails"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.guards.ledger", description=__doc__.splitlines()[0])
    parser.add_argument("--break", dest="breaking", action="store_true", help="make each mistake, and run its tests")
    parser.add_argument("--only", default="", help="guards of points, or with words, that begin so or hold this")
    parser.add_argument("--timeout-s", type=float, default=300.0, help="of one test")
    asked = parser.parse_args()
    everything = guards()
    if not asked.breaking:
        (ROOT / PAGE).write_text(page(everything), encoding="utf-8")
        return 0
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        for guard in everything:
            if guard.old and (guard.point.startswith(asked.only) or asked.only in guard.says):
                verdict = _broken(guard, clone, asked.timeout_s)
                wrong += verdict != "fails"
                sys.stdout.write(f"{guard.point}: {guard.says}\n  {verdict}\n")
                sys.stdout.flush()
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
