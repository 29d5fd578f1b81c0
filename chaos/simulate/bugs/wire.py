"""Planted bugs of the HTTP protocol: only clients whose requests are bytes on a connection meet them."""

from __future__ import annotations

from chaos.simulate.bugs.bug import Bug
from chaos.simulate.draw import draw
from gateway.http.protocol import DoorProtocol

_on_header = DoorProtocol.on_header


def _on_header_but_conditions(self: DoorProtocol, name: bytes, value: bytes) -> None:
    if name.lower() != b"if-match":
        _on_header(self, name, value)


BUGS = (
    Bug(
        "condition-lost-in-the-head", "The HTTP protocol takes If-Match for no header: the write is made without a condition.",
        "P3", ("linearizable",), 28, 20, ((DoorProtocol, "on_header", _on_header_but_conditions),), drawn=draw,
    ),
)
