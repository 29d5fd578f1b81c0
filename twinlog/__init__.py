"""The public package: what apps import. It needs nothing of the server.

    from twinlog import Client, errors

    with Client("twinlog://pair?a=http://127.0.0.1:8401&b=http://127.0.0.1:8402") as pair:
        pair.put("planes", "N14228", {"seats": 149})

What always holds: this package imports nothing of gateway, storage and the other rooms of the server, which import its errors.
The clients are imported when they are first named: what needs the errors alone (a Spark task) does not wait for httpx.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from twinlog import errors

if TYPE_CHECKING:
    from twinlog.async_client import AsyncClient
    from twinlog.calls import Ack, ReceiptOutcome, Row
    from twinlog.client import Client
    from twinlog.flow import Patience
else:
    _ROOMS = {
        "AsyncClient": "async_client", "Client": "client", "Patience": "flow", "Ack": "calls", "ReceiptOutcome": "calls",
        "Row": "calls",
    }

    def __getattr__(name):
        if name not in _ROOMS:
            raise AttributeError(f"module 'twinlog' has no attribute {name!r}")
        return getattr(importlib.import_module(f"twinlog.{_ROOMS[name]}"), name)


__all__ = ["Ack", "AsyncClient", "Client", "Patience", "ReceiptOutcome", "Row", "errors"]
