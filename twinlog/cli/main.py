"""The command `twinlog`: the verbs of this package, and those of the server where it is installed.

What always holds: a verb's module is imported when that verb is called, and no other's; every command has --help with an
example of what it is for, ends with a documented exit code, and shows errors without a traceback; a verb of the server says
which distribution has it, where that is not installed. Source: product.md section 4.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from twinlog.cli.verbs import SERVER, VERBS, Verb
from twinlog.errors import ConfigError
from twinlog.terminal import EXIT_CODES, Exit, endings, show_error

BEGIN = "Begin with [bold]twinlog demo[/]; then [bold]twinlog status --config DIR/demo.json[/]."


class _Verbs(TyperGroup):
    """Lists the verbs by the table, and imports the one that is called."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, verb in VERBS.items():
            if verb.distribution != SERVER or server_is_installed():
                self.add_command(TyperCommand(name, callback=None, help=verb.help, rich_help_panel=verb.panel))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        called = VERBS.get(args[0])
        if called is None:
            return super().resolve_command(ctx, args)
        if called.distribution == SERVER and not server_is_installed():
            problem = f"`twinlog {args[0]}` is a command of the server: install the distribution {SERVER}"
            show_error(ConfigError(problem), as_json="--json" in args)
            raise typer.Exit(Exit.USAGE)
        return args[0], command_of(args[0], called), args[1:]


def server_is_installed() -> bool:
    return importlib.util.find_spec("gateway") is not None


def command_of(name: str, verb: Verb) -> Any:
    """The command `name` itself. Imports its module."""
    made: typer.Typer = getattr(importlib.import_module(verb.module), verb.app)
    alone = [one for one in made.registered_commands if (one.name or getattr(one.callback, "__name__", "")) == name]
    around = typer.Typer(add_completion=False, rich_markup_mode="rich")
    if alone:
        around.registered_commands = alone
    else:
        around.add_typer(made, name=name)
    command: Any = typer.main.get_command(around)
    return command if alone else command.commands[name]


def make_app() -> typer.Typer:
    """The command with all verbs that are installed."""
    begin = f"\n\n{BEGIN}" if server_is_installed() else ""
    app = typer.Typer(
        name="twinlog", cls=_Verbs, no_args_is_help=True, rich_markup_mode="rich", pretty_exceptions_enable=False,
        help=f"Two sites, one log on both: what was acknowledged survives the loss of a site.{begin}", epilog=EXIT_CODES,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(root)
    return app


def _show_version(asked: bool) -> None:
    if asked:
        from twinlog.cli.about import version

        version()
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show what is installed, and end.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """The console script."""
    try:
        make_app()(prog_name="twinlog")
    except SystemExit as ended:
        for ending in endings:
            ending(ended.code if isinstance(ended.code, int) else int(ended.code is not None))
        raise
