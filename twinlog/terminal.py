"""Parts of every command: output for people or for programs, errors that say what to do next, exit codes.

What always holds: with --json standard output carries exactly one JSON document, an error included; an error of the tree
prints no traceback; the exit codes are the table of `Exit`, which the help text shows. Source: product.md section 4.
"""

from __future__ import annotations

import functools
import json
import os
import traceback
from collections.abc import Callable
from enum import IntEnum
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar

import typer

from twinlog.cli.terminal_text import plain, plain_json
from twinlog.errors import ConfigError, InvalidInput, OutcomeUnknown, PeerError, TwinlogError, Unavailable, named, words

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

NO_MEMORY = "this process gets no more memory: raise its limit (ulimit -d, MemoryMax), or give the machine more"
_P = ParamSpec("_P")
_Answer = TypeVar("_Answer")
endings: list[Callable[[int], None]] = []  # what the process calls at its very end, with its exit code

OWNER_ONLY = 0o077  # the umask of every command: what one writes may hold rows
EXIT_CODES = "Exit codes: 0 done, 1 failed or refused, 2 wrong usage or configuration, 3 outcome unknown or still running, " \
    "4 no site could be reached, 5 a gateway ended itself: start it again, 130 stopped."


class Exit(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    UNKNOWN = 3
    UNREACHABLE = 4
    FAIL_STOP = 5
    STOPPED = 130


ConfigOption = Annotated[
    str, typer.Option(
        "--config", envvar="TWINLOG_CONFIG", show_default=False, metavar="PAIR",
        help="The pair: an operator's configuration (TOML), a demo.json, http://A,http://B, or a twinlog:// address.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Run every check, show the plan, change nothing.")]


PIPE_WIDTH = 10_000  # nobody's window: what goes into a file or a pipe is not wrapped


def out() -> Console:
    """Standard output. Made anew each time, so that it follows a redirected stream."""
    return _console(stderr=False)


def notes() -> Console:
    """Standard error: progress, questions, remarks."""
    return _console(stderr=True)


def progress_bar(*columns: ProgressColumn, per_second: float = 10, transient: bool = False) -> Progress:
    """Returns a bar for a long command, on standard error, on a terminal alone. `per_second`: how often it is drawn at most;
    `transient`: it leaves nothing behind."""
    from rich.progress import Progress

    console = notes()
    return Progress(
        *columns, console=console, disable=not console.is_terminal, refresh_per_second=per_second, transient=transient
    )


def _console(*, stderr: bool) -> Console:
    from twinlog.cli.console import SafeConsole

    console = SafeConsole(stderr=stderr, soft_wrap=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = PIPE_WIDTH
    return console


def print_json(document: Any) -> None:
    typer.echo(plain_json(json.dumps(document, indent=2, ensure_ascii=False, default=_builtins)))


def print_json_line(document: Any) -> None:
    """One of many documents, each in a line of its own."""
    typer.echo(plain_json(json.dumps(document, separators=(",", ":"), ensure_ascii=False, default=_builtins)))


def _builtins(value: Any) -> Any:
    import msgspec

    return msgspec.to_builtins(value, enc_hook=str)


def confirm(question: str, yes: bool) -> None:
    """Asks on standard error. Raises typer.Exit when the answer is no, or when none comes."""
    if not yes and not _answer(lambda: typer.confirm(plain(question), err=True), "--yes"):
        notes().print("Nothing was changed.")
        raise typer.Exit(Exit.FAILED)


def typed(question: str, option: str) -> str:
    """Asks on standard error for a text; `option` gives it in advance. Raises typer.Exit when no answer comes."""
    return _answer(lambda: str(typer.prompt(plain(question), err=True)), option)


def _answer(ask: Callable[[], _Answer], option: str) -> _Answer:
    try:
        return ask()
    except typer.Abort:  # Ctrl-C, or an input that ended: a script has nobody who answers
        notes().print(f"\nNothing was changed: nobody answered. {option} answers in advance.")
        raise typer.Exit(Exit.FAILED) from None


def verb(function: Callable[_P, None]) -> Callable[_P, None]:
    """A command: errors are shown for people or, when its `as_json` is set, for programs, and become exit codes."""

    @functools.wraps(function)
    def command(*args: _P.args, **kwargs: _P.kwargs) -> None:
        try:
            function(*args, **kwargs)
        except TwinlogError as error:
            show_error(error, as_json=bool(kwargs.get("as_json")))
            raise typer.Exit(exit_code(error)) from None
        except KeyboardInterrupt:
            notes().print("\nStopped.")
            raise typer.Exit(Exit.STOPPED) from None
        except (typer.Exit, typer.BadParameter):
            raise
        except BrokenPipeError:
            raise typer.Exit(Exit.FAILED) from None
        except (MemoryError, BlockingIOError) as error:  # the machine gives no memory, or no thread: no defect of ours
            show_error(Unavailable(NO_MEMORY if isinstance(error, MemoryError) else words(error)),
                       as_json=bool(kwargs.get("as_json")))
            raise typer.Exit(Exit.FAILED) from None
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{frame.filename.rpartition('/')[2]}:{frame.lineno}"
            show_error(
                TwinlogError(
                    f"{named(error)} ({where}). This is a defect of twinlog: please report it"
                ),
                as_json=bool(kwargs.get("as_json")),
            )
            raise typer.Exit(Exit.FAILED) from None

    return command


def exit_code(error: TwinlogError) -> Exit:
    """An error with a `status` is a site's answer; an InvalidInput without one is a wrong command line."""
    if isinstance(error, ConfigError) or (isinstance(error, InvalidInput) and "status" not in error.fields):
        return Exit.USAGE
    if isinstance(error, OutcomeUnknown):
        return Exit.UNKNOWN
    if isinstance(error, PeerError | Unavailable) and "status" not in error.fields:
        return Exit.UNREACHABLE
    return Exit.FAILED


def show_error(error: TwinlogError, *, as_json: bool) -> None:
    if as_json:
        print_json({"error": {**error.fields, "code": error.code, "message": error.message}})
        return
    from rich.markup import escape

    console = notes()
    console.print(f"[bold red]{error.code}[/]: {escape(error.message)}")
    faults = error.fields.get("faults")
    for fault in faults if isinstance(faults, list) else ():
        name = fault.get('key') or fault.get('where') or fault['file']
        console.print(f"  [bold]{escape(name)}[/] {escape(fault['problem'])}")
        if "allowed" in fault:
            console.print(f"      allowed: {escape(fault['allowed'])}   [dim]({escape(fault['file'])})[/]")
