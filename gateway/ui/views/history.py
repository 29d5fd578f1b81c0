"""The view *History*: operations of both sites, and the epochs as a timeline: who was active when, by what.

What always holds: the time of an epoch is that at which an operation opened it, where a journal has it, else unknown; an
epoch's width is what it wrote, so that none of them is drawn for longer than it is known to have been.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gateway.ui import words
from gateway.ui.happenings import Happened
from gateway.ui.looks import Epochs
from gateway.ui.views.plan import STATE_LEVELS
from switchover.operations.document import OperationDocument

WIDTH = 1000
EPOCHS_SHOWN = 60


@dataclass(frozen=True, slots=True)
class EpochRow:
    """`x` and `w` of WIDTH; the lane is that of its site."""

    epoch: int
    site: str
    kind: str
    mode: str
    since: str
    lasted: str
    sequences: str
    records: int
    x: float
    w: float


@dataclass(frozen=True, slots=True)
class OperationRow:
    id: str
    site: str
    title: str
    level: str
    state: str
    began: str
    took: str
    actor: str
    reason: str
    error: str


def epoch_rows(known: Epochs, operations: Iterable[OperationDocument], now_ms: int) -> list[EpochRow]:
    """The newest epochs, ascending. Widths are by time where all have one, else by records."""
    shown = known.epochs[-EPOCHS_SHOWN:]
    opened, modes = opened_by(operations)
    ends = [one.first_seq - 1 for one in shown[1:]] + [known.applied_seq]
    records = [max(0, end - one.first_seq + 1) for one, end in zip(shown, ends, strict=True)]
    times = [opened.get(one.epoch) for one in shown]
    begins = [at for at in times if at is not None]
    by_time = len(begins) == len(shown) and begins == sorted(begins)
    weights = _weights([float(end - begin) for begin, end in zip(begins, [*begins[1:], now_ms], strict=True)]
                       if by_time else [float(count) for count in records])
    rows, x = [], 0.0
    for place, one in enumerate(shown):
        began, ended = times[place], times[place + 1] if place + 1 < len(shown) else now_ms
        lasted = words.duration((ended - began) / 1000) if began is not None and ended is not None else words.UNKNOWN
        rows.append(EpochRow(
            one.epoch, one.site, one.kind, modes.get(one.epoch, words.UNKNOWN), words.moment(began), lasted,
            f"{one.first_seq:,} to {ends[place]:,}", records[place], round(x, 1), round(weights[place], 1),
        ))
        x += weights[place]
    return rows


def _weights(values: Sequence[float]) -> list[float]:
    """Widths that sum to WIDTH; each is seen."""
    least = WIDTH * 0.008
    room = WIDTH - least * len(values)
    total = sum(max(0.0, value) for value in values) or 1.0
    return [least + room * max(0.0, value) / total for value in values]


def opened_by(operations: Iterable[OperationDocument]) -> tuple[dict[int, int], dict[int, str]]:
    """Returns when each epoch was opened, and in which mode, by the steps that did."""
    found: dict[int, int] = {}
    modes: dict[int, str] = {}
    for one in operations:
        for step in one.steps:
            epoch = step.detail.get("epoch") if step.name == "open" and step.detail else None
            if isinstance(epoch, int) and step.state == "done" and step.finished_ms is not None:
                found[epoch], modes[epoch] = step.finished_ms, str((step.detail or {}).get("mode", words.UNKNOWN))
    return found, modes


def operation_rows(by_site: Mapping[str, Sequence[OperationDocument]]) -> list[OperationRow]:
    """Newest first."""
    every = sorted(((site, one) for site, found in by_site.items() for one in found), key=lambda pair: -pair[1].created_ms)
    return [_row(site, one) for site, one in every]


@dataclass(frozen=True, slots=True)
class HappeningRow:
    at: str
    site: str
    level: str
    what: str
    why: str


_HAPPENED = {"role": ("info", "is now"), "alert": ("warn", "alert:"), "over": ("ok", "no more:")}


def happening_rows(by_site: Mapping[str, Happened]) -> list[HappeningRow]:
    """Newest first."""
    every = [(site, one) for site, found in by_site.items() for one in found.happenings]
    rows = []
    for site, one in sorted(every, key=lambda pair: -pair[1].at_ms):
        level, verb = _HAPPENED.get(one.kind, ("info", one.kind))
        rows.append(HappeningRow(words.moment(one.at_ms), site, level, f"{verb} {one.what}", one.why))
    return rows


def _row(site: str, one: OperationDocument) -> OperationRow:
    to = f" {one.to}" if one.to else ""
    took = words.duration((one.finished_ms - one.created_ms) / 1000) if one.finished_ms is not None else ""
    return OperationRow(
        one.id, site, f"{'dry run: ' if one.dry_run else ''}{one.kind}{to}", STATE_LEVELS[one.state], one.state,
        words.moment(one.created_ms), took, one.actor, str(one.options.get("reason", "")),
        f"{one.error.code}: {one.error.message}" if one.error is not None else "",
    )
