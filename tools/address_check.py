"""The repository names no place that packages are fetched from, and no path of somebody's machine.

Whoever clones it installs from wherever their own tools are set up to install from. So: no index address, no lock file
that records download addresses, no home or checkout directory. The hosts below are put together from parts, so that this
file passes its own check.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.sources import ROOT, repository_files

_HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("npmjs", "com"), ("maven", "org"),
        ("maven", "apache", "org"), ("crates", "io"), ("rubygems", "org"), ("proxy", "golang", "org"), ("docker", "io"),
    )
]
_RULES = {
    "a package registry's host": re.compile(r"(?<![\w-])(?:[\w-]+\.)*(?:" + "|".join(map(re.escape, _HOSTS)) + r")(?![\w-])"),
    "an address that packages are fetched from": re.compile(
        r"index[-_]url\s*[=:\s]\s*[\"']?https?:|find[-_]links\s*[=:\s]\s*[\"']?https?:|https?://[^\s\"'<>]*/(?:simple|maven2?)/",
        re.IGNORECASE,
    ),
    "a path of a machine": re.compile(r"(?<![\w.}-])/(?:home|Users|root|work|workspace)/[\w.]"),
}
_FORBIDDEN_NAMES = {"uv.lock", "poetry.lock", "Pipfile.lock", "package-lock.json", "yarn.lock"}


def complaints(name: str, text: str, machine_paths: tuple[str, ...] = ()) -> Iterator[str]:
    """`file:line: what` for each breach in `text`; `machine_paths` are those of the machine that asks."""
    rules = dict(_RULES)
    for path in machine_paths:
        rules[f"this machine's {path}"] = re.compile(r"(?<![\w.-])" + re.escape(path) + r"(?![\w-])")
    for number, line in enumerate(text.splitlines(), start=1):
        for what, rule in rules.items():
            if rule.search(line):
                yield f"{name}:{number}: names {what}"


def _machine_paths(root: Path) -> tuple[str, ...]:
    """The checkout's and the home directory's paths, as far as they are long enough to mean something."""
    return tuple(str(path) for path in (root, Path.home()) if len(path.parts) > 2)


def main(root: Path = ROOT) -> int:
    found: list[str] = []
    for path in repository_files(root):
        if path.name in _FORBIDDEN_NAMES:
            found.append(f"{path}: a lock file that records download addresses")
            continue
        content = (root / path).read_bytes()
        if b"\0" not in content:
            found += complaints(str(path), content.decode("utf-8", errors="replace"), _machine_paths(root))
    for complaint in found:
        print(f"  {complaint}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
