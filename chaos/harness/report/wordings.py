"""Calls and looks in a few words, for the page."""

from __future__ import annotations

from chaos.harness.pair.samples import ANSWERS, Sample
from chaos.history.history import Call


def asked(call: Call) -> str:
    """The operation."""
    operation = call.operation
    if operation.kind in ("read", "scan"):
        what = operation.key or f"{operation.start or ''}..{operation.end or ''}"
        return f"{operation.kind} {operation.table} {what}"
    changes = ", ".join(f"{each.op} {each.key} {each.row or ''}".strip() for each in operation.mutations)
    return f"{operation.kind} {operation.table}: {changes}" if changes else f"{operation.kind} {operation.table}"


def told(call: Call) -> str:
    """The answer."""
    outcome = call.outcome
    if outcome is None:
        return "never ended"
    if outcome.ack is not None:
        ack = outcome.ack
        return f"acknowledged by {ack.site} in epoch {ack.epoch}, {ack.mode}, sequence {ack.seq}, version {ack.version}"
    if outcome.result != "ok":
        return f"{outcome.result} {outcome.error}"
    rows = [f"{row.key}={row.row.get('value')!r} @{row.version}" for row in outcome.rows[:4]]
    more = f" and {len(outcome.rows) - 4} more" if len(outcome.rows) > 4 else ""
    return f"{outcome.site}: {', '.join(rows) or 'nothing'}{more}"


def said(sample: Sample) -> tuple[str, ...]:
    """The cells of a look: what the site said of itself, and what stood beside it."""
    if sample.role in ANSWERS:
        return (f"{sample.at_s:.3f}", sample.site, sample.role, "", "", "", "", "", "it said nothing")
    risk = "unknown" if sample.at_risk is None else f"{sample.at_risk}{'' if sample.at_risk_exact else ' or more'}"
    serves = ", ".join(name for name in ("reads", "writes", "follows") if getattr(sample, name)) or "nothing"
    words = "; ".join(filter(None, (sample.why, *sample.troubles, *sample.otherwise)))
    is_active = sample.role.endswith("ACTIVE")
    return (
        f"{sample.at_s:.3f}", sample.site, f"{sample.role}, epoch {sample.epoch}, {sample.mode}", serves,
        f"{sample.committed} / {sample.applied}", "" if sample.written_there is None else str(sample.written_there),
        risk if is_active else "", ("unknown" if sample.lag_records is None else str(sample.lag_records)) if is_active else "",
        words,
    )


SAID = ("n:at, s", "site", "it is", "it serves", "n:committed / applied", "n:its log there", "n:at risk", "n:lag", "w:it says")
