"""One call of the command line, in this process."""

from __future__ import annotations

from collections.abc import Callable

from typer.testing import CliRunner, Result

from twinlog.cli.main import make_app

Run = Callable[..., Result]


def invoke(*arguments: str, typed: str | None = None) -> Result:
    result = CliRunner().invoke(make_app(), list(arguments), input=typed, catch_exceptions=False)
    assert "Traceback" not in result.output
    return result
