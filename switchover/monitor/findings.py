"""The findings of one look at the pair: what each calls for, who saw it, and what an operator would type.

What always holds: a failover is called for only when nobody sees the active serve: it says so itself, or neither the monitor
nor the other site reaches it while nothing of it moves (its remote log, its lease at the coordinator) for longer than its read
lease, so that it serves nobody if it lives; and only when the other site's own checks let it take over. Where that is not
known, the finding is to look. Source: protocol.md section 8.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated

from remote_log.replication.messages import StatusReply
from storage.settings import Within
from switchover.facts import SiteFacts
from switchover.monitor.views import Observation, SiteView
from switchover.register.lost_value import advice_for_lost_register
from switchover.register.port import PairState
from switchover.register.went_back import advice, command
from switchover.roles.table import Role, permissions

OTHER = {"a": "b", "b": "a"}


class AdviceKind(StrEnum):
    NOTHING = "nothing"
    LOOK = "look"
    RESYNC = "resync"
    DEGRADE = "degrade"
    FAILOVER = "failover"


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Limits: when a figure is a finding, how long a finding must hold without a break, how often a monitor may act."""

    interval_s: Annotated[float, Within(0.1, 600)] = 1.0
    look_after_s: Annotated[float, Within(0, 86400)] = 10.0
    resync_after_s: Annotated[float, Within(0, 86400)] = 30.0
    degrade_after_s: Annotated[float, Within(0.5, 86400)] = 10.0
    failover_after_s: Annotated[float, Within(0.5, 86400)] = 8.0  # longer than a gateway takes to start again
    gap_max_s: Annotated[float, Within(1, 3600)] = 30.0  # between two looks: nothing has held through more
    quiet_after_action_s: Annotated[float, Within(1, 86400)] = 300.0  # after any role change, whoever asked for it
    actions_max: Annotated[int, Within(1, 100)] = 2  # of monitors, in each window
    actions_window_s: Annotated[float, Within(1, 864_000)] = 3600.0
    failed_share_max: Annotated[float, Within(0, 1)] = 0.05
    answers_min: Annotated[int, Within(1, 1_000_000)] = 20  # of fewer in the window, a share says nothing
    answers_window_s: Annotated[float, Within(1, 3600)] = 60.0
    ack_slow_s: Annotated[float, Within(0.001, 600)] = 1.0
    silence_max_s: Annotated[float, Within(0.1, 3600)] = 5.0  # of the active, as its standby hears it


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates of a site's answers. None: there were none, or too few, or nobody measured."""

    failed_share: float | None  # over the window
    ack_s: float | None  # between the last two looks


@dataclass(frozen=True, slots=True)
class Finding:
    """`id` is the same as long as it is the same thing; `site`: whom it is about, or who would execute it."""

    id: str
    kind: AdviceKind
    site: str | None
    reason: str
    evidence: tuple[str, ...]
    command: str
    may_act: bool = False  # a coordinator and the policy let a monitor do it
    hold_min_s: float = 0.0  # it means nothing before, whatever the threshold says


@dataclass(frozen=True, slots=True)
class PairLook:
    """An observation, and what moved since the one before: `moved` are the sites where something did."""

    seen: Observation
    moved: frozenset[str]
    rates: Mapping[str, Rates]

    @property
    def register(self) -> PairState | None:
        """The newest value that a site has read."""
        values = [view.register for view in self.seen.views.values() if view is not None and view.register is not None]
        return max(values, key=lambda value: (value.home_forced, value.state_id), default=None)

    def view(self, site: str) -> SiteView | None:
        return self.seen.views.get(site)

    def told_of(self, site: str) -> SiteFacts | StatusReply | None:
        """Returns what `site` says about itself, to the monitor or through the other site."""
        view, other = self.view(site), self.view(OTHER[site])
        return view.own if view is not None else other.peer if other is not None else None

    def silence(self, site: str) -> tuple[str, ...]:
        """Names those who do not reach it."""
        other = self.view(OTHER[site])
        said = [f"the monitor: {self.seen.errors.get(site, 'no answer')}"] if self.view(site) is None else []
        if other is not None and other.peer is None:
            said.append(f"site {OTHER[site]}: {other.peer_error}")
        return tuple(said)


def candidate(look: PairLook) -> str | None:
    """The site whose checks are needed to judge this look: it would have to take over."""
    wanted = next((found for found in _active(look) if found.kind is AdviceKind.FAILOVER), None)
    return wanted.site if wanted is not None else None


