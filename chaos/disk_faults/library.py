"""Libraries that stand between a process and libc: a source in C, compiled once by this machine's C compiler.

What always holds: a library in the cache was made from exactly the source that stands here (its name has the digest of the
source and of next.h), and enters the cache whole or not at all.
Source: docs/decisions/2026-11-24-faults-of-files-inside-the-process.md.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from chaos.servers.hdfs_jars import cache_folder
from twinlog.errors import ConfigError

SOURCE = Path(__file__).with_name("interposed.c")
_HEADER = SOURCE.with_name("next.h")
BUILD_DEADLINE_S = 120.0
_OPTIONS = ("-std=c11", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror")
_INSTALL = "install one (Debian, Ubuntu: apt-get install gcc libc6-dev), and have `gcc` on the PATH"


def library(source: Path = SOURCE) -> Path:
    """As `compiled`: a library that knows of files."""
    return compiled(source, f"disk-faults-{source.stem}")


def compiled(source: Path, name: str) -> Path:
    """Returns the path of the library `name`; it is built unless it is there. Raises ConfigError that says what to install."""
    if sys.platform != "linux":
        raise ConfigError(f"{name} needs Linux, whose loader takes LD_PRELOAD; this is {sys.platform}")
    digest = hashlib.sha256(source.read_bytes() + _HEADER.read_bytes()).hexdigest()
    target = cache_folder() / f"{name}-{digest[:16]}.so"
    if target.exists():
        return target
    compiler = shutil.which("gcc")
    if compiler is None:
        raise ConfigError(f"{name} needs a C compiler, and there is no `gcc`: {_INSTALL}")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{name}-") as folder:
        made = Path(folder) / "made.so"
        command = [compiler, *_OPTIONS, "-o", str(made), str(source), "-ldl"]
        try:
            built = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_DEADLINE_S, check=False)
        except subprocess.TimeoutExpired:
            raise ConfigError(f"{compiler} did not compile {source.name} within {BUILD_DEADLINE_S:.0f} s") from None
        if built.returncode:
            told = built.stderr.strip()[-800:]
            raise ConfigError(f"{compiler} does not compile {source.name} (needs glibc's headers, libc6-dev): {told}")
        made.replace(target)
    return target
