"""P6, P8: what a loss manifest says is so. That of a failover bounds what is lost; that of a quarantine names it, row by row.

What always holds: of a site that is gone with its disk nothing is left but the manifest of the failover: then what was
acknowledged asynchronously above the sequence that it names, and is not there, counts as named, and nothing else does.
Source: docs/operations.md ("The loss manifest"), protocol.md section 8.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from chaos.checkers.violation import Violation
from chaos.harness.nemesis import Span
from chaos.harness.pair.commands import Accepted
from chaos.history.history import Ack, Call, History, Quarantine, QuarantinedRow

NAME = "losses"
CLOCK_SLACK_S = 0.5
SITE_LOST = "site-lost"


def above_seq(accepted: Accepted) -> int:
    """By the manifest, only what lies above this sequence may be lost."""
    manifest = accepted.manifest
    return max(int(manifest["this_site_holds_seq"]), int(manifest["asynchronous_since_seq"] or 0))


def with_what_went_with_a_site(history: History, accepted: Iterable[Accepted], spans: Sequence[Span]) -> History:
    """Adds, for each site that lost its disk, the rows that the manifest of the failover allows to be missing."""
    gone = [
        _gone(history, each) for each in accepted
        if any(span.kind == SITE_LOST and _lost(span) == each.manifest["active"] and span.from_s < each.at_s for span in spans)
    ]
    return replace(history, quarantines=(*history.quarantines, *(each for each in gone if each.rows)))


def _lost(span: Span) -> str:
    return span.told.removeprefix("site ")[:1] if span.target not in ("a", "b") else span.target


def _gone(history: History, accepted: Accepted) -> Quarantine:
    epoch, above, stored = int(accepted.manifest["epoch"]), above_seq(accepted), _stored(history)
    rows = tuple(
        row for call in history.calls if (ack := _ack(call)) is not None and (ack.epoch, ack.mode) == (epoch, "async")
        for row in _rows(call, ack) if row.seq > above and stored.get((row.table, row.key)) != row.version
    )
    last = max((row.seq for row in rows), default=above)
    return Quarantine(str(accepted.manifest["active"]), epoch, above + 1, last, accepted.at_s, True, rows)


def check(history: History, accepted: Sequence[Accepted]) -> list[Violation]:
    """`history` as it was recorded, with the quarantines of the sites alone."""
    return [*(found for each in accepted for found in _bound(history, each)), *_rows_named(history)]


def _bound(history: History, accepted: Accepted) -> Iterator[Violation]:
    """The count of a failover's manifest is a lower bound, and says how long more may have followed."""
    manifest = accepted.manifest
    if manifest["records_at_risk"] is None:
        return
    epoch, count, told_up_to = int(manifest["epoch"]), int(manifest["records_at_risk"]), int(manifest["active_committed_seq"])
    told_s = accepted.at_s - (accepted.wall_ms - int(manifest["told_at_ms"])) / 1000
    until_s = told_s + float(manifest["more_within_s"]) + CLOCK_SLACK_S
    late = [
        call for call in history.calls
        if (ack := _ack(call)) is not None and ack.epoch == epoch and ack.seq > told_up_to and call.invoked_s > until_s
    ]
    if late:
        yield _told(
            f"The loss manifest of epoch {epoch} said that nothing followed after {until_s:.3f} s, and call {late[0].id}, begun"
            f" at {late[0].invoked_s:.3f} s, was acknowledged in it.", late[:5],
        )
    for each in history.quarantines:
        records = each.last_seq - each.first_seq + 1
        if each.kept and each.epoch == epoch and records < count:
            yield _told(f"The loss manifest of epoch {epoch} said that at least {count} records are lost, and {records} were"
                        f" put into the quarantine of site {each.site}.", [])


def _rows_named(history: History) -> Iterator[Violation]:
    """A quarantine names what was acknowledged asynchronously, or may have been written, and is not there any more."""
    named = {(row.table, row.key, row.version): each for each in history.quarantines if each.kept for row in each.rows}
    if not named:
        return
    acked = {
        (row.table, row.key, row.version): (call, ack) for call in history.calls if (ack := _ack(call)) is not None
        for row in _rows(call, ack)
    }
    perhaps = {
        (call.operation.table, mutation.key) for call in history.calls
        if call.outcome is None or call.outcome.result == "unknown" for mutation in call.operation.mutations
    }
    stored = _stored(history)
    for row, quarantine in named.items():
        call, ack = acked.get(row, (None, None))
        place = f"row {row[1]} of {row[0]}, version {row[2]}, as lost with epoch {quarantine.epoch} of site {quarantine.site}"
        if ack is not None and call is not None and ack.mode == "sync":
            yield _told(f"A manifest names {place}, which was acknowledged as sync.", [call])
        elif ack is None and row[:2] not in perhaps:
            writers = [call for call in history.calls if call.operation.table == row[0] and _writes(call, row[1])]
            yield _told(f"A manifest names {place}, which nobody wrote.", writers[:5])
        elif stored.get(row[:2]) == row[2]:
            yield _told(f"A manifest names {place}, which both sites hold.", [call] if call is not None else [])


def named_count(history: History) -> int:
    """Counts the rows that all manifests name."""
    return sum(len(each.rows) for each in history.quarantines if each.kept)


def _ack(call: Call) -> Ack | None:
    return call.outcome.ack if call.outcome is not None else None


def _rows(call: Call, ack: Ack) -> list[QuarantinedRow]:
    """Returns the rows that an acknowledged call wrote: the acknowledgement is that of its last mutation."""
    mutations, last = call.operation.mutations, len(call.operation.mutations) - 1
    return [
        QuarantinedRow(call.operation.table, each.key, ack.seq - (last - at), ack.version - (last - at))
        for at, each in enumerate(mutations)
    ]


def _writes(call: Call, key: str) -> bool:
    return any(each.key == key for each in call.operation.mutations)


def _stored(history: History) -> Mapping[tuple[str, str], int]:
    """The rows that all sites hold at the same version at the end."""
    held: dict[tuple[str, str], set[int]] = {}
    for dump in history.dumps:
        for table, rows in dump.tables.items():
            for key, row in rows.items():
                held.setdefault((table, key), set()).add(row.version)
    return {row: next(iter(versions)) for row, versions in held.items() if len(versions) == 1}


def _told(sentence: str, calls: Sequence[Call]) -> Violation:
    times = tuple(time for call in calls for time in (call.invoked_s, call.returned_s) if time is not None)
    return Violation("P6", NAME, sentence, tuple(call.id for call in calls), times)
