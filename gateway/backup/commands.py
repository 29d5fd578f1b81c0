"""`twinlog backup` and `twinlog restore`: a running pair into a folder, and a new pair out of one."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.markup import escape

from gateway.backup.screens import GOES, document_of, size_of, table_of, unfinished_text
from gateway.backup.terminal_progress import TerminalProgress
from gateway.config.loading import load_site_config
from gateway.config.reading import Reader
from gateway.stopping import Stopped, run_until_stopped
from remote_log.dfs.hdfs.jvm import end_process
from remote_log.dfs.opening import DfsSettings
from storage.backup.manifest import NEWEST, Manifest, WantedMoment, newest_of_each_base
from storage.backup.pruning import Choice, Unfinished, by_age, by_count
from storage.log.encryption import Keyring
from twinlog.cli.status import figure, size
from twinlog.errors import InvalidInput, words
from twinlog.sites import Sites
from twinlog.terminal import (
    EXIT_CODES,
    ConfigOption,
    DryRunOption,
    Exit,
    JsonOption,
    YesOption,
    confirm,
    endings,
    notes,
    out,
    print_json,
    verb,
)

_PRUNE_AGAIN = "run the prune again, and it finishes"
_T = TypeVar("_T")
app = typer.Typer(help="Back a running pair up into a folder: all rows once, then the log. Needs auditor and reader:*.")
restore_app = typer.Typer()
endings.append(end_process)  # a process in which Java runs ends at once when its work is done
_LAYS = "a directory, or hdfs://NAMENODE:PORT/FOLDER."
_Place = Annotated[str, typer.Argument(metavar="PLACE", help=f"The backup: {_LAYS}", show_default=False)]
_Keys = Annotated[list[str] | None, typer.Option(
    "--key", metavar="ID=REF", show_default=False,
    help="A key of the backup, ID=file:PATH or ID=env:NAME. May be repeated: the first one writes, all of them read.",
)]
_Hadoop = Annotated[Path | None, typer.Option(
    "--hadoop", metavar="FILE", help="A site's TOML: for hdfs://, Hadoop's settings are those of its \\[dfs.own].",
)]


@app.callback(invoke_without_command=True, epilog=EXIT_CODES)
@verb
def backup(
    context: typer.Context, config: ConfigOption = "",
    to: Annotated[str, typer.Option("--to", metavar="PLACE", help=f"Where it goes: {_LAYS}")] = "",
    new_base: Annotated[bool, typer.Option("--new-base", help="Read all rows again, and not only the log since.")] = False,
    in_the_clear: Annotated[bool, typer.Option(
        "--in-the-clear", help="Of a pair that encrypts its logs: write the backup without encryption.",
    )] = False,
    key: _Keys = None, hadoop: _Hadoop = None, as_json: JsonOption = False,
) -> None:
    """Back a running pair up into a folder: all rows once, then the log. Needs auditor and reader:*."""
    if context.invoked_subcommand is not None:
        return
    if not to:
        raise InvalidInput("name the place: twinlog backup --to DIR, or --to hdfs://NAMENODE:PORT/FOLDER")
    from gateway.backup.taking import BackupTaker, Taken
    from gateway.backup.target import opened

    keys = keyring(key or (), "twinlog backup")

    async def work(sites: Sites) -> Taken:
        async with opened(to, _hadoop_settings(hadoop), makes=True, keys=keys) as target:
            with TerminalProgress(lines=not as_json) as progress:
                return await BackupTaker(sites, target, progress, in_the_clear=in_the_clear).take(new_base=new_base)

    with closing(Sites(config)) as sites:
        taken = _until_stopped(work(sites), lambda: "what the place held before is whole; run the backup again")
    if as_json:
        print_json({**document_of(taken.manifest), "is_new_base": taken.is_new_base, "added_log_bytes": taken.log_bytes})
        return
    manifest, end = taken.manifest, taken.manifest.end
    if taken.is_new_base:
        out().print(f"All rows of pair {manifest.pair} are in: {figure(manifest.base.rows, 'rows')}.")
    out().print(
        f"[green]The backup leads to sequence {end.seq:,}[/], at {end.at}; {size(taken.log_bytes)} of log came in."
    )


@app.command("ls", epilog=EXIT_CODES)
@verb
def list_backup(place: _Place, hadoop: _Hadoop = None, as_json: JsonOption = False) -> None:
    """The moments that a backup can restore: each base, and how far its log leads."""
    manifests, unfinished = asyncio.run(_looked(place, hadoop))
    chains = newest_of_each_base(manifests)
    if as_json:
        print_json({"place": place, "bases": [document_of(each) for each in chains], "unfinished": unfinished})
        return
    out().print(table_of({"": chains}))
    if unfinished:
        out().print(escape(unfinished_text(unfinished, place)), soft_wrap=True)


@app.command("prune", epilog=EXIT_CODES)
@verb
def prune_backup(
    place: _Place,
    keep: Annotated[int, typer.Option(
        "--keep", metavar="N", help="So many of the newest bases stay, with their log.", show_default=False,
    )] = 0,
    older_than: Annotated[str, typer.Option(
        "--older-than", metavar="AGE", help="Such as 30d or 12h: every younger moment can be restored as before.",
    )] = "",
    unfinished: Annotated[bool, typer.Option(
        "--unfinished", help="What backups left that did not end. One that runs now loses its base.",
    )] = False,
    dry_run: DryRunOption = False, yes: YesOption = False, hadoop: _Hadoop = None, as_json: JsonOption = False,
) -> None:
    """Remove old bases with the log behind them. It shows first what goes; the newest base always stays."""
    if unfinished and not keep and not older_than:
        _prune_unfinished(place, hadoop, dry_run=dry_run, yes=yes, as_json=as_json)
        return
    choose = _choice(keep, older_than, unfinished=unfinished)
    choice = choose(asyncio.run(_looked(place, hadoop))[0])
    if not as_json:
        out().print(table_of({GOES: choice.go, "stays": choice.stay}))
        out().print(f"{figure(len(choice.go), 'bases')} would go, each with its log: {size(size_of(choice.go))}.")
    if not dry_run:
        if choice.go:
            confirm("Their moments can never be restored again. Remove them?", yes)
        _until_stopped(_pruned(place, hadoop, choose), lambda: f"what is left is whole; {_PRUNE_AGAIN}")
    if as_json:
        print_json({
            "place": place, "go": [document_of(one) for one in choice.go], "stay": [document_of(one) for one in choice.stay],
            "is_done": not dry_run,
        })
    elif not dry_run:
        out().print(f"[green]Removed[/]: {figure(len(choice.go), 'bases')}.")


def _prune_unfinished(place: str, hadoop: Path | None, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    async def work() -> int:
        async with opened(place, _hadoop_settings(hadoop)) as target:
            return await remove_unfinished(target, found)

    from gateway.backup.pruning import remove_unfinished
    from gateway.backup.target import opened

    found, removed = asyncio.run(_unfinished(place, hadoop)), 0
    if not as_json:
        out().print(f"{figure(len(found), 'unfinished bases')}: {size(sum(one.size_bytes for one in found))}.")
    if found and not dry_run:
        confirm("A backup to this place that runs now would lose its base. Remove them?", yes)
        removed = _until_stopped(work(), lambda: _PRUNE_AGAIN)
    if as_json:
        print_json({"place": place, "unfinished": found, "removed": removed})
    elif not dry_run:
        out().print(f"[green]Removed[/]: {figure(removed, 'unfinished bases')}.")


@app.command("release", epilog=EXIT_CODES)
@verb
def release_backup(
    place: _Place, config: ConfigOption = "", hadoop: _Hadoop = None, as_json: JsonOption = False
) -> None:
    """Give a backup up: both sites keep no log for it any more, and no alert asks for it. Its files stay."""
    newest = asyncio.run(_looked(place, hadoop))[0][-1]
    target = newest.target
    with closing(Sites(config)) as sites:
        for site in sites.urls:
            sites.ask(site, "DELETE", f"/v1/backups/{target}?pair={newest.identity}")
            if not as_json:
                out().print(f"Site {site} keeps no log for {escape(place)} any more.", soft_wrap=True)
    if as_json:
        print_json({"place": place, "target": target})
    else:
        out().print("Its files stay. Its next call registers it again, and may need a new base.")


@app.command(epilog="Exit codes: 0 sound, 1 damaged or missing, 2 wrong usage or configuration.")
@verb
def verify(place: _Place, key: _Keys = None, hadoop: _Hadoop = None, as_json: JsonOption = False) -> None:
    """Read every file that a backup needs, and name each one that is damaged or missing."""
    from gateway.backup.target import opened
    from gateway.backup.verifying import verify as verify_all

    keys = keyring(key or (), "twinlog backup verify")

    async def work() -> tuple[int, list[str]]:
        async with opened(place, _hadoop_settings(hadoop), keys=keys) as target:
            with TerminalProgress(lines=not as_json) as progress:
                return await verify_all(target, progress)

    files, faults = _until_stopped(work(), lambda: "not all files were read, so nothing is known of the place")
    if as_json:
        print_json({"files": files, "faults": faults})
    else:
        for fault in faults:
            out().print(f"[bold red]damaged[/]: {escape(fault)}", soft_wrap=True)
        said = f"[bold red]{figure(len(faults), 'faults')}[/]" if faults else "[green]sound[/]"
        out().print(f"{said}: {figure(files, 'files')}")
    if faults:
        raise typer.Exit(Exit.FAILED)


@restore_app.command(epilog=EXIT_CODES)
@verb
def restore(
    config: Annotated[Path, typer.Option("--config", metavar="FILE", help="The TOML of the new pair's first active.")],
    source: Annotated[str, typer.Option("--from", metavar="PLACE", help=f"The backup: {_LAYS}")],
    at: Annotated[str, typer.Option(
        "--at", metavar="MOMENT", help="A sequence, or a time such as 2026-11-28T03:00Z. Left out: the newest.",
    )] = "",
    key: _Keys = None, as_json: JsonOption = False,
) -> None:
    """Make a new pair from a backup: its first active gets the rows of one moment. Refuses all that is not empty."""
    from gateway.backup.restoring import Restored, Restorer
    from gateway.backup.target import opened

    site, moment, keys = load_site_config(config), parse_moment(at), keyring(key or (), "twinlog restore")
    begun: list[Restorer] = []

    async def work() -> Restored:
        async with opened(source, site.dfs.own, keys=keys) as target:
            with TerminalProgress(lines=not as_json) as progress:
                begun.append(Restorer(target, site, progress))
                return await begun[0].restore(moment)

    def left() -> str:
        if begun and begun[0].is_whole:
            return "all is restored already; start both sites"
        return "no gateway serves what is half restored; run the restore again, and it begins anew"

    restored = _until_stopped(work(), left)
    manifest, point = restored.manifest, restored.point
    if as_json:
        print_json({
            "pair": site.pair, "site": site.site, "data_dir": str(site.data_dir), "from_pair": manifest.pair,
            "from_identity": manifest.identity, "seq": point.seq, "epoch": point.epoch, "at": point.at,
            "base_rows": restored.rows, "log_frames": restored.frames,
        })
        return
    out().print(
        f"[green]Restored[/] to sequence {point.seq:,}, at {point.at}: {figure(restored.rows, 'rows')} of the base,"
        f" and {figure(restored.frames, 'frames')} of the log."
    )
    out().print(
        f"Start both sites of pair {escape(site.pair)}: site {site.site} opens it with a new identity, and site"
        f" {site.peer.site} is filled from there."
    )


def _until_stopped(work: Coroutine[Any, Any, _T], left: Callable[[], str]) -> _T:
    """`left`: what a stop leaves, and what to do then."""
    try:
        return run_until_stopped(work)
    except Stopped:
        notes().print(f"\nStopped: {left()}.")
        raise typer.Exit(Exit.STOPPED) from None


def parse_moment(text: str) -> WantedMoment:
    """Raises InvalidInput."""
    if not text:
        return NEWEST
    figures = text.replace(",", "")  # as `backup ls` shows it
    if figures.isdecimal():
        return WantedMoment(seq=int(figures))
    try:
        when = datetime.fromisoformat(text)
        return WantedMoment(wall_ms=int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000))
    except (ValueError, OverflowError) as error:
        raise InvalidInput(f"--at is {text[:40]!r}: write a sequence, or a time such as 2026-11-28T03:00:00Z") from error


def _choice(keep: int, older_than: str, *, unfinished: bool) -> Callable[[list[Manifest]], Choice]:
    """Chooses what goes. Raises InvalidInput."""
    if unfinished or bool(keep) == bool(older_than):
        raise InvalidInput("say what goes: either --keep N, or --older-than 30d, or --unfinished")
    if keep:
        return lambda manifests: by_count(manifests, keep)
    found = re.fullmatch(r"(\d{1,5})([dh])", older_than)
    if found is None:
        raise InvalidInput(f"--older-than is {older_than[:40]!r}: write days or hours, such as 30d or 12h")
    since_ms = time.time_ns() // 1_000_000 - int(found[1]) * {"d": 86_400_000, "h": 3_600_000}[found[2]]
    return lambda manifests: by_age(manifests, since_ms)


async def _pruned(place: str, hadoop: Path | None, choose: Callable[[list[Manifest]], Choice]) -> None:
    from gateway.backup.pruning import prune
    from gateway.backup.target import opened

    async with opened(place, _hadoop_settings(hadoop)) as target:
        await prune(target, choose(await target.held()))


def keyring(references: Sequence[str], command: str) -> Keyring:
    """The keys of --key. `command`: that was given them, for messages. Raises InvalidInput."""
    try:
        keys = Reader(Path("--key"), os.environ).keys(list(references))
        return Keyring("--key", keys, secrets.token_bytes, f"add `--key {{key}}` to the end of `{command} ...`")
    except ValueError as error:
        raise InvalidInput(f"--key {words(error)}: write ID=file:PATH or ID=env:NAME") from error


def _hadoop_settings(site: Path | None) -> DfsSettings:
    return DfsSettings() if site is None else load_site_config(site).dfs.own


async def _looked(place: str, hadoop: Path | None) -> tuple[list[Manifest], list[Unfinished]]:
    from gateway.backup.target import opened

    async with opened(place, _hadoop_settings(hadoop)) as target:
        manifests = await target.held()
        return manifests, await target.unfinished(manifests)


async def _unfinished(place: str, hadoop: Path | None) -> list[Unfinished]:
    """Also of a place that holds nothing else."""
    from gateway.backup.target import opened

    async with opened(place, _hadoop_settings(hadoop)) as target:
        return await target.unfinished(await target.manifests())
