"""The view *Change*: the role changes there are, where each runs, their checks, and the operation that runs or ran last.

What always holds: what a change needs is judged by the checks of the product, at the site that would run it; a change runs at
the site that `twinlog` would ask, and the page of another site leads there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gateway.ui import words
from gateway.ui.views.picture import Curve, curve
from gateway.ui.views.plan import STATE_LEVELS, PlanShown, now_of, plan_shown
from gateway.ui.views.verdict import VerdictLine, verdict
from gateway.ui.watch import PairSeen
from switchover.preflight.checks import Check
from switchover.preflight.loss import at_risk
from switchover.preflight.preflight import ChecksDocument
from twinlog.errors import InvalidInput

CHECKED = ("switchover", "failover", "rejoin")
_LEVELS = {"ok": "ok", "warning": "warn", "unknown": "unknown", "failed": "bad"}


@dataclass(frozen=True, slots=True)
class Kind:
    """A role change. `at_active`: it runs at the active, else at the other site."""

    name: str
    what: str
    when: str
    at_active: bool = False


KINDS = (
    Kind("switchover", "Hand over to the other site", "both sites live; writes pause for about a second, nothing is lost"),
    Kind("failover", "Take over from a lost site", "the active is lost or cut off; it is locked out first"),
    Kind("rejoin", "Bring a site back as standby", "a site came back and should follow; what only it has goes into quarantine"),
    Kind("degrade", "Acknowledge with the local log alone", "the standby is lost, and writes must continue", at_active=True),
    Kind("resync", "Go back to synchronous", "both sites are back after a degrade; writes continue meanwhile", at_active=True),
)
BY_NAME = {kind.name: kind for kind in KINDS}


@dataclass(frozen=True, slots=True)
class Ask:
    """A role change that somebody thinks of. `to`: the site that the request names; `runs_at`: where it runs, at `url`.
    `typed`: what confirms it."""

    kind: Kind
    to: str | None
    runs_at: str
    is_here: bool
    url: str
    command: str
    typed: str


def ask_of(seen: PairSeen, name: str) -> Ask:
    """Raises InvalidInput."""
    kind = BY_NAME.get(name)
    if kind is None:
        raise InvalidInput(f"there is no role change {name[:40]!r}: it is one of {', '.join(BY_NAME)}", parameter="kind")
    active = active_of(seen)
    standby = seen.site if active is None else seen.other if active == seen.site else seen.site
    runs_at = (active or seen.site) if kind.at_active else standby
    to = None if kind.at_active else standby
    said = {"rejoin": f"rejoin {to}", "degrade": "degrade", "resync": "resync"}.get(name, f"{name} --to {to}")
    at = seen.own.cluster.sites.get(runs_at)
    url = at.url if at is not None else ""
    return Ask(kind, to, runs_at, runs_at == seen.site, url, f"twinlog {said}", f"{name} {to}" if to else name)


def active_of(seen: PairSeen) -> str | None:
    """Returns the active by the highest epoch that a site names."""
    named = [side.look.cluster.active for side in seen.sides.values() if side.look is not None and side.look.cluster.active]
    best = max(named, key=lambda one: one.epoch, default=None)
    return best.site if best is not None else None


@dataclass(frozen=True, slots=True)
class Past:
    """One line of the list of operations."""

    id: str
    site: str
    title: str
    level: str
    state: str
    started: str
    took: str
    by: str


@dataclass(frozen=True, slots=True)
class ChangePage:
    verdict: VerdictLine
    plan: PlanShown | None
    is_newest: bool
    past: tuple[Past, ...]
    curve: Curve
    unwritten: str
    is_running: bool


def change_values(seen: PairSeen, operation: str, *, may_change: bool) -> dict[str, Any]:
    """Returns what the live parts of the page need. `operation`: the one to show; empty: the one that runs, else the newest."""
    running = seen.operation
    known = {one.id: (site, one) for site, one in seen.operations}
    chosen = known.get(operation) if operation else running or next(iter(seen.operations), None)
    plan = None
    if chosen is not None:
        site, document = chosen
        look = seen.sides[site].look
        plan = plan_shown(site, document, now_of(document, look.cluster.now_ms if look is not None else None))
    page = ChangePage(
        verdict=verdict(seen.advice, (), running, is_advised=True), plan=plan,
        is_newest=plan is not None and bool(seen.operations) and plan.id == seen.operations[0][1].id,
        past=tuple(_past(site, one) for site, one in seen.operations), curve=curve(seen.curve),
        unwritten=words.duration(round(seen.unwritten_s, 1)) if seen.unwritten_s > 0.3 else "", is_running=running is not None,
    )
    return {"page": page, "may_change": may_change, "own": seen.site}


def _past(site: str, one: Any) -> Past:
    to = f" {one.to}" if one.to else ""
    took = words.duration((one.finished_ms - one.created_ms) / 1000) if one.finished_ms is not None else ""
    return Past(
        one.id, site, f"{'dry run: ' if one.dry_run else ''}{one.kind}{to}", STATE_LEVELS[one.state], one.state,
        words.moment(one.created_ms), took, one.actor,
    )


@dataclass(frozen=True, slots=True)
class ChecksShown:
    rows: tuple[tuple[str, Check], ...]
    is_ok: bool
    counts: str
    loss: str
    at_risk: str


def checks_shown(found: ChecksDocument) -> ChecksShown:
    """The checks, those first that stand in the way."""
    order = ("bad", "warn", "unknown", "ok")
    rows = sorted(((_LEVELS[check.status], check) for check in found.checks), key=lambda row: order.index(row[0]))
    counts = ", ".join(
        f"{count} {status}" for status in ("failed", "warning", "unknown", "ok")
        if (count := sum(check.status == status for check in found.checks))
    )
    loss = found.loss.statement if found.loss is not None else ""
    risk = "" if found.loss is None else str(at_risk({"records_at_risk": found.loss.records_at_risk}))
    return ChecksShown(tuple(rows), found.ok, counts, loss, risk)


def options_of(kind: str, fields: Mapping[str, str]) -> dict[str, Any]:
    """The options of a role change as the form has them. Raises InvalidInput."""
    options: dict[str, Any] = {}
    if fields.get("reason", "").strip():
        options["reason"] = fields["reason"].strip()
    if kind == "rejoin":
        options |= {name: True for name in ("merge", "put_absent") if fields.get(name)}
        if options.get("put_absent") and not options.get("merge"):
            raise InvalidInput("to put absent rows is an option of a merge: choose both")
    loss = fields.get("count", "").replace(",", "").strip()
    if kind == "failover" and loss:
        if loss != words.UNKNOWN and not (loss.isascii() and loss.isdigit()):
            raise InvalidInput(f"{loss[:40]!r} was given as the records at risk: type the displayed count")
        options["accept_data_loss"] = loss if loss == words.UNKNOWN else int(loss[:18])
    return options
