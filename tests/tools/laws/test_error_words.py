"""A text that shows a foreign error bare is found; the house has none, and nothing that is shown is ever empty."""

from __future__ import annotations

import errno
import os

import pytest

from tools.laws import error_words
from twinlog.errors import reason, words

OWN = error_words.own_errors({"twinlog/errors.py": "class TwinlogError(Exception): ...\nclass NotFound(TwinlogError): ..."})
HANDLER = "try:\n    work()\nexcept {kind} as error:\n    {text}\n"
BARE = [
    'raise NotFound(f"it failed: {error}") from error', 'raise NotFound(f"it failed: {error!s}") from error',
    'raise NotFound("it failed: " + str(error)) from error', '_log.warning("it failed", error=error)',
    'log.error("it failed: %s", error)', 'say("it failed: %s" % error)', 'say("%s: %s" % (name, error))',
    'say("it failed: {}".format(error))', "print(error)", 'raise NotFound(f"it failed: {error.strerror}") from error',
    'say(f"it failed: {error.strerror or error}")', 'say(f"it failed: {error!r}")',
    'log.error("it failed", error=repr(error))',
    'say(f"{type(error).__name__}: it failed")', 'say(f"{error.__class__.__name__}: it failed")',
    'if late:\n        say(f"it failed: {error}")',
]
SOUND = [
    'raise NotFound(f"it failed: {words(error)}") from error', 'raise NotFound(f"it failed: {reason(error)}") from error',
    'raise NotFound(f"it failed: {named(error)}") from error',
    'log.error("it failed", exc_info=error)', "raise", "self.failed(error)",
    "say(f'{error.errno}')", "if error is late or error:\n        raise",
]


def found(text: str, kind: str = "OSError") -> list[str]:
    return list(error_words.breaches("a.py", HANDLER.format(kind=kind, text=text), OWN))


def test_the_house_keeps_the_law(capsys: pytest.CaptureFixture[str]) -> None:
    assert error_words.main() == 0, capsys.readouterr().out


@pytest.mark.parametrize("text", BARE)
@pytest.mark.parametrize("kind", ["OSError", "(NotFound, TimeoutError)", "httpx.HTTPError", "Exception"])
def test_a_foreign_error_that_is_shown_bare_is_found(text: str, kind: str) -> None:
    (breach,) = found(text, kind)
    line = 5 if "\n" in text else 4
    assert breach.startswith(f"a.py:{line}: shows error bare")


@pytest.mark.parametrize("text", SOUND)
def test_what_always_has_a_text_passes(text: str) -> None:
    assert found(text) == []


@pytest.mark.parametrize("kind", ["NotFound", "(NotFound, errors.TwinlogError)"])
@pytest.mark.parametrize("text", BARE)
def test_an_error_of_our_own_tree_passes(text: str, kind: str) -> None:
    assert found(text, kind) == []


def test_a_parameter_that_is_a_foreign_error_counts_too() -> None:
    source = 'def f(error: {}) -> str:\n    return f"it failed: {{error}}"\n'
    assert len(list(error_words.breaches("a.py", source.format("Exception | None"), OWN))) == 1
    assert len(list(error_words.breaches("a.py", source.format("NotFound"), OWN))) == 0
    assert len(list(error_words.breaches("a.py", source.format("str"), OWN))) == 0


@pytest.mark.parametrize(
    "error", [TimeoutError(), OSError(), KeyError(), OSError(errno.EIO, os.strerror(errno.EIO)), ValueError(" ")]
)
def test_no_text_of_an_error_is_empty(error: Exception) -> None:
    assert words(error).strip()
    if isinstance(error, OSError):
        assert reason(error).strip() not in ("", "None")
