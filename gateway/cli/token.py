"""`twinlog token`: make, revoke and list the bearer tokens of a site, in the file that the site reads.

What always holds: a token is printed once, when it is made, and never again; the file has its SHA-256 alone. A running site
reads the file without a restart: a new token counts at once, and a revoked one ends within a second. Each site has a file of
its own: copy it, or name one file at both.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from gateway.access.token_file import changing, load_tokens, new_token
from gateway.access.tokens import with_token, without_token
from twinlog.errors import InvalidInput
from twinlog.terminal import EXIT_CODES, JsonOption, YesOption, confirm, notes, out, print_json, verb
from twinlog.wire.home_paths import expanded

app = typer.Typer(no_args_is_help=True, help="Make, revoke and list the tokens by which clients say who they are.")
_FileOption = Annotated[
    Path, typer.Option("--tokens", envvar="TWINLOG_TOKENS", metavar="FILE", help="The file that `[access] tokens` names.")
]
_NameArgument = Annotated[str, typer.Argument(help="Whose token it is.", show_default=False)]
_LIFE = re.compile(r"([1-9][0-9]{0,5})([mhd])")
_UNITS_S = {"m": 60, "h": 3600, "d": 86_400}


@app.command(epilog=EXIT_CODES)
@verb
def create(
    name: _NameArgument,
    grants: Annotated[list[str], typer.Argument(
        help="What it may do: reader:TABLE, writer:TABLE, admin:TABLE (PREFIX_* and * too), operator, auditor, metrics.",
        show_default=False,
    )],
    tokens: _FileOption = Path("tokens.json"),
    valid: Annotated[str, typer.Option("--valid", metavar="TIME", help="12h, 90d; left out: until it is revoked.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Make a token and print it, once: twinlog token create orders-app writer:orders reader:orders"""
    now = datetime.now(UTC)
    expires_at = now + _life(valid) if valid else None
    token, path = new_token(), expanded(tokens, "--tokens")
    with changing(path) as (found, store):
        store(with_token(found, name, token, grants, now, expires_at))
    ends = None if expires_at is None else expires_at.isoformat(timespec="seconds")
    if as_json:
        print_json({"name": name, "token": token, "expires_at": ends})
    else:
        notes().print(f"The token of {escape(name)}, {'valid until ' + ends if ends else 'valid until it is revoked'}. "
                      "It is not shown again: keep it in a file that its owner alone reads.")
        typer.echo(token)


@app.command(epilog=EXIT_CODES)
@verb
def revoke(
    name: _NameArgument, tokens: _FileOption = Path("tokens.json"), yes: YesOption = False, as_json: JsonOption = False
) -> None:
    """Revoke a token: a running site refuses it within a second."""
    confirm(f"Revoke the token of {name}?", yes)
    with changing(expanded(tokens, "--tokens")) as (found, store):
        store(without_token(found, name))
    if as_json:
        print_json({"revoked": name})
    else:
        out().print(f"revoked {escape(name)}")


@app.command("list", epilog=EXIT_CODES)
@verb
def list_tokens(tokens: _FileOption = Path("tokens.json"), as_json: JsonOption = False) -> None:
    """List the tokens by their names, and what each may do. None is shown."""
    found = load_tokens(expanded(tokens, "--tokens")).tokens
    if as_json:
        print_json({"tokens": [
            {"name": one.name, "grants": one.grants, "created_at": one.created_at, "expires_at": one.expires_at}
            for one in found
        ]})
        return
    if not found:
        out().print("There is no token yet: `twinlog token create NAME GRANT...` makes one.")
        return
    shown, now = Table(box=None, pad_edge=False, header_style="dim"), datetime.now(UTC)
    for title in ("name", "grants", "made (UTC)", "valid until"):
        shown.add_column(title, overflow="fold")
    for one in found:
        ends = "no end" if one.expires_at is None else _moment(one.expires_at)
        if one.expires_at is not None and one.expires_at <= now:
            ends += " (over)"
        shown.add_row(escape(one.name), escape(" ".join(one.grants)) or "nothing", _moment(one.created_at), ends)
    out().print(shown)


def _moment(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M")


def _life(text: str) -> timedelta:
    found = _LIFE.fullmatch(text)
    if found is None:
        raise InvalidInput(f"--valid is {text[:40]!r}: write a time such as 30m, 12h or 90d")
    return timedelta(seconds=int(found[1]) * _UNITS_S[found[2]])
