"""The page of a run: what ran, what happened when, what was promised and whether it held, and how to see it again.

What always holds: what was not checked is shown as that; every violation stands with the calls that show it; nothing on the
page is fetched from elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from chaos.checkers.violation import Violation
from chaos.harness.plan import text
from chaos.harness.promises import HELD, NOT_CHECKED, VIOLATED
from chaos.harness.report.figures import around, costs, resources, totals
from chaos.harness.report.plot import timeline
from chaos.harness.run import Run
from chaos.history.history import Call

SHOWN_MAX = 20
_STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 1180px; color: #222; padding: 0 1rem }
h1 { font-size: 1.5rem; margin-bottom: 0.2rem } h2 { font-size: 1.1rem; margin-top: 2rem }
table { border-collapse: collapse; width: 100% } td, th { text-align: left; padding: 0.25rem 0.6rem; vertical-align: top;
border-bottom: 1px solid #e3e3e3; font-size: 13px } th { color: #666; font-weight: 600 } td.n, th.n { text-align: right }
pre { background: #f6f6f4; padding: 0.7rem; overflow-x: auto; font-size: 12px } svg { width: 100%; height: auto }
.verdict { font-size: 1.1rem; font-weight: 600 } .held { color: #1b7f3b } .violated { color: #b0413e; font-weight: 700 }
.unchecked { color: #888 } .dim { color: #777 }
"""
_CLASSES = {HELD: "held", VIOLATED: "violated", NOT_CHECKED: "unchecked"}


def page(run: Run, name: str, replay: str) -> str:
    """`replay`: the command that runs it again."""
    found = totals(run.history)
    broken = sum(each.state == VIOLATED for each in run.verdicts)
    unchecked = sum(each.state == NOT_CHECKED for each in run.verdicts)
    held = sum(each.state == HELD for each in run.verdicts)
    word = f"<span class=violated>{len(run.violations)} violations</span>" if run.violations else "<span class=held>held</span>"
    facts = (
        ("operations", f"{found.operations:,}"), ("writes acknowledged", f"{found.acknowledged:,}"),
        ("unknown", f"{found.unknown:,}"), ("refused", f"{found.refused:,}"),
        ("longest time without an acknowledged write", f"{found.without_writes_s:.2f} s"),
        ("longest time without a read", f"{found.without_reads_s:.2f} s"), ("the run took", f"{run.lasted_s:.1f} s"),
        ("workload, clients, operations a second", f"{run.plan.workload}, {run.plan.clients}, {run.plan.rate:g}"),
        ("pair", run.pair), *((("planted bug", run.bug),) if run.bug else ()),
        ("again", replay),
    )
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{escape(name)}: twinlog under faults</title>",
        f"<style>{_STYLE}</style><h1>{escape(name)}</h1><p class=dim>{escape(run.plan.about)}</p>",
        f"<p class=verdict>{word}: {held} invariants held, {broken} violated, {unchecked} not checked in this run</p>",
        "<h2>What ran</h2>", _table((), facts), "<h2>Timeline</h2>", timeline(run),
        *_violations(run), "<h2>Invariants</h2>",
        _table(("promise", "checker", "what must hold", "n:looked at", ""), (
            (each.promise, each.checker, each.sentence, f"{each.looked_at:,}", f"!{_CLASSES[each.state]}:{each.state}")
            for each in run.verdicts
        )),
        "<h2>Faults</h2>", _faults(run), "<h2>Commands</h2>",
        _table(("n:at", "command", "by the word of", "n:took", "ended"), (
            (f"{each.at_s:.1f} s", each.command, each.why, f"{each.ended_s - each.at_s:.1f} s", each.told) for each in run.typed
        )),
        *_resources(run),
        "<h2>Plan</h2>", f"<pre>{escape(text(run.plan))}</pre>", "<h2>Course</h2>",
        f"<pre>{escape(chr(10).join(run.notes))}</pre></html>",
    ]
    return "\n".join(parts)


