"""`twinlog certs`: a CA and certificates for a pair, for those who have none of their own.

What always holds: a key is never shown, and no file is replaced without --replace.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from gateway.site.settings import PAIR_PATTERN, SITES
from gateway.tls.identity import site_uri
from gateway.tls.issuing import CA, CRL, Issued, Issuer
from twinlog.errors import InvalidInput
from twinlog.terminal import EXIT_CODES, JsonOption, out, print_json, verb

CA_DAYS, SITE_DAYS, CLIENT_DAYS = 3650, 365, 365
_CLIENT = "[A-Za-z0-9][A-Za-z0-9@._-]{0,62}"  # it names a file
app = typer.Typer(no_args_is_help=True, help="Make a CA and certificates for a pair: init, site, client, revoke.")
_FolderOption = Annotated[Path, typer.Option("--dir", metavar="DIR", help="The folder of the CA and of what it signs.")]
_ReplaceOption = Annotated[bool, typer.Option("--replace", help="Make a new one where one is there already.")]
_PairOption = Annotated[str, typer.Option("--pair", metavar="PAIR", help="The pair's name, as in the sites' files.")]


@app.command(epilog=EXIT_CODES)
@verb
def init(
    pair: _PairOption, folder: _FolderOption = Path("certs"),
    days: Annotated[int, typer.Option("--days", min=1, max=36_500, help="How long the CA is valid.")] = CA_DAYS,
    replace: _ReplaceOption = False, as_json: JsonOption = False,
) -> None:
    """Make the CA of a pair, and an empty list of revoked certificates. Keep its key away from the sites."""
    _check("--pair", pair, PAIR_PATTERN)
    _show(Issuer(folder, replace=replace).make_ca(pair, days), f"The CA of pair {pair}", as_json=as_json)


@app.command(epilog=EXIT_CODES)
@verb
def site(
    name: Annotated[str, typer.Argument(metavar="SITE", help="a or b.")], pair: _PairOption,
    hosts: Annotated[list[str], typer.Option(
        "--host", metavar="HOST", help="A name or address at which clients reach the site; may be given several times."
    )],
    folder: _FolderOption = Path("certs"),
    days: Annotated[int, typer.Option("--days", min=1, max=36_500, help="How long it is valid.")] = SITE_DAYS,
    replace: _ReplaceOption = False, as_json: JsonOption = False,
) -> None:
    """Make the certificate of a site: for its listeners, and for its calls to the other site."""
    _check("--pair", pair, PAIR_PATTERN)
    if name not in SITES:
        raise InvalidInput(f"{name!r} is no site: it is {' or '.join(SITES)}")
    issued = Issuer(folder, replace=replace).make_site(pair, name, hosts, days)
    _show(issued, f"The certificate of {site_uri(pair, name)}", as_json=as_json)


@app.command(epilog=EXIT_CODES)
@verb
def client(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Who the client is.")], folder: _FolderOption = Path("certs"),
    days: Annotated[int, typer.Option("--days", min=1, max=36_500, help="How long it is valid.")] = CLIENT_DAYS,
    replace: _ReplaceOption = False, as_json: JsonOption = False,
) -> None:
    """Make the certificate of a client: an identity where `http.tls` has a `client_ca`."""
    _check("NAME", name, _CLIENT)
    _show(Issuer(folder, replace=replace).make_client(name, days), f"The certificate of {name}", as_json=as_json)


@app.command(epilog=EXIT_CODES)
@verb
def revoke(
    certificate: Annotated[Path, typer.Argument(metavar="FILE", help="The certificate.")],
    folder: _FolderOption = Path("certs"), as_json: JsonOption = False,
) -> None:
    """Put a certificate on the list of revoked ones. Copy the list to both sites: they read it again by themselves."""
    path = Issuer(folder).revoke(certificate)
    if as_json:
        print_json({"crl": str(path), "revoked": str(certificate)})
        return
    out().print(f"{escape(str(certificate))} is revoked by {escape(str(path))}: copy this file, at both sites, to where "
                "`peer_http.crl` names it, for a site's certificate, or `http.tls.client_crl`, for a client's.")


def _check(what: str, text: str, pattern: str) -> None:
    if not re.fullmatch(pattern, text):
        raise InvalidInput(f"{what} {text!r} is no name: it must be like {pattern}")


def _show(issued: Issued, what: str, *, as_json: bool) -> None:
    if as_json:
        print_json({
            "certificate": str(issued.certificate), "key": str(issued.key), "not_after": f"{issued.ends:%Y-%m-%dT%H:%M:%SZ}"
        })
        return
    out().print(f"{what} is valid until {issued.ends:%Y-%m-%d %H:%M} UTC.")
    out().print(f"  certificate  {escape(str(issued.certificate))}")
    out().print(f"  key          {escape(str(issued.key))}   (only its user may read it)")
    if issued.certificate.name == CA:
        out().print(f"  revoked      {escape(str(issued.certificate.with_name(CRL)))}   (nobody yet)")
