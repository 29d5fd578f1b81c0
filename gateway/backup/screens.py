"""Shows what a place of backups holds, for `twinlog backup`."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import Any

import msgspec
from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from storage.backup.manifest import Manifest
from storage.backup.pruning import Unfinished
from twinlog.cli.status import size

GOES = "goes"


def table_of(chains: dict[str, list[Manifest]]) -> Group:
    """Two lines for each base. The keys stand in front of theirs; "" alone: there is no such column."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    rows = [(fate, each) for fate, some in chains.items() for each in some]
    if "" not in chains:
        table.add_column(no_wrap=True, min_width=max(map(len, chains)))
    for title in ("from", "to"):  # a moment is copied from here to --at: it is whole on the narrowest terminal
        table.add_column(title, no_wrap=True, min_width=max((len(each.end.at) for _, each in rows), default=None))
    for title in ("rows", "size"):
        table.add_column(title, justify="right", no_wrap=True)
    has_keys = any(each.key_id for _, each in rows)
    if has_keys:
        table.add_column("key", overflow="fold")
    for fate, each in rows:
        moments = [f"{point.seq:,}\n[dim]{point.at}[/]" for point in (each.base.point, each.end)]
        table.add_row(
            *([f"[bold]{fate}[/]" if fate == GOES else fate] if fate else []), *moments, f"{each.base.rows:,}",
            size(size_of([each])), *([escape(each.key_id)] if has_keys else []),
        )
    return Group(*(Text(f"pair {pair}") for pair in {each.pair for _, each in rows}), table)


def unfinished_text(unfinished: Sequence[Unfinished], place: str) -> str:
    """Says what calls that run, or that did not end, have written, and how it goes."""
    return (
        f"{size(sum(one.size_bytes for one in unfinished))} there belong to a backup that runs now or did not end: where none"
        f" runs, `twinlog backup prune {quote(place)} --unfinished` removes them"
    )


def size_of(manifests: Sequence[Manifest]) -> int:
    return sum(part.length_bytes for manifest in manifests for part in manifest.parts)


def document_of(manifest: Manifest) -> dict[str, Any]:
    begin, end = manifest.base.point, manifest.end
    return {
        "pair": manifest.pair, "identity": manifest.identity, "target": manifest.target, "number": manifest.number,
        "in_the_clear": manifest.in_the_clear, "key_id": manifest.key_id, "rows": manifest.base.rows,
        "bytes": size_of([manifest]),
        "begin": {**msgspec.to_builtins(begin), "at": begin.at},
        "end": {**msgspec.to_builtins(end), "at": end.at},
    }