def findings(look: PairLook, settings: Thresholds) -> list[Finding]:
    """Everything that stands out now, the most urgent first."""
    if all(view is None for view in look.seen.views.values()):
        said = tuple(f"the monitor: {look.seen.errors.get(site, 'no answer')}" for site in look.seen.views)
        return [Finding(
            "nobody", AdviceKind.LOOK, None, "no site answers the monitor, so whether they live is unknown: if others reach "
            "them, repair the way from here; if not, start the gateways of both. If a site is lost for good, start the other "
            "one, and ask again: it says what to do", said, "twinlog serve --config SITE.toml",
        )]
    found = [_judged(one, look) for one in _active(look)] + list(_sites(look, settings)) + list(_service(look, settings))
    order = (AdviceKind.FAILOVER, AdviceKind.DEGRADE, AdviceKind.LOOK, AdviceKind.RESYNC)
    return sorted(found, key=lambda one: order.index(one.kind))


# ---- the active
def _active(look: PairLook) -> Iterator[Finding]:
    """Yields what the state of the active calls for; a failover also when nobody knows yet whether it would work."""
    register = look.register
    backward = [view.own for view in look.seen.views.values() if view is not None and view.own.register_went_back is not None]
    if backward:
        site = max(backward, key=lambda own: own.met_epoch).met_active or backward[0].site
        before, to, silent = _begins_anew(look, site)
        yield Finding("register-went-back", AdviceKind.LOOK, to, f"{before}{backward[0].register_went_back}; {advice(to, to)}",
                      (*(f"site {own.site}: {own.register_went_back}" for own in backward), *silent), command(to))
        return
    lost = [view.own for view in look.seen.views.values() if view is not None and view.own.forgotten_epoch is not None]
    if lost and (register is None or (register.active is None and register.switching is None)):
        knows = max(lost, key=lambda own: (own.met_epoch, own.forgotten_epoch or 0))
        site = knows.met_active or knows.site
        before, to, silent = _begins_anew(look, site)
        way = advice_for_lost_register(to, to, knows.forgotten_epoch or 0)
        yield Finding("register-lost", AdviceKind.LOOK, to, before + way,
                      (*(f"site {own.site}: it knows of epoch {own.forgotten_epoch}" for own in lost), *silent), command(to))
        return
    alone = next((view.own for view in look.seen.views.values() if view is not None and _left_alone(look, view.own)), None)
    if register is None and alone is not None:
        yield _alone(look, alone)
        return
    if register is None or register.active is None:
        if any(view is not None for view in look.seen.views.values()):
            yield _unread(look)
        return
    running = [view.running for view in look.seen.views.values() if view is not None and view.running is not None]
    plan = register.switching
    if plan is not None and plan.site != register.active and not running:
        told, back = look.told_of(plan.site), f"twinlog failover --to {register.active}"
        if told is None:
            yield Finding("plan", AdviceKind.LOOK, plan.site,
                          f"site {plan.site}, which has the pair for its {plan.kind}, answers nobody: start its gateway, and "
                          f"it continues; if it is lost, a failover to site {register.active} takes the pair back",
                          look.silence(plan.site), back)
            return
        if (told.waiting_for or "").startswith("the operator") and look.told_of(register.active) is not None:
            yield Finding("plan", AdviceKind.LOOK, plan.site,
                          f"site {plan.site}, which has the pair for its {plan.kind}, waits for {told.waiting_for} (`twinlog "
                          f"history` shows why it stopped); a failover to site {register.active} takes the pair back",
                          (f"the register: {register.reason}",), back)
            return
    if plan is not None and plan.site == register.active and not running:
        plan = None  # its restart is not under way: the active is gone, or something keeps it from opening
    if plan is not None or running:
        what = f"{plan.kind} to {plan.site}" if plan is not None else f"operation {running[0]}"
        yield Finding("plan", AdviceKind.LOOK, plan.site if plan is not None else None, f"a role change has the pair: {what}",
                      (f"the register: {register.reason}",), f"twinlog history {running[0] if running else ''}".rstrip())
        return
    site, told = register.active, look.told_of(register.active)
    if told is None:
        yield _unseen(look, register, site)
    elif permissions(told.role).reads:
        if isinstance(told, SiteFacts):
            yield from _open(look, register, told)
    else:
        waits = f", and waits for {told.waiting_for}" if told.waiting_for else ""
        if isinstance(told, SiteFacts) and told.peer_dfs_error is not None and look.told_of(OTHER[site]) is None:
            reason = (
                f"site {site} is {told.role} and serves nobody{waits}; site {OTHER[site]} and its DFS answer nobody: if they "
                f"are lost for good, a degrade opens site {site} alone"
            )
            said = f"site {site}: {told.peer_dfs_error}"
            yield Finding(f"alone-{site}", AdviceKind.LOOK, site, reason, (said, *look.silence(OTHER[site])), "twinlog degrade")
            return
        yield _failover("not-serving", register, site, f"site {site} is {told.role} and serves nobody{waits}",
                        (f"site {site}: it is {told.role}",), look)


