"""What an engine tells of what it has applied: the part of every engine that does not depend on its database.

What always holds: each answer is taken from one state, which is replaced as a whole; nothing here writes.
Source: storage/engine.py.
This module is pure.
"""

from __future__ import annotations

from typing import Protocol

from storage.engine import EngineState, EpochEntry
from twinlog.errors import EngineFailed


class Watermark(Protocol):
    @property
    def seq(self) -> int: ...
    @property
    def epoch(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def base(self) -> bytes | None:
        """The progress of an unfinished base."""


class Applied:
    """The properties of StorageEngine that a watermark answers."""

    _state: Watermark
    _durable_seq: int
    _failure: str | None

    @property
    def applied_seq(self) -> int:
        return self._state.seq

    @property
    def applied_epoch(self) -> int:
        return self._state.epoch

    @property
    def durable_seq(self) -> int:
        return self._durable_seq

    @property
    def last_timestamp(self) -> int:
        return self._state.timestamp

    @property
    def loading(self) -> bool:
        return self._state.base is not None

    @property
    def base_progress(self) -> bytes | None:
        return self._state.base

    @property
    def failure(self) -> str | None:
        return self._failure

    def _check_usable(self) -> None:
        """Raises EngineFailed after a write that failed."""
        if self._failure is not None:
            raise EngineFailed(f"the storage failed, and must be opened anew: {self._failure}")


class AppliedState(Applied):
    """The same of an engine that keeps an `EngineState`, with its tables and epochs."""

    _state: EngineState

    def schemas(self) -> dict[int, bytes]:
        return self._state.tables.schemas()

    def epochs(self) -> list[EpochEntry]:
        return list(self._state.epochs)

    def history_from(self, table: int, now_ms: int) -> int:
        state = self._state
        return state.tables.history_from(table, state.timestamp, now_ms)
