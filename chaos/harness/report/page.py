"""The page of a run: what ran, what happened when, what was promised and whether it held, and how to see it again.

What always holds: what was not checked is shown as that; every violation stands with the calls or looks that show it, and with
the command that runs it again; nothing on the page is fetched from elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from chaos.harness.plan import text
from chaos.harness.promises import HELD, NOT_CHECKED, VIOLATED
from chaos.harness.report.evidence import Evidence
from chaos.harness.report.figures import costs, latencies, resources, totals
from chaos.harness.report.markup import STYLE, table
from chaos.harness.report.origin import Origin
from chaos.harness.report.plot import timeline
from chaos.harness.report.wordings import SAID, asked, said, told
from chaos.harness.run import Run

_CLASSES = {HELD: "held", VIOLATED: "violated", NOT_CHECKED: "unchecked"}
_ORDER = (VIOLATED, HELD, NOT_CHECKED)


def page(run: Run, name: str, replay: str, shown: Sequence[Evidence], origin: Origin) -> str:
    """`replay`: the command that runs it again. `shown`: the violations that stand on the page, with what shows them."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width, initial-scale=1'>",
        f"<title>{escape(name)}: twinlog under faults</title><style>{STYLE}</style>",
        f"<h1>{escape(name)}</h1><p class=dim>{escape(run.plan.about)}</p>", _verdict(run),
        *_violations(run, shown, replay), "<h2>What ran</h2>", table((), _facts(run, replay, origin), "facts"),
        "<h2>Timeline</h2>", f"<div class=wide>{timeline(run)}</div>", "<h2>Invariants</h2>",
        "<p class=dim>Not checked: the run had nothing for it to look at.</p>", _invariants(run),
        "<h2>Faults</h2>", _faults(run), "<h2>Latency</h2>", _latency(run), "<h2>Commands</h2>",
        table(("n:", "n:at", "command", "by the word of", "n:took", "w:ended"), (
            (str(number), f"{each.at_s:.1f} s", each.command, each.why, f"{each.ended_s - each.at_s:.1f} s", each.told)
            for number, each in enumerate(run.typed, 1)
        )),
        *_resources(run), "<h2>Plan</h2>", f"<pre>{escape(text(run.plan))}</pre>", "<h2>Course</h2>",
        f"<pre>{escape(chr(10).join(run.notes))}</pre></html>",
    ]
    return "\n".join(parts)


def _verdict(run: Run) -> str:
    count = {state: sum(each.state == state for each in run.verdicts) for state in _ORDER}
    broken = len(run.violations)
    word = f"<span class=violated>{broken} violation{'s'[: broken != 1]}</span>" if broken else "<span class=held>held</span>"
    told = f"{count[HELD]} invariants held, {count[VIOLATED]} violated, {count[NOT_CHECKED]} not checked in this run"
    return f"<p class=verdict>{word}: {told}</p>"


def _facts(run: Run, replay: str, origin: Origin) -> Iterable[tuple[str, str]]:
    found = totals(run.history)
    yield "operations", f"{found.operations:,}"
    yield "writes acknowledged", f"{found.acknowledged:,}"
    yield "unknown, refused", f"{found.unknown:,}, {found.refused:,}"
    yield "longest time without a write", f"{found.without_writes_s:.2f} s"
    yield "longest time without a read", f"{found.without_reads_s:.2f} s"
    yield "the run took", f"{run.lasted_s:.1f} s"
    plan = run.plan
    yield "workload", f"{plan.workload}: {plan.clients} clients, {plan.rate:g} operations a second, seed {plan.seed}"
    yield "pair", run.pair
    if run.bug:
        yield "planted bug", run.bug
    yield "made", f"{origin.made}, commit {origin.commit}"
    yield "machine", f"{origin.machine}; load average {origin.load:g} at the end"
    yield "beside this page", "report.json (the same, for programs), history.jsonl and history.edn (every call), plan.txt"
    yield "again", replay


