"""A gate that is shut cuts what runs through it, and nobody complains on the screen."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any

import pytest

from bench.gate import Gate
from tests.processes import wait_for


@pytest.mark.parametrize("explicitly", [True, False])
def test_a_gate_that_is_shut_cuts_its_connections_without_a_complaint(explicitly: bool) -> None:
    complaints: list[dict[str, Any]] = []
    with socket.create_server(("127.0.0.1", 0)) as target:
        with Gate(target.getsockname()[1]) as gate:
            gate._loop.set_exception_handler(lambda _, context: complaints.append(context))
            client = socket.create_connection(("127.0.0.1", gate.port))
            client.sendall(b"through")
            there, _ = target.accept()
            assert there.recv(7) == b"through"
            if explicitly:
                gate.shut()
                assert wait_for(lambda: not gate._running)
        for end in (client, there):
            end.settimeout(120)
            with end, suppress(ConnectionResetError):
                assert end.recv(1) == b""
    assert complaints == []
