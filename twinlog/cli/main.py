"""The command `twinlog`: the verbs of this package, and those of the server where it is installed.

What always holds: a verb's module is imported when that verb is called, and no other's; the server's verbs join by an entry
point (verbs.py); every command has --help with an example of what it is for, ends with a documented exit code, and shows errors
without a traceback; without the server, an unknown verb says which distribution has the others. Source: product.md section 4.
"""

from __future__ import annotations

import importlib
import os
import signal
from functools import cache
from importlib.util import find_spec
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from twinlog.cli.verbs import GROUP, SERVER, VERBS, Verb
from twinlog.errors import ConfigError
from twinlog.terminal import EXIT_CODES, OWNER_ONLY, Exit, endings, show_error

BEGIN = "Begin with [bold]twinlog demo[/]; then [bold]twinlog status --config DIR/demo.json[/]."


class _Verbs(TyperGroup):
    """Lists the verbs by the tables, and imports the one that is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        for name, verb in all_verbs().items():
            self.add_command(TyperCommand(name, callback=None, help=verb.help, rich_help_panel=verb.panel))
        return super().list_commands(ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        called = find_verb(args[0])
        if called is not None:
            if args[0] not in VERBS:
                signal.signal(signal.SIGHUP, signal.SIG_IGN)  # what runs a site, or changes a role, outlives its terminal
            return args[0], command_of(args[0], called), args[1:]
        if not args[0].startswith("-") and not added_verbs() and not ctx.resilient_parsing:  # at a Tab nothing is said
            problem = f"`twinlog {args[0]}` is no command of the client; the server's come with the distribution {SERVER}"
            show_error(ConfigError(problem), as_json="--json" in args)
            raise typer.Exit(Exit.USAGE)
        self.list_commands(ctx)  # for what the name is close to
        return super().resolve_command(ctx, args)


def find_verb(name: str) -> Verb | None:
    """The verb of this name. What other distributions add is looked up only for a name that is none of the client's."""
    return VERBS.get(name) or added_verbs().get(name)


def all_verbs() -> dict[str, Verb]:
    """Every verb that is installed. A name of the client's own is never another distribution's."""
    return {**VERBS, **{name: verb for name, verb in added_verbs().items() if name not in VERBS}}


@cache
def added_verbs() -> dict[str, Verb]:
    """The verbs of other distributions, by their entry points."""
    from importlib.metadata import entry_points  # costs a tenth of a whole `twinlog status`

    found: dict[str, Verb] = {}
    for point in sorted(entry_points(group=GROUP)):
        found.update(point.load())
    return found


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
    begin = f"\n\n{BEGIN}" if find_spec("gateway") else ""
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
    """The console script; and, when a shell asks for it, what may be typed next."""
    if os.environ.get("_TWINLOG_COMPLETE") == "complete_bash":
        from twinlog.cli.completion import join_words

        join_words(os.environ)
    os.umask(OWNER_ONLY)
    try:
        make_app()(prog_name="twinlog")
    except SystemExit as ended:
        for ending in endings:
            ending(ended.code if isinstance(ended.code, int) else int(ended.code is not None))
        raise
