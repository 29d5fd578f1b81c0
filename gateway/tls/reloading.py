"""Contexts that follow their files: certificates, keys and CAs are read again when they change.

What always holds: open connections keep what they began with; where the new files do not make a context (half-written, a key
that does not fit yet, expired), the old context stays, and `problem` and the log say why until they do. Files are read in a
thread: a disk that hangs holds up no request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

import structlog

from twinlog.errors import ConfigError, words

LOOK_S = 1.0
log = structlog.get_logger("gateway.tls")
_T = TypeVar("_T")
_Stamp = tuple[int, int, int] | None  # None: there is no such file


class Following(Generic[_T]):
    """`current` is made of `files` by `make`, anew at each change. `on_new` is called with the keys of the files that changed,
    on the event loop. Raises ConfigError when the first cannot be made."""

    def __init__(
        self, section: str, files: Mapping[str, Path], make: Callable[[], _T],
        on_new: Callable[[set[str]], None] = lambda changed: None,
    ) -> None:
        self._section, self._files, self._make, self._on_new = section, files, make, on_new
        self._stamps = self._looked()
        self._made_of = self._stamps
        self.problem = ""
        self.current = make()

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            await self.look()

    async def look(self) -> None:
        """Makes a new context if a file has changed."""
        stamps = await asyncio.to_thread(self._looked)
        if stamps == self._stamps:
            return
        self._stamps = stamps
        try:
            made = await asyncio.to_thread(self._make)
        except ConfigError as error:
            self._keep(f"[{self._section}] {error.message}")
            return
        except (OSError, ValueError) as error:  # a file that changed between two looks at it
            self._keep(f"[{self._section}] {words(error)}")
            return
        changed = {key for key in stamps if stamps[key] != self._made_of[key]}
        self.current, self._made_of, self.problem = made, stamps, ""
        log.info("new TLS files are in use", section=self._section, changed=sorted(changed))
        self._on_new(changed)

    def _keep(self, problem: str) -> None:
        self.problem = problem
        log.error("the new TLS files cannot be used; the old ones stay in use", section=self._section, why=problem)

    def _looked(self) -> dict[str, _Stamp]:
        return {key: _stamp(path) for key, path in self._files.items()}


def _stamp(path: Path) -> _Stamp:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
