"""The files that the gates look at: those that git tracks or would track, never those that it ignores.

What always holds: paths are relative to the root, sorted, and exist (a deleted file that is not committed yet is left out).
"""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def repository_files(root: Path = ROOT, suffix: str = "") -> list[Path]:
    """Files below `root` whose name ends with `suffix`. Raises CalledProcessError outside a git checkout."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root, capture_output=True, check=True,
    ).stdout.decode()
    names = {name for name in listed.split("\0") if name and name.endswith(suffix)}
    return [Path(name) for name in sorted(names) if (root / name).is_file()]
