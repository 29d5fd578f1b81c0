"""The availability monitor's judgement: `step(settings, state, observation) -> (state, advice)`.

What always holds (tests/switchover/monitor/test_monitor.py):
- nothing is advised, and nothing done, before its condition has been seen in every look for its whole time; a gap in the
  looks begins the time anew;
- it acts only where set to, with a coordinator and the policy `available`; never within the quiet time after any role change,
  whoever asked for it, and never more often in a window than it may;
- the state that comes with an action holds it already, so that one step's action is never taken for two.
Source: protocol.md section 8; switchover-lessons.md (20).
This module is pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from switchover.monitor.findings import OTHER, AdviceKind, Finding, PairLook, Rates, Thresholds, candidate, findings
from switchover.monitor.views import MONITOR, Answers, Observation, SiteView
from twinlog.operation_ids import operation_of_key

ACTIONS = (AdviceKind.FAILOVER, AdviceKind.DEGRADE)
Mark = tuple[object, ...]  # what of a site changes while it lives
Counted = tuple[tuple[float, Answers], ...]  # a site's totals at each look of the last window, the oldest first


@dataclass(frozen=True, slots=True)
class RecentChange:
    """A role change that was asked for, by whomever."""

    at_s: float
    by_monitor: bool
    what: str


@dataclass(frozen=True, slots=True)
class MonitorState:
    """The memory of a monitor: `since` when each finding has held, and every role change of the last window."""

    at_s: float | None = None
    since: Mapping[str, float] = field(default_factory=dict)
    marks: Mapping[str, Mark] = field(default_factory=dict)
    answers: Mapping[str, Counted] = field(default_factory=dict)
    recent: Mapping[str, RecentChange] = field(default_factory=dict)


class Advice(msgspec.Struct, frozen=True):
    """The advice: what to do, why, on whose word, since when, and what an operator would type.

    `kind`: nothing, look, resync, degrade, failover. `holds_in_s`: seconds until it has held for long enough; 0: it is advised.
    `act`: the monitor does it now; `acts_not`: why it does not. `key`: the idempotency key of the action.
    """

    kind: AdviceKind
    reason: str
    id: str = ""
    site: str | None = None
    evidence: tuple[str, ...] = ()
    held_s: float = 0.0
    holds_in_s: float = 0.0
    command: str = ""
    act: bool = False
    acts_not: str = ""
    key: str = ""
    also: tuple[str, ...] = ()


def step(settings: Thresholds, state: MonitorState, seen: Observation, *, act: bool) -> tuple[MonitorState, Advice]:
    """One look more. `act`: the monitor may do what it advises; else it only says what it would have done."""
    now_s = seen.at_s
    look = looked(settings, state, seen)
    found = findings(look, settings)
    broken = state.at_s is None or now_s - state.at_s > settings.gap_max_s
    since = {one.id: now_s if broken else state.since.get(one.id, now_s) for one in found}
    recent = _recent(state, seen, settings)
    marks = {site: mark for site in OTHER if (mark := _mark(seen, site)) is not None}
    answers = {site: counted for site in OTHER if (counted := _counted(settings, state, seen, site))}
    after = MonitorState(now_s, since, {**state.marks, **marks}, answers, recent)
    advice = _advice(settings, after, found)
    if advice.holds_in_s or advice.kind not in ACTIONS:
        return after, advice
    if not any(one.id == advice.id and one.may_act for one in found):
        why_not = "that is an operator's to decide: a monitor acts with a coordinator and the policy `available` only"
    else:
        why_not = "it only observes (--act)" if not act else _too_soon(settings, recent, now_s)
    key = _key(advice, look)
    if why_not:
        return after, replace(advice, acts_not=why_not)
    done, name = RecentChange(now_s, True, f"{advice.kind} at {advice.site}"), operation_of_key(key)
    # the site has reported nothing since: what was asked for with the same key before counts, too
    before = {f"{name} at {asked.at_s}": asked} if (asked := recent.get(name)) is not None else {}
    return (
        MonitorState(now_s, since, after.marks, answers, {**recent, **before, name: done}),
        replace(advice, act=True, key=key),
    )


def wants_checks_of(state: MonitorState, seen: Observation) -> str | None:
    """The site whose checks belong into this observation before it is judged; None: nobody has to take over."""
    return candidate(looked(Thresholds(), state, seen))  # who has to take over depends on no threshold


def looked(settings: Thresholds, state: MonitorState, seen: Observation) -> PairLook:
    """The observation beside those before."""
    moved = {site for site in OTHER if (mark := _mark(seen, site)) is not None and state.marks.get(site, mark) != mark}
    counted = {site: _counted(settings, state, seen, site) for site, view in seen.views.items() if view is not None}
    rates = {site: _rates(settings, totals) for site, totals in counted.items() if len(totals) > 1}
    return PairLook(seen, frozenset(moved), rates)


def _mark(seen: Observation, site: str) -> Mark | None:
    """Returns what the other site sees of `site` on its own DFS and at the coordinator; None: it cannot say."""
    view = seen.views.get(OTHER[site])
    if view is None or view.register is None or view.register.active != site:
        return None
    register = view.register
    return register.epoch, register.mode, register.lease_beats, view.own.remote_log_mark


def _counted(settings: Thresholds, state: MonitorState, seen: Observation, site: str) -> Counted:
    """Returns the totals of the last window with those of this look. A process that began anew has none from before."""
    held = tuple(one for one in state.answers.get(site, ()) if seen.at_s - one[0] <= settings.answers_window_s)
    view = seen.views.get(site)
    if view is None or view.answers is None:
        return held
    now = view.answers
    if held and (now.acknowledged < held[-1][1].acknowledged or now.failed < held[-1][1].failed):
        held = ()
    return (*held, (seen.at_s, now))


def _rates(settings: Thresholds, counted: Counted) -> Rates:
    """The share is one of the whole window, and of enough answers: one that failed on an idle pair would be 100 % of a look."""
    first, before, now = counted[0][1], counted[-2][1], counted[-1][1]
    failed = now.failed - first.failed
    every = failed + now.acknowledged - first.acknowledged
    share = failed / every if every >= settings.answers_min else None
    acknowledged = now.acknowledged - before.acknowledged
    measured = acknowledged > 0 and now.ack_s is not None and before.ack_s is not None
    return Rates(share, (now.ack_s - before.ack_s) / acknowledged if measured else None)  # type: ignore[operator]


def _recent(state: MonitorState, seen: Observation, settings: Thresholds) -> dict[str, RecentChange]:
    """Returns the role changes that still count: those remembered, and those in the sites' journals."""
    known = dict(state.recent)
    for view in seen.views.values():
        for change in view.changes if view is not None else ():
            at_s = seen.at_s - max(0.0, change.age_s)
            what = f"{change.kind} by {change.actor}"
            known.setdefault(change.id, RecentChange(at_s, change.by_monitor, what))
    keep_s = max(settings.actions_window_s, settings.quiet_after_action_s)
    return {name: recent for name, recent in known.items() if seen.at_s - recent.at_s < keep_s}


