"""`twinlog log`: look into a site's logs on disk, also when its gateway is dead. Reads files, asks nobody, changes nothing.

What always holds: `verify` reports each fault with file and offset; what a start of the gateway opens without a word is a
remark at most (gateway/cli/log_verdict.py).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from gateway.cli import operator
from gateway.cli.log_verdict import ScannedFile, verdict_on
from gateway.cli.screens import moment
from gateway.config.loading import load_site_config
from gateway.config.model import SiteConfig
from remote_log.dfs.hdfs.jvm import end_process
from remote_log.dfs.opening import open_dfs
from remote_log.dfs.owner import Owner
from remote_log.fencing.reading import scan_remote, segments_below
from remote_log.layout import RemoteLayout, SegmentName
from storage.log.encryption import NO_KEYS, Keyring
from storage.log.frame import Flags, Frame
from storage.log.record import Record, RecordKind
from storage.log.segment import SegmentScan, parse_wal_name, scan_segment
from storage.rows.readable import readable_place, schemas_put_by
from twinlog.cli.status import figure, size
from twinlog.decoding import or_none
from twinlog.errors import DamagedLog, KeyUnavailable, LogError, NotFound, reason
from twinlog.terminal import EXIT_CODES, Exit, JsonOption, endings, notes, out, print_json, print_json_line, verb

app = typer.Typer(no_args_is_help=True, help="Look into a site's logs on disk; works with the gateway dead.")
WAL_FOLDER = "wal"
app.command(epilog=EXIT_CODES)(operator.skip)
endings.append(end_process)  # a process in which Java runs ends at once when its work is done
_SiteConfigOption = Annotated[Path, typer.Option("--config", metavar="FILE", help="The site's TOML.")]


class LogKind(StrEnum):
    ALL = "all"
    WAL = "wal"  # this site's local log
    OWN = "own"  # the remote log on this site's DFS, written by the other site
    PEER = "peer"  # the remote log on the other site's DFS, written by this one


_PlaceOption = Annotated[LogKind, typer.Option("--place", help="wal, own (remote log on this DFS), peer (on the other's), all")]


@dataclass(slots=True)
class SegmentFile:
    """One file, read. `fault`: why it cannot be read along to its end."""

    place: LogKind
    path: Path
    name: str
    length: int
    data: bytes | None = None  # of a file that is not on this machine
    scan: SegmentScan | None = None
    fault: LogError | None = None
    frames: list[Frame] = field(default_factory=list)


def segment_files(config: SiteConfig, place: LogKind) -> list[SegmentFile]:
    """Every segment of `place`, in the order of its log, not yet read."""
    found = []
    if place in (LogKind.ALL, LogKind.WAL):
        folder = config.data_dir / WAL_FOLDER
        names = sorted(path.name for path in _listed(folder) if parse_wal_name(path.name) is not None)
        found += [_file(LogKind.WAL, folder / name, f"{WAL_FOLDER}/{name}") for name in names]
    layout = RemoteLayout(config.pair)
    for remote, dfs in ((LogKind.OWN, config.dfs.own), (LogKind.PEER, config.dfs.peer)):
        if place not in (LogKind.ALL, remote):
            continue
        if dfs.path is None:
            found += asyncio.run(_hdfs_files(config, remote))
            continue
        for folder in sorted(_listed(dfs.path / layout.folder.lstrip("/"))):
            for path in sorted(_listed(folder)):
                name = f"{layout.folder}/{folder.name}/{path.name}"
                if isinstance(layout.parse(name), SegmentName):
                    found.append(_file(remote, path, name))
    return found


async def _hdfs_files(config: SiteConfig, place: LogKind) -> list[SegmentFile]:
    """Reads the segments with their content: trimming keeps a remote log small."""
    async with AsyncExitStack() as stack:
        owner = Owner(config.pair, config.site if place is LogKind.OWN else config.peer.site)
        dfs = open_dfs(config.dfs, str(place), owner, stack)
        paths = await segments_below(dfs, RemoteLayout(config.pair), sys.maxsize)
        contents = [await dfs.read(path) for path in paths]
    return [SegmentFile(place, Path(path), path, len(data), data) for path, data in zip(paths, contents, strict=True)]


def _read(config: Path, place: LogKind) -> Iterator[SegmentFile]:
    site = load_site_config(config)
    return read_all(segment_files(site, place), RemoteLayout(site.pair), *_keyrings(site))


def _keyrings(site: SiteConfig) -> tuple[Keyring, Keyring]:
    """Returns those of the WAL and of the remote logs."""
    return (
        Keyring("wal.encryption_keys", site.wal.encryption_keys),
        Keyring("remote_log.encryption_keys", site.remote_log.encryption_keys),
    )


def _each(config: Path, place: LogKind) -> Iterator[SegmentFile]:
    """The files one after the other; the one before is forgotten, for a log may be longer than the memory."""
    for file in _read(config, place):
        yield file
        file.data, file.scan, file.frames = None, None, []


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise NotFound(f"{folder} cannot be listed: {reason(error)}") from error


def _file(place: LogKind, path: Path, name: str) -> SegmentFile:
    return SegmentFile(place, path, name, path.stat().st_size)


def read_all(
    files: list[SegmentFile], layout: RemoteLayout, wal_keys: Keyring = NO_KEYS, remote_keys: Keyring = NO_KEYS
) -> Iterator[SegmentFile]:
    """The files with their frames or their fault, one after the other."""
    last_seq = 0
    for file in files:
        try:
            data = file.path.read_bytes() if file.data is None else file.data
            if file.place is LogKind.WAL:
                file.scan = scan_segment(data, str(file.path), last_seq, wal_keys)
                last_seq = file.scan.frames[-1].last_seq if file.scan.frames else last_seq
            else:
                file.scan = scan_remote(data, layout, file.name, str(file.path), keys=remote_keys)
            file.frames = file.scan.frames
        except LogError as error:
            file.fault = error
        except OSError as error:
            file.fault = DamagedLog(f"{file.path} cannot be read: {reason(error)}", file=str(file.path), offset=0)
        yield file


@app.command("ls", epilog=EXIT_CODES)
@verb
def list_segments(config: _SiteConfigOption, place: _PlaceOption = LogKind.ALL, as_json: JsonOption = False) -> None:
    """The segments: epoch, sequences, size, and how each one ends."""
    site = load_site_config(config)
    files = [(_segment_document(file), _segment_row(file)) for file in _each(config, place)]
    if as_json:
        print_json({"pair": site.pair, "site": site.site, "segments": [document for document, _ in files]})
        return
    of = f"pair {site.pair}, as site {site.site} sees it"  # two pairs may share a DFS, and their segments have the same names
    if not files:
        out().print(f"There are no segments here of {of}.")
        return
    out().print(f"Segments of {of}:")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("where", "segment", "epoch", "sequences", "frames", "written", "end"):
        justify: Literal["left", "right"] = "right" if title in ("epoch", "frames", "written") else "left"
        table.add_column(title, justify=justify, no_wrap=title != "segment", overflow="fold")
    for _, row in files:
        table.add_row(*row)
    out().print(table)


def _segment_row(file: SegmentFile) -> tuple[str, ...]:
    epoch = str(file.scan.header.epoch) if file.scan and file.scan.header else "?"
    return (
        file.place, escape(file.path.name), epoch, _sequences(file.frames), f"{len(file.frames):,}",
        size(file.scan.end if file.scan else 0), _ending(file),
    )


def _segment_document(file: SegmentFile) -> dict[str, Any]:
    scan = file.scan
    return {
        "place": file.place, "file": str(file.path), "bytes": file.length, "written_bytes": scan.end if scan else None,
        "epoch": scan.header.epoch if scan and scan.header else None, "frames": len(file.frames),
        "first_seq": file.frames[0].first_seq if file.frames else None,
        "last_seq": file.frames[-1].last_seq if file.frames else None,
        "key_id": _key_id(file), "torn": scan.torn if scan else None, "fault": file.fault.message if file.fault else None,
    }


def _sequences(frames: list[Frame]) -> str:
    return f"{frames[0].first_seq:,} - {frames[-1].last_seq:,}" if frames else "none"


def _key_id(file: SegmentFile) -> str | None:
    """Returns the key that it is encrypted with; None: it is plain, or damaged."""
    if isinstance(file.fault, KeyUnavailable):
        return str(file.fault.fields["key_id"])
    return (file.scan.header.key_id or None) if file.scan and file.scan.header else None


def _ending(file: SegmentFile) -> str:
    if isinstance(file.fault, KeyUnavailable):
        return f"[yellow]no key for {escape(str(_key_id(file)))}[/]"
    if file.fault is not None:
        return f"[bold red]damaged at {file.fault.fields.get('offset', '?')}[/]"
    return "[yellow]torn tail[/]" if file.scan is not None and file.scan.torn else "[green]sound[/]"


@app.command(epilog=EXIT_CODES + " With --json: one frame, or with --records one record, a line.")
@verb
def cat(
    config: _SiteConfigOption, place: _PlaceOption = LogKind.WAL,
    start: Annotated[int, typer.Option("--from", min=0, help="First sequence.")] = 0,
    end: Annotated[int | None, typer.Option("--to", help="Last sequence.")] = None,
    records: Annotated[bool, typer.Option("--records", help="Each record, not only each frame.")] = False,
    limit: Annotated[int, typer.Option("--limit", min=0, help="At most so many frames; 0: all.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """Shows the frames, in the order of the files."""
    shown, schemas = 0, dict[int, bytes]()
    for file in _each(config, place):
        for frame in file.frames:
            for record in frame.records if records else ():
                if record.kind == RecordKind.DDL:
                    schemas |= schemas_put_by(record)
            if frame.last_seq < start or (end is not None and frame.first_seq > end):
                continue
            if limit and shown == limit:
                notes().print(f"[dim]{limit} frames; there are more (--limit 0: all, --from {frame.first_seq} to continue)[/]")
                return
            shown += 1
            _show_frame(file, frame, schemas if records else None, as_json=as_json)
        if file.fault is not None:
            notes().print(f"[bold red]{file.fault.code}[/]: {escape(file.fault.message)}")
    if not shown:
        notes().print(f"[dim]No frames of that kind in {place}; `twinlog log ls` shows what there is.[/]")


def _show_frame(file: SegmentFile, frame: Frame, schemas: Mapping[int, bytes] | None, *, as_json: bool) -> None:
    """`schemas`: of the tables that the log has named so far, for each record; None: the frame alone."""
    document = {
        "place": file.place, "file": file.path.name, "epoch": frame.epoch, "first_seq": frame.first_seq,
        "last_seq": frame.last_seq, "previous": frame.previous, "committed": frame.committed, "timestamp": frame.timestamp,
        "mode": "async" if frame.flags & Flags.ASYNC else "sync", "bytes": len(frame.data),
    }
    if as_json and schemas is None:
        print_json_line(document)
    elif not as_json:
        out().print(
            f"[bold]{document['first_seq']:>10,}[/] .. {document['last_seq']:<10,} epoch {frame.epoch}  {document['mode']:5} "
            f"previous {frame.previous:,}  {moment(frame.timestamp >> 16)}  {size(len(frame.data))}"
        )
    if schemas is None:
        return
    for index, record in enumerate(frame.records):
        entry = {
            "epoch": frame.epoch, "seq": frame.first_seq + index, "version": str(frame.timestamp + index),
            "kind": RecordKind(record.kind).name, "table": record.table, **_named(record, schemas),
            "value": record.value.decode() if record.kind == RecordKind.MODE else _readable(record.value),
        }
        if as_json:
            print_json_line(entry)
        else:
            value = msgspec.json.encode(entry["value"], enc_hook=str).decode()
            where = f"{entry['name']} {entry['row']} " if "row" in entry else f"{entry['key']} ".lstrip()
            said = escape(f"{where}{value}")
            out().print(f"{'':12}{entry['seq']:,} {entry['kind']} {said}", overflow="ellipsis", no_wrap=True)


def _named(record: Record, schemas: Mapping[int, bytes]) -> dict[str, Any]:
    """Returns what a record is about: a row's table and key in words beside its bytes, else the name of a barrier or holder."""
    if record.kind in (RecordKind.UPSERT, RecordKind.UPDATE, RecordKind.DELETE):
        name, row = readable_place(schemas, record.table, record.key)
        return {"name": name, "row": row, "key": record.key.hex()}
    return {"key": record.key.decode("utf-8", "replace")}


