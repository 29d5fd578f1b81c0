"""The Java that Spark will run on, looked for as Spark itself does, and whether it is new enough."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from twinlog.errors import ConfigError, words

JAVA_MIN = 17
_PACKAGE = f"openjdk-{JAVA_MIN}-jre-headless"
_INSTALL = f"install Java {JAVA_MIN} or newer (Debian, Ubuntu: {_PACKAGE}), or set JAVA_HOME to where it is"
_DEADLINE_S = 30.0


def java_program() -> Path:
    """The command `java` of JAVA_HOME, else of PATH. Raises ConfigError when there is none, or it is too old."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin") if home else None)
    if found is None:
        raise ConfigError(f"{f'JAVA_HOME is {home}, and holds no Java' if home else 'no Java was found'}: {_INSTALL}")
    try:
        said = subprocess.run([found, "-version"], capture_output=True, text=True, timeout=_DEADLINE_S, check=True).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError(f"{found} does not run: {words(error)}; {_INSTALL}") from error
    version = re.search(r'version "(?:1\.)?(\d+)', said)
    if version is not None and int(version[1]) < JAVA_MIN:
        raise ConfigError(f"{found} is Java {version[1]}, and Spark wants {JAVA_MIN} or newer: {_INSTALL}")
    return Path(found)
