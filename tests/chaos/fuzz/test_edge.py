"""The HTTP edge takes a few hundred conversations of a fixed seed, plain, with a token, before and inside TLS."""

from __future__ import annotations

import pytest

from chaos.fuzz.groups.edge import answers, targets
from chaos.fuzz.running import run
from chaos.fuzz.target import Target


@pytest.mark.parametrize("target", targets(), ids=lambda target: target.name)
def test_nothing_but_answers_comes_of_any_bytes(target: Target) -> None:
    report = run(target, 250, seed=3)
    assert [finding.text() for finding in report.findings] == []
    assert report.read == report.inputs


def test_answers_are_told_apart() -> None:
    one = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
    two = b"HTTP/1.1 404 Not Found\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    assert answers(one + two + b"HTTP/1.1 100 Continue\r\n\r\n" + one) == [200, 404, 100, 200]
    with pytest.raises((AssertionError, ValueError)):
        answers(b"<html>")