def _begins_anew(look: PairLook, site: str) -> tuple[str, str, tuple[str, ...]]:
    """Returns what to do before, the site with which the pair can begin anew, and who does not reach `site`, the last active: a
    site that answers nobody cannot execute the command."""
    if look.told_of(site) is not None:
        return "", site, ()
    before = (
        f"site {site}, the last active that is known, answers nobody: start its gateway first, because it alone may have "
        "acknowledged writes; if it is lost, make sure that it does not run; "
    )
    return before, OTHER[site], look.silence(site)


def _unread(look: PairLook) -> Finding:
    """No site has read who the active is."""
    views = [view.own for view in look.seen.views.values() if view is not None]
    said = tuple(f"site {own.site}: {own.coordinator_error or 'the register names no active'}" for own in views)
    own = next((one for one in views if permissions(one.role).reads), views[0])
    site, other, missing = own.site, OTHER[own.site], _register(own)
    if all(one.coordinator_error is None for one in views):
        reason, missing = "no site is the active yet", ""
    elif permissions(own.role).reads:
        state = f"site {site} is {own.role}" + ("" if own.serves_writes else f", and takes no writes: {own.serves_not}")
        reason = f"{state}; no site that answers reaches {missing}"
    elif look.told_of(other) is None and own.register_home is None and own.met_active == other:
        way = f"twinlog failover --to {site} --without-coordinator"
        return Finding("lost-with-coordinator", AdviceKind.LOOK, site,
                       f"site {other}, the last active that site {site} knows of, does not answer, nor does {missing}: bring "
                       f"one of them back; if both are lost for good, and site {other} does not run: `{way}`, with its risk",
                       (*said, *look.silence(other)), f"twinlog validate --for failover --to {site}")
    else:
        reason = f"which site is the active is unknown: no site that answers is the active, or reaches {missing}"
    do = "; bring it back, or the way to it: until then no role changes" if missing else ""
    return Finding("no-register", AdviceKind.LOOK, None, f"{reason}{do}", said, "twinlog status")


def _left_alone(look: PairLook, own: SiteFacts) -> bool:
    """Returns whether the site was the active by all it knows, and the other site's DFS, with the register, is gone."""
    other = look.told_of(OTHER[own.site])
    gone = own.coordinator_error is not None and own.peer_dfs_error is not None and own.register_home == OTHER[own.site]
    return gone and own.met_active == own.site and (other is None or other.role == Role.STANDBY)


def _alone(look: PairLook, own: SiteFacts) -> Finding:
    site, other = own.site, OTHER[own.site]
    told, unless = look.told_of(other), f"is lost for good, and site {other} has not taken over"
    if told is not None:
        unless = f"is lost, or was replaced: site {other} is {told.role}"
    reason = (
        f"site {site}, the active, serves nobody: the DFS of site {other}, with its remote log and the register, does not "
        f"answer; if that DFS {unless}, a degrade opens site {site} alone"
    )
    said = (f"site {site}: {own.peer_dfs_error}", *(look.silence(other) if told is None else ()))
    return Finding(f"alone-{site}", AdviceKind.LOOK, site, reason, said, "twinlog degrade")


def _register(own: SiteFacts) -> str:
    return "the coordinator" if own.register_home is None else f"the register on the DFS of site {own.register_home}"


def _unseen(look: PairLook, register: PairState, site: str) -> Finding:
    other = look.view(OTHER[site])
    assert other is not None, "somebody answers, or there is nothing to judge"
    reason = f"site {site}, the active, answers neither the monitor nor site {OTHER[site]}"
    if other.own.coordinator_error is not None:
        said = (*look.silence(site), f"site {OTHER[site]}: {other.own.coordinator_error}")
        why = f"{reason}; nor does that one reach {_register(other.own)}: it may be cut off itself"
        return Finding("alone", AdviceKind.LOOK, site, why, said, "twinlog status")
    if site in look.moved:
        said = (*look.silence(site), f"site {OTHER[site]}: it still writes its remote log, or renews its lease")
        return Finding("cut-off", AdviceKind.LOOK, site, f"{reason}, but it lives and writes: repair the network", said,
                       "twinlog status")
    if register.mode == "sync" and other.own.remote_log_mark is None:
        said = (*look.silence(site), f"site {OTHER[site]}: it cannot read the remote log on its own DFS")
        return Finding("unread", AdviceKind.LOOK, site, f"{reason}; whether it still writes is unknown", said, "twinlog status")
    proof_s = other.own.lease_s * (1 + other.own.drift_margin)  # without an append, or a renewal, for so long it serves nobody
    return replace(_failover("silent", register, site, reason, look.silence(site), look), hold_min_s=proof_s)