def _resources(run: Run) -> Iterable[str]:
    found = resources(run.samples)
    if found:
        yield "<h2>Resources</h2>"
        yield _table(("site", "", "n:at the beginning", "n:at most", "n:at the end"), (
            (each.site, each.name, f"{each.first:,}", f"{each.most:,}", f"{each.last:,}") for each in found
        ))


def _faults(run: Run) -> str:
    """Each fault with what it cost the clients that follow the active."""
    rows = []
    for span, cost in zip(run.spans, costs(run.history, run.spans), strict=True):
        told = f"left out: {span.skipped}" if span.skipped else span.told
        rows.append((
            f"{span.from_s:.1f} s", f"{span.to_s - span.from_s:.1f} s", f"{span.kind} {span.target} {span.how}".strip(), told,
            f"{cost.without_writes_s:.2f} s", f"{cost.without_reads_s:.2f} s",
        ))
    return _table(("n:from", "n:for", "fault or command", "what came of it", "n:without writes", "n:without reads"), rows)


def _violations(run: Run) -> Iterable[str]:
    if not run.violations:
        return
    yield "<h2>Violations</h2>"
    for violation in run.violations[:SHOWN_MAX]:
        yield f"<p><span class=violated>{escape(violation.promise)}</span> {escape(violation.sentence)}</p>"
        yield _calls(run, violation)
    if len(run.violations) > SHOWN_MAX:
        yield f"<p class=dim>and {len(run.violations) - SHOWN_MAX} more, in report.json</p>"


def _calls(run: Run, violation: Violation) -> str:
    shown = around(run.history, violation.calls)
    if not shown:
        return ""
    return _table(("n:call", "client", "n:from", "n:to", "what", "answer"), (
        (str(call.id), call.process, f"{call.invoked_s:.3f}", f"{call.returned_s:.3f}" if call.returned_s else "", asked(call),
         told(call)) for call in shown
    ))


def asked(call: Call) -> str:
    """The operation in a few words."""
    operation = call.operation
    if operation.kind in ("read", "scan"):
        what = operation.key or f"{operation.start or ''}..{operation.end or ''}"
        return f"{operation.kind} {operation.table} {what}"
    changes = ", ".join(f"{each.op} {each.key} {each.row or ''}".strip() for each in operation.mutations)
    return f"{operation.kind} {operation.table}: {changes}" if changes else f"{operation.kind} {operation.table}"


def told(call: Call) -> str:
    """The answer in a few words."""
    outcome = call.outcome
    if outcome is None:
        return "never ended"
    if outcome.ack is not None:
        ack = outcome.ack
        return f"acknowledged by {ack.site} in epoch {ack.epoch}, {ack.mode}, version {ack.version}"
    if outcome.result != "ok":
        return f"{outcome.result} {outcome.error}"
    rows = [f"{row.key}={row.row.get('value')!r} @{row.version}" for row in outcome.rows[:4]]
    more = f" and {len(outcome.rows) - 4} more" if len(outcome.rows) > 4 else ""
    return f"{outcome.site}: {', '.join(rows) or 'nothing'}{more}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A head `n:...` is of numbers; a cell `!CLASS:...` has that class."""
    numbers = {at for at, head in enumerate(heads) if head.startswith("n:")}
    names = [escape(head.removeprefix("n:")) for head in heads]
    top = "".join(f"<th{' class=n' if at in numbers else ''}>{name}" for at, name in enumerate(names))
    body = "\n".join("<tr>" + "".join(_cell(cell, at in numbers) for at, cell in enumerate(row)) for row in rows)
    return f"<table>{f'<tr>{top}' if heads else ''}\n{body}</table>"


def _cell(cell: str, is_number: bool) -> str:
    if cell.startswith("!"):
        kind, _, content = cell[1:].partition(":")
        return f"<td class={kind}>{escape(content)}"
    return f"<td{' class=n' if is_number else ''}>{escape(cell)}"
