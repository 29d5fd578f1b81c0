"""The load of a demo ends by a signal, wherever that arrives."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from gateway.demo.demo import _load
from gateway.load import loading
from gateway.stopping import Stopped, stopping


def test_a_signal_inside_of_a_callback_ends_the_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def load(plan: Any) -> dict[str, Any]:
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(5.0):
            await asyncio.Event().wait()
        return {}

    monkeypatch.setattr(loading, "load", load)
    with stopping(), pytest.raises(Stopped):
        _load(tmp_path / "demo.json", as_json=True)