def _invariants(run: Run) -> str:
    ordered = sorted(run.verdicts, key=lambda each: _ORDER.index(each.state))
    return table(("", "checker", "w:what must hold", "promise", "n:looked at"), (
        (f"!{_CLASSES[each.state]}:{each.state}", each.checker, each.sentence, each.promise, f"{each.looked_at:,}")
        for each in ordered
    ))


def _faults(run: Run) -> str:
    """Each fault with what it cost the clients that follow the active."""
    rows = []
    for span, cost in zip(run.spans, costs(run.history, run.spans, run.samples), strict=True):
        came = f"left out: {span.skipped}" if span.skipped else span.told
        rows.append((
            f"{span.from_s:.1f} s", f"{span.to_s - span.from_s:.1f} s", f"{span.kind} {span.target} {span.how}".strip(), came,
            f"{cost.without_writes_s:.2f} s", f"{cost.without_reads_s:.2f} s", str(cost.unknown),
            "never" if cost.whole_after_s is None else f"{cost.whole_after_s:.1f} s" if cost.whole_after_s else "always was",
        ))
    return table((
        "n:from", "n:for", "fault or command", "w:what came of it", "n:without writes", "n:without reads", "n:unknown",
        "n:whole after",
    ), sorted(rows, key=lambda row: float(row[0].split()[0])))


def _latency(run: Run) -> str:
    """The times of calls that were done."""
    return table(("", "calls", "n:done", "n:p50", "n:p99"), (
        ("during faults and commands" if each.during_faults else "at other times", each.what, f"{each.calls:,}",
         _ms(each.p50_ms), _ms(each.p99_ms)) for each in latencies(run.history, run.spans)
    ))


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f} ms"


def _resources(run: Run) -> Iterable[str]:
    """Nothing, for a pair whose processes nobody here sees."""
    if not run.rest:
        return
    yield "<h2>Resources</h2>"
    yield table(("site", "", "n:first", "n:at most", "n:last"), (
        (each.site, each.name, f"{each.first:,}", f"{each.most:,}", f"{each.last:,}") for each in resources(run.samples)
    ))
    yield "<p class=dim>The idle pair, before the first request and after the last one:</p>"
    kinds = sorted({kind for looks in run.rest for each in looks if each.held for kind in each.held.open_files})
    heads = ("n:at", "site", "role", *(f"n:{kind}" for kind in kinds), "n:threads", "n:MiB", "n:KiB of WAL", "n:KiB on DFS")
    yield table(heads, (
        (f"{each.at_s:.1f} s", each.site, each.role, *(str(each.held.open_files.get(kind, 0)) for kind in kinds),
         str(each.held.threads), f"{each.held.memory_bytes / (1 << 20):.0f}", f"{each.held.wal_bytes >> 10:,}",
         f"{each.held.dfs_bytes >> 10:,}")
        for looks in run.rest for each in looks if each.held is not None
    ))


def _violations(run: Run, shown: Sequence[Evidence], replay: str) -> Iterable[str]:
    if not run.violations:
        return
    yield f"<h2>Violations</h2><p>To run it again: <code>{escape(replay)}</code></p>"
    for each in shown:
        found = each.violation
        yield f"<div class=broken><p><span class=violated>{escape(found.promise)}</span> {escape(found.sentence)}</p>"
        yield f"<p class=dim>found by {escape(found.checker)}</p>"
        if each.calls:
            yield table(("n:call", "client", "n:from", "n:to", "w:what", "w:answer"), (
                (str(call.id), call.process, f"{call.invoked_s:.3f}", f"{call.returned_s:.3f}" if call.returned_s else "",
                 asked(call), told(call)) for call in each.calls
            ))
        if each.looks:
            yield table(SAID, (said(sample) for sample in each.looks))
        if each.left_out:
            yield f"<p class=dim>and {each.left_out} more that belong to it, in history.jsonl and report.json</p>"
        yield "</div>"
    more = len(run.violations) - len(shown)
    if more:
        yield f"<p class=dim>and {more} more violations, in report.json; the first ones of each checker stand here</p>"
