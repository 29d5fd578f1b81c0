"""The thread of a look at the register, wherever that is kept, while a run lasts.

What always holds: what ends it before its time is in `error`, and whoever stops it waits for its end.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod

from switchover.register.port import PairState


class Watching(ABC):
    def __init__(self) -> None:
        self.error = ""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="register-watch", daemon=True)

    @property
    @abstractmethod
    def value(self) -> PairState | None:
        """Returns the newest value that was seen."""

    @abstractmethod
    def _run(self) -> None:
        """Looks until `_ended` is set."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def active(self) -> str | None:
        return self.value.active if self.value is not None else None