def _advice(settings: Thresholds, state: MonitorState, found: list[Finding]) -> Advice:
    """Advises on the most urgent finding that has held for long enough; else on the one that is being watched. One that calls
    for action, or that says why that action is barred, is watched before any lesser one is advised, however long that has held:
    it is what the operator waits for."""
    assert state.at_s is not None
    now_s = state.at_s
    ripe = [one for one in found if now_s - state.since[one.id] >= _hold_s(settings, one)]
    if not found:
        return Advice(AdviceKind.NOTHING, "all is well")
    first = found[0] if found[0].kind in ACTIONS or found[0].hold_min_s else (ripe or found)[0]
    held_s = now_s - state.since[first.id]
    return Advice(
        first.kind, first.reason, first.id, first.site, first.evidence, held_s,
        0.0 if first in ripe else max(_hold_s(settings, first) - held_s, math.ulp(now_s)), first.command,
        also=tuple(one.reason for one in found if one is not first),
    )


def _hold_s(settings: Thresholds, one: Finding) -> float:
    wanted_s = {
        AdviceKind.FAILOVER: settings.failover_after_s,
        AdviceKind.DEGRADE: settings.degrade_after_s, AdviceKind.RESYNC: settings.resync_after_s,
    }.get(one.kind, settings.look_after_s)
    return max(wanted_s, one.hold_min_s)


def _too_soon(settings: Thresholds, recent: Mapping[str, RecentChange], now_s: float) -> str:
    """Says why the monitor must not act now; empty: it may."""
    last = max(recent.values(), key=lambda one: one.at_s, default=None)
    if last is not None and now_s - last.at_s < settings.quiet_after_action_s:
        left_s = settings.quiet_after_action_s - (now_s - last.at_s)
        return f"the last role change ({last.what}) is too recent: nothing for another {left_s:.0f} s"
    mine = [one for one in recent.values() if one.by_monitor and now_s - one.at_s < settings.actions_window_s]
    if len(mine) >= settings.actions_max:
        return f"monitors have acted {len(mine)} times in {settings.actions_window_s:.0f} s: an operator has to look"
    return ""


def _key(advice: Advice, look: PairLook) -> str:
    """Two monitors that see the same last change at the same site ask with one key: the site takes them for one."""
    view: SiteView | None = look.view(str(advice.site))
    last = view.changes[0].id if view is not None and view.changes else "none"
    register = look.register
    return f"{MONITOR}-{advice.kind}-{advice.site}-{register.epoch if register is not None else 0}-{last}"
