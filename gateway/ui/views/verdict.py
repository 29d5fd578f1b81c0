"""The one line of the page: what is wrong and what to type, by the availability monitor's advice and the words of `status`.

What always holds: no judgement is made here; a running operation comes first, then what calls for action, then what a site says
stands in the way; what has not been seen for long enough says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from gateway.ui import words
from switchover.monitor.findings import AdviceKind
from switchover.monitor.judgement import Advice
from switchover.operations.document import OperationDocument

_LEVELS = {
    AdviceKind.FAILOVER: "bad", AdviceKind.DEGRADE: "bad", AdviceKind.LOOK: "warn", AdviceKind.RESYNC: "info",
    AdviceKind.NOTHING: "ok",
}
_KINDS_OF_CHANGE = {AdviceKind.FAILOVER: "failover", AdviceKind.DEGRADE: "degrade", AdviceKind.RESYNC: "resync"}


@dataclass(frozen=True, slots=True)
class VerdictLine:
    """`level`: ok, info, warn or bad. `link`: the page where it can be done; empty: none. `more`: what else is to be known."""

    level: str
    headline: str
    command: str = ""
    link: str = ""
    link_text: str = ""
    evidence: tuple[str, ...] = ()
    pending: str = ""


def verdict(
    advice: Advice | None, blockers: Sequence[str], running: tuple[str, OperationDocument] | None, *, is_advised: bool
) -> VerdictLine:
    """`is_advised`: whoever looks may see the advice, which also names who saw what."""
    if running is not None:
        return _running(*running)
    if is_advised and advice is not None and advice.kind is not AdviceKind.NOTHING:
        return _advised(advice)
    if blockers:
        command = words.command_in(blockers[0])
        return VerdictLine("warn", blockers[0], command)
    if is_advised and advice is None:
        return VerdictLine("info", "Both sites are looked at for the first time")
    return VerdictLine("ok", "All is well: there is nothing to do")


def _running(site: str, operation: OperationDocument) -> VerdictLine:
    step = next((one for one in operation.steps if one.state == "running"), None)
    to = f" to site {operation.to}" if operation.to and operation.kind in ("switchover", "failover") else ""
    aborting = "is being given up" if operation.aborting else "is under way"
    return VerdictLine(
        "info", f"A {operation.kind}{to} {aborting} at site {site}", f"twinlog history {operation.id}",
        f"/ui/change?{urlencode({'operation': operation.id})}", "Follow it",
        pending=f"{step.name}: {step.what}" if step is not None else "",
    )


def _advised(advice: Advice) -> VerdictLine:
    kind = _KINDS_OF_CHANGE.get(advice.kind, "")
    link, text = (f"/ui/change?{urlencode({'kind': kind})}", f"Look at the {kind}") if kind else ("", "")
    if not kind and advice.id == "plan":
        link, text = "/ui/change", "Look at the operation"
    pending = ""
    if advice.holds_in_s:
        pending = f"seen for {words.duration(advice.held_s)}; it means something after {words.duration(advice.holds_in_s)} more"
    elif advice.held_s:
        pending = f"seen for {words.duration(advice.held_s)}"
    headline = advice.reason[:1].upper() + advice.reason[1:]
    return VerdictLine(_LEVELS[advice.kind], headline, advice.command, link, text, advice.evidence, pending)
