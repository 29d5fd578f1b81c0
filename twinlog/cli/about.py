"""`twinlog version`, and `twinlog --version`: what is installed."""

from __future__ import annotations

import typer

from twinlog.cli.verbs import SERVER
from twinlog.terminal import EXIT_CODES, JsonOption, out, print_json, verb

app = typer.Typer(rich_markup_mode="rich")


@app.command(epilog=EXIT_CODES)
@verb
def version(as_json: JsonOption = False) -> None:
    """The versions of this client and, where it is installed, of the server."""
    found = {name: text for name in ("twinlog", SERVER) if (text := _version(name))}
    if as_json:
        print_json({"version": found.get("twinlog", "unknown"), "distributions": found})
    else:
        out().print("   ".join(f"{name} {text}" for name, text in found.items()) or "twinlog, from a source tree")


def _version(distribution: str) -> str | None:
    import importlib.metadata

    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