def _open(look: PairLook, register: PairState, told: SiteFacts) -> Iterator[Finding]:
    """It has its epoch open; whether it serves is a matter of its lease."""
    site, other = told.site, OTHER[told.site]
    if told.lease_left_s is not None and told.lease_left_s > 0:
        yield from _resync(look, told)
        if not told.serves_writes and permissions(told.role).writes:
            yield Finding(f"writes-wait-{site}", AdviceKind.LOOK, site, told.serves_not or f"writes wait at site {site}",
                          (f"site {site}: {told.serves_again or 'it does not say why'}",), "twinlog status")
        return
    if told.local_log_error is not None:  # nothing reaches the remote log then, either: a degrade would help nobody
        reason = f"site {site} serves nobody: its own log cannot be written; make room on its disk, or see to it"
        yield _failover("local-log", register, site, reason, (f"site {site}: {told.local_log_error}",), look)
        return
    said = [f"site {site}: its read lease has run out"]
    said += [f"site {site}: {told.peer_dfs_error}"] if told.peer_dfs_error else []
    view = look.view(other)
    said += [f"site {other}: {view.own.own_dfs_error}"] if view is not None and view.own.own_dfs_error else []
    if told.coordinator_error is not None:
        said.append(f"site {site}: {told.coordinator_error}")
        reason = f"site {site} serves nobody: no append to its remote log succeeds, and it does not reach {_register(told)}"
        yield _failover("no-proof-no-coordinator", register, site, reason, tuple(said), look)
    elif told.mode == "sync":
        reason = f"writes wait: nothing reaches the remote log of site {site} on the DFS of site {other}"
        may_act = register.home is None and told.policy == "available"
        yield Finding("no-proof", AdviceKind.DEGRADE, site, reason, tuple(said), "twinlog degrade", may_act)


def _resync(look: PairLook, told: SiteFacts) -> Iterator[Finding]:
    other = look.told_of(OTHER[told.site])
    waits_for_word = told.mode == "async" and told.policy != "performance" and told.resyncs is False
    if waits_for_word and other is not None and other.role == Role.STANDBY and told.peer_dfs_error is None:
        said = (f"site {told.site}: degraded by command", f"site {OTHER[told.site]}: it is {other.role}")
        reason = "writes have one copy, and the standby is ready for the second"
        yield Finding("resync", AdviceKind.RESYNC, told.site, reason, said, "twinlog resync")


def _failover(name: str, register: PairState, lost: str, reason: str, said: tuple[str, ...], look: PairLook) -> Finding:
    to = OTHER[lost]
    view = look.view(to)
    may_act = register.home is None and view is not None and view.own.policy == "available"
    command = f"twinlog failover --to {to}"
    return Finding(f"{name}-{lost}-{register.epoch}", AdviceKind.FAILOVER, to, reason, said, command, may_act)


def _judged(found: Finding, look: PairLook) -> Finding:
    """A failover that would not work is none to advise."""
    if found.kind is not AdviceKind.FAILOVER:
        return found
    to, readiness = found.site, look.seen.readiness
    told = f"twinlog validate --for failover --to {to}"
    if readiness is None or readiness.site != to or not readiness.ok:
        failed = readiness.failed if readiness is not None and readiness.site == to else ()
        said = (*found.evidence, *(f"site {to}: {one}" for one in failed))
        why = f"site {to} cannot take over: {', '.join(one.partition(':')[0] for one in failed)}" if failed else \
            f"whether site {to} can take over is unknown"
        return replace(found, id=f"blocked-{found.id}", kind=AdviceKind.LOOK, reason=f"{found.reason}; {why}", evidence=said,
                       command=told, may_act=False)
    but = f"; it does not know of {', '.join(readiness.unknown)}" if readiness.unknown else ""
    return replace(found, evidence=(*found.evidence, f"site {to}: it can take over{but}"))


