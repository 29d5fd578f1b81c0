"""The view *Log*: the segments of the WAL and of the remote logs of both sites, the claims, and how far the log is trimmed.

What always holds: what is on a DFS that does not answer is called unknown, with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.ui import words
from gateway.ui.looks import LogClaim, Logs, LogSegment
from switchover.monitor.findings import OTHER


@dataclass(frozen=True, slots=True)
class SegmentRow:
    name: str
    epoch: int
    sequences: str
    size: str
    end: str


@dataclass(frozen=True, slots=True)
class Claimed:
    epoch: int
    site: str
    kind: str
    reason: str
    at: str


@dataclass(frozen=True, slots=True)
class HolderRow:
    name: str
    at: str
    is_holding: bool  # the log is kept for its sake


@dataclass(frozen=True, slots=True)
class SiteLogs:
    """The logs of one site. `error`: why they are not known; `kept_error`: why its DFS is not."""

    site: str
    error: str = ""
    wal: tuple[SegmentRow, ...] = ()
    wal_note: str = ""
    holders: tuple[HolderRow, ...] = ()
    remote: tuple[SegmentRow, ...] | None = None
    kept: tuple[SegmentRow, ...] | None = None
    claims: tuple[Claimed, ...] | None = None
    kept_error: str = ""


def site_logs(logs: Logs) -> SiteLogs:
    positions = [one.durable_seq for one in logs.holders]
    lowest = min((0 if seq is None else seq for seq in positions), default=0)
    is_kept = bool(logs.wal) or any(seq is not None for seq in positions)  # a standby has no log that anybody needs
    holders = tuple(
        HolderRow(_holder(one.name, logs.site), words.number(one.durable_seq), (one.durable_seq or 0) == lowest)
        for one in logs.holders if is_kept
    )
    reach = "it holds no frame" if logs.first_previous is None else f"it reaches back to sequence {logs.first_previous + 1:,}"
    return SiteLogs(
        logs.site, wal=_rows(logs.wal, last_is_open=True), wal_note=f"{words.size(logs.wal_bytes)} on disk; {reach}",
        holders=holders, remote=None if logs.remote is None else _rows(logs.remote),
        kept=None if logs.kept is None else _rows(logs.kept), claims=_claims(logs.claims), kept_error=logs.kept_error or "",
    )


def _holder(name: str, site: str) -> str:
    """Returns the holder in words: a backup has its own name."""
    return {"engine": f"the storage of site {site}", "peer": f"the storage of site {OTHER[site]}"}.get(name, name)


def _rows(segments: Sequence[LogSegment], *, last_is_open: bool = False) -> tuple[SegmentRow, ...]:
    return tuple(
        _row(one, (place == len(segments) - 1) if last_is_open else one.is_open) for place, one in enumerate(segments)
    )[::-1]


def _row(one: LogSegment, is_open: bool | None) -> SegmentRow:
    if one.first_seq is None or one.last_seq is None:
        sequences = words.UNKNOWN if is_open is None else "none"
    else:
        sequences = f"{one.first_seq:,} to {one.last_seq:,}" if one.last_seq >= one.first_seq else "none"
    end = words.UNKNOWN if is_open is None else "written now" if is_open else "closed"
    return SegmentRow(one.name.rpartition("/")[2], one.epoch, sequences, words.size(one.bytes), end)


def _claims(claims: Sequence[LogClaim] | None) -> tuple[Claimed, ...] | None:
    if claims is None:
        return None
    return tuple(
        Claimed(one.epoch, one.site or words.UNKNOWN, one.kind or words.UNKNOWN, one.reason or "", words.moment(one.wall_ms))
        for one in reversed(claims)
    )
