"""Paths that people write: `~` and `~user` stand for home folders.

What always holds: nothing else of the product expands them, so that a user whom the machine does not know is an error that
names the option or the key, and neither a folder called `~user` nor a traceback.
"""

from __future__ import annotations

import os
from pathlib import Path

from twinlog.errors import ConfigError, words


def expanded(path: str | Path, name: str) -> Path:
    """`path` with the home folder that it names. `name`: the option or the key that it was given as. Raises ConfigError."""
    try:
        return at_home(path)
    except ValueError as error:
        raise ConfigError(f"{name} {words(error)}") from error


def at_home(path: str | Path) -> Path:
    """As `expanded`, for who collects faults. Raises ValueError."""
    found = os.path.expanduser(path)
    if found.startswith("~"):
        home = found.partition("/")[0]
        raise ValueError(
            f"names the home folder {home}, which this machine does not know: write the whole path, or ./{found} for a file or "
            "folder that is called so"
        )
    return Path(found)
