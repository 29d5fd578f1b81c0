"""The command `twinlog`: the verbs of this package, and those that other distributions add by an entry point.

An entry point of the group `twinlog.commands` is a function that adds its verbs to the command that it is given. It returns
what is to be called with the exit code at the very end of the process, or None.

What always holds: every command has --help with an example of what it is for, ends with a documented exit code, and shows
errors without a traceback; a verb of the server says which distribution has it, where that is not installed.
Source: product.md section 4.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperGroup

from twinlog.cli import data, status
from twinlog.errors import ConfigError
from twinlog.terminal import EXIT_CODES, Exit, JsonOption, out, print_json, show_error, verb

GROUP = "twinlog.commands"
SERVER = "twinlog-server"
SERVER_VERBS = frozenset({
    "abort", "advise", "audit", "config", "degrade", "demo", "failover", "history", "load", "log", "monitor", "rejoin",
    "resume", "resync", "serve", "switchover", "validate",
})
Ending = Callable[[int], None]


class _Verbs(TyperGroup):
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] in SERVER_VERBS and args[0] not in self.commands:
            problem = f"`twinlog {args[0]}` is a command of the server: install the distribution {SERVER}"
            show_error(ConfigError(problem), as_json="--json" in args)
            raise typer.Exit(Exit.USAGE)
        return super().resolve_command(ctx, args)


def make_app() -> tuple[typer.Typer, list[Ending]]:
    """The command with all verbs that are installed, and what its end must call."""
    app = typer.Typer(
        name="twinlog", cls=_Verbs, no_args_is_help=True, rich_markup_mode="rich", pretty_exceptions_enable=False,
        help="Two sites, one log on both: what was acknowledged survives the loss of a site.", epilog=EXIT_CODES,
    )
    app.command(rich_help_panel="Run")(version)
    app.add_typer(status.app)
    app.add_typer(data.app)
    joins = [entry.load() for entry in sorted(importlib.metadata.entry_points(group=GROUP))]
    return app, [ending for join in joins if (ending := join(app)) is not None]


@verb
def version(as_json: JsonOption = False) -> None:
    """The versions of this client and, where it is installed, of the server."""
    found = {name: text for name in ("twinlog", SERVER) if (text := _version(name))}
    if as_json:
        print_json({"version": found.get("twinlog", "unknown"), "distributions": found})
    else:
        out().print("   ".join(f"{name} {text}" for name, text in found.items()) or "twinlog, from a source tree")


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def main() -> None:
    """The console script."""
    app, endings = make_app()
    try:
        app(prog_name="twinlog")
    except SystemExit as ended:
        for ending in endings:
            ending(ended.code if isinstance(ended.code, int) else int(ended.code is not None))
        raise
