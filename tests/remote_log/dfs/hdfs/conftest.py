"""A DataNode is recorded as every other program is."""

from __future__ import annotations

from tests.chaos.conftest import records_calls

__all__ = ["records_calls"]