# ---- the sites, and what they reach
def _sites(look: PairLook, settings: Thresholds) -> Iterator[Finding]:
    active = look.register.active if look.register is not None else None
    for site in look.seen.views:
        view, told = look.view(site), look.told_of(site)
        if view is None and told is not None:
            yield _look(f"monitor-{site}", site, f"the monitor does not reach site {site}, which site {OTHER[site]} "
                        "reaches: repair the way from here",
                        *look.silence(site))
        elif told is None and site != active and not _stands_in(look, OTHER[site]):
            yield _look(f"down-{site}", site, f"site {site} answers nobody: start its gateway, or repair the network",
                        *look.silence(site))
        if view is None:
            continue
        own = view.own
        if view.peer is None and look.view(OTHER[site]) is not None:
            yield _look(f"way-{site}", site, f"site {site} does not reach the gateway of site {OTHER[site]}, which answers the "
                        f"monitor: repair what its error names, the network, peer.url of site {site}, or the certificates",
                        f"site {site}: {view.peer_error}")
        if own.coordinator_error is not None:
            yield _look(f"coordinator-{site}", site,
                        f"site {site} does not reach {_register(own)}: bring it back, or the way to it",
                        f"site {site}: {own.coordinator_error}")
        if own.own_dfs_error is not None:
            yield _look(f"dfs-{site}", site, f"the DFS of site {site} takes no files: repair it",
                        f"site {site}: {own.own_dfs_error}")
        elif own.peer_dfs_error is not None and site == active:
            yield _look(f"peer-dfs-{site}", site,
                        f"site {site} cannot write the DFS of site {OTHER[site]}: repair it, or the network",
                        f"site {site}: {own.peer_dfs_error}")
        if own.stands_in:
            yield _without_coordinator(site)
        if site != active:
            yield from _standby(own, settings)
        elif own.peer_set_back is not None:
            yield _look(f"set-back-{OTHER[site]}", OTHER[site], own.peer_set_back,
                        f"site {site}: what site {OTHER[site]} says that it has stored")


def _without_coordinator(site: str) -> Finding:
    reason = (
        f"site {site} keeps the register itself, since its coordinator was given up: do not start site {OTHER[site]} with the "
        f"old one. In daylight give both sites a new, empty coordinator.url, start site {site} with it, then "
        f"`{command(site)}`, then start site {OTHER[site]}"
    )
    said = (f"site {site}: it serves, and site {OTHER[site]} cannot follow",)
    return Finding(f"stands-in-{site}", AdviceKind.LOOK, site, reason, said, "twinlog serve --config SITE.toml")


def _stands_in(look: PairLook, site: str) -> bool:
    view = look.view(site)
    return view is not None and view.own.stands_in


def _standby(own: SiteFacts, settings: Thresholds) -> Iterator[Finding]:
    if own.role != Role.STANDBY:
        waits = f" and waits for {own.waiting_for}" if own.waiting_for else ""
        if own.role != Role.SWITCHING and not permissions(own.role).reads:
            yield _look(f"role-{own.site}", own.site, f"site {own.site} follows nobody: it is {own.role}{waits}",
                        f"site {own.site}: it is {own.role}")
        return
    if own.blocker is not None:
        yield _look(f"blocker-{own.site}", own.site, f"site {own.site} could not take over", f"site {own.site}: {own.blocker}")
    if own.heard_s is not None and own.heard_s > settings.silence_max_s:
        yield _look(f"silence-{own.site}", own.site, f"nothing is shipped to site {own.site}",
                    f"site {own.site}: the active was last heard {own.heard_s:.0f} s ago")


def _service(look: PairLook, settings: Thresholds) -> Iterator[Finding]:
    """Errors and latency, as clients of a site meet them."""
    active = look.register.active if look.register is not None else None
    rates = look.rates.get(active) if active is not None else None
    if active is None or rates is None:
        return
    if rates.failed_share is not None and rates.failed_share > settings.failed_share_max:
        yield _look(f"failing-{active}", active, f"too many answers of site {active} are errors of its own",
                    f"site {active}: {rates.failed_share:.0%} of its answers failed in {settings.answers_window_s:.0f} s")
    if rates.ack_s is not None and rates.ack_s > settings.ack_slow_s:
        yield _look(f"slow-{active}", active,
                    f"acknowledgements of site {active} are slow: check its disk, and the DFS of site {OTHER[active]}",
                    f"site {active}: {rates.ack_s:.2f} s on average")


def _look(name: str, site: str, reason: str, *evidence: str) -> Finding:
    return Finding(name, AdviceKind.LOOK, site, reason, evidence, "twinlog status")
