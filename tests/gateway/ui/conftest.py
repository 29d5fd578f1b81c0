"""Pages of tests wait for the first look at both sites for as long as a busy machine may need."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.ui.watch.FIRST_S", 20.0)
