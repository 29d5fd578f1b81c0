"""No command of data reaches a terminal, whatever way it came."""

from __future__ import annotations

import errno
import io
import json

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from twinlog.cli.console import SafeConsole
from twinlog.cli.terminal_text import REPLACEMENT, plain, plain_json
from twinlog.errors import TwinlogError
from twinlog.terminal import print_json, print_json_line, show_error, verb

ATTACK = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\r\u202e:warning:"


def is_command(text: str) -> bool:
    return any((ord(one) < 0x20 and one not in "\n\t") or 0x7F <= ord(one) <= 0x9F or one in "\u202e\u2066" for one in text)


def test_no_way_of_printing_lets_a_command_through() -> None:
    file = io.StringIO()
    console = SafeConsole(file=file, width=100)
    table = Table(ATTACK)
    table.add_row(ATTACK)
    for what in (ATTACK, escape(ATTACK), Text(ATTACK), Text.from_markup(escape(ATTACK), emoji=False), table):
        console.print(what)
    assert not is_command(file.getvalue())
    assert file.getvalue().count("owned") == 6
    assert file.getvalue().count(":warning:") == 6, "a name in colons is data too"


def test_a_terminal_still_gets_its_colours() -> None:
    file = io.StringIO()
    SafeConsole(file=file, force_terminal=True, color_system="standard").print("[red]x[/]\x1b[2J")
    assert file.getvalue() == f"\x1b[31mx\x1b[0m{REPLACEMENT}[2J\n"


def test_errors_and_json_hold_no_command(capsys: pytest.CaptureFixture[str]) -> None:
    faults = [{"key": ATTACK, "problem": ATTACK, "allowed": ATTACK, "file": ATTACK}]
    show_error(TwinlogError(ATTACK, faults=faults), as_json=False)
    print_json({ATTACK: ATTACK})
    print_json_line([ATTACK])
    found = capsys.readouterr()
    assert not is_command(found.out + found.err)
    *first, last = found.out.splitlines()
    assert json.loads("\n".join(first)) == {ATTACK: ATTACK}
    assert json.loads(last) == [ATTACK]


@given(st.text())
def test_json_says_the_same_without_them(text: str) -> None:
    shown = plain_json(json.dumps(text, ensure_ascii=False))
    assert json.loads(shown) == text
    assert not is_command(shown)
    assert len(plain(text)) == len(text)
    assert not is_command(plain(text))


@pytest.mark.parametrize(("error", "said"), [
    (MemoryError(), "this process gets no more memory"),
    (OSError(errno.EAGAIN, "this process cannot start another thread"), "this process cannot start another thread"),
    (KeyError("x"), "This is a defect of twinlog"),
])
def test_want_of_memory_is_no_defect(capsys: pytest.CaptureFixture[str], error: Exception, said: str) -> None:
    @verb
    def command() -> None:
        raise error

    with pytest.raises(typer.Exit) as ended:
        command()
    shown = " ".join(capsys.readouterr().err.split())
    assert said in shown
    assert ("defect" in shown) == isinstance(error, KeyError)
    assert ended.value.exit_code == 1