def _readable(value: bytes) -> Any:
    """A record's value, as far as it is msgpack; the schema is not at hand here, so columns are shown by their ids."""
    if not value:
        return None
    found = or_none(partial(msgspec.msgpack.decode, strict=False), value)
    return value.hex() if found is None else found


@app.command(epilog="Exit codes: 0 sound (torn tails included), 1 damage, a gap or no key, 2 wrong usage or configuration.")
@verb
def verify(config: _SiteConfigOption, place: _PlaceOption = LogKind.ALL, as_json: JsonOption = False) -> None:
    """Check every CRC, and the logs as a start of the gateway judges them: damage, gaps, frames out of order, torn tails."""
    files = list(_read(config, place))
    scanned = {
        kind: [ScannedFile(str(file.path), file.scan, file.length) for file in files if file.place is kind and file.scan]
        for kind in (LogKind.WAL, LogKind.OWN, LogKind.PEER)
    }
    whole = not any(file.fault for file in files if file.place is LogKind.WAL)
    verdict = verdict_on(scanned[LogKind.WAL], (scanned[LogKind.OWN], scanned[LogKind.PEER]), wal_is_whole=whole)
    faults = [_fault(file.fault) for file in files if file.fault is not None] + [_fault(error) for error in verdict.faults]
    frames = [frame for file in files for frame in file.frames]
    frame_count, record_count = len(frames), sum(frame.count for frame in frames)
    if as_json:
        remarks = [{"file": each.path, "offset": each.offset, "what": each.what} for each in verdict.remarks]
        print_json({
            "segments": len(files), "frames": frame_count, "records": record_count, "faults": faults, "remarks": remarks
        })
    else:
        for fault in faults:
            out().print(f"[bold red]{fault['code']}[/]: {escape(str(fault['message']))}")
        for each in verdict.remarks:
            out().print(f"[yellow]no fault[/]: {escape(each.path)} from offset {each.offset:,}: {escape(each.what)}")
        said = f"[bold red]{figure(len(faults), 'faults')}[/]" if faults else "[green]sound[/]"
        found = (figure(len(files), "segments"), figure(frame_count, "frames"), figure(record_count, "records"))
        out().print(f"{said}: {', '.join(found)}")
    if faults:
        raise typer.Exit(Exit.FAILED)


def _fault(error: LogError) -> dict[str, Any]:
    return {"code": error.code, "message": error.message, **error.fields}
