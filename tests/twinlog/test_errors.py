"""The error tree's own helper: no text of an error is empty."""

from __future__ import annotations

import asyncio

import pytest

from twinlog.errors import words


@pytest.mark.parametrize(("error", "said"), [
    (TimeoutError(), "no answer in time"), (asyncio.CancelledError(), "CancelledError"), (OSError("\n"), "OSError"),
    (ValueError("no number"), "no number"),
])
def test_an_error_without_words_is_named_by_its_type(error: BaseException, said: str) -> None:
    assert words(error) == said
