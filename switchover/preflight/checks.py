"""The checks before a role change: named, each with what was seen and how to fix it. They judge gathered facts.

What always holds: an id is stable, for it stands in people's scripts; what could not be seen is `unknown`, never `ok`; a check
that failed stops the plan, for the plans' preflight and `twinlog validate` judge by this table and by nothing else.
Source: protocol.md section 8, switchover-lessons.md (2, 3, 9, 12).
This module is pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec

from remote_log.replication.formats import conflict, named
from switchover.facts import SiteFacts
from switchover.preflight.loss import LossManifest, acceptance_problem
from switchover.register.lost_value import advice_for_lost_register
from switchover.register.port import PairState
from switchover.register.went_back import advice
from switchover.roles.table import Role, permissions
from twinlog.errors import InvalidInput

Status = Literal["ok", "warning", "failed", "unknown"]
KINDS = ("switchover", "failover", "rejoin")
SKEW_WARNING_S = 1.0
HEARD_WARNING_S = 5.0
LAG_WARNING_RECORDS = 100_000  # a switchover waits until most of them are applied, while writes continue
OPEN_LEASES_WARNING = 8  # the recovery of each takes a DFS seconds, or a minute
DISK_FAILED_BYTES, DISK_WARNING_BYTES = 64 << 20, 1 << 30


class Check(msgspec.Struct, frozen=True):
    """One check as judged. `fix`: what to do, empty when there is nothing to do."""

    id: str
    status: Status
    seen: str
    fix: str = ""


@dataclass(frozen=True)
class CheckFacts:
    """Everything that is judged. `own`: the site that would execute the role change."""

    kind: str
    own: SiteFacts
    peer_name: str
    peer: SiteFacts | None
    peer_error: str
    state: PairState | None  # the coordinator's value, or the highest that is known where it is out of reach
    unseen: str | None = None  # without a coordinator: the site on whose DFS nothing could be looked at
    skew_s: float | None = None  # the other site's clock ahead of the own one, less what the call can explain
    manifest: LossManifest | None = None  # what a failover may lose; None: nothing that was acknowledged
    accepted: object = None  # the loss that the operator accepts: a count, `unknown`, or None
    unfinished: str | None = None  # the last operation of this site, if it stopped half-way
    automatic: bool = False  # nobody decided it but the availability monitor

    @property
    def blind(self) -> bool:
        return self.state is None and self.own.coordinator_error is not None

    @property
    def went_back(self) -> str | None:
        """Says how the register is older than what this site has met, or the other one."""
        if self.own.register_went_back is not None:
            return self.own.register_went_back
        if self.peer is not None and self.peer.register_went_back is not None:
            return f"{self.peer.register_went_back} (site {self.peer_name})"
        return None

    @property
    def stands_in(self) -> bool:
        """True when this site would take the place of the other one, and not continue its own."""
        return self.state is not None and self.state.active not in (None, self.own.site)


class Judgement(NamedTuple):
    status: Status
    seen: str
    fix: str = ""


def judge(facts: CheckFacts) -> list[Check]:
    """The checks of this kind of role change, in the order in which they are shown. Raises InvalidInput for another kind."""
    if facts.kind not in KINDS:
        raise InvalidInput(f"there are no checks for {facts.kind!r}: it is one of {', '.join(KINDS)}", kind=facts.kind)
    return [Check(one.id, *one.judge(facts)) for one in CHECKS if facts.kind in one.kinds]


# ---- the coordinator and the pair
def _coordinator(facts: CheckFacts) -> Judgement:
    state, error = facts.state, facts.own.coordinator_error
    if error is None:
        if facts.kind == "failover" and facts.unseen == facts.peer_name:
            return Judgement(
                "unknown", f"the DFS of site {facts.peer_name} does not answer: a degrade that was recorded there is not seen",
                "nothing, if it was not; writes that it acknowledged asynchronously would be lost",
            )
        return Judgement("ok", "it has no record of this pair yet" if state is None else f"it names epoch {state.epoch}")
    if facts.kind != "failover":
        return Judgement("failed", error, "bring it back: no role changes without it")
    if state is None:
        way = f"`twinlog failover --to {facts.own.site} --without-coordinator`, which shows the risk"
        return Judgement("failed", error, f"bring it back; if it is lost for good: {way}")
    if not facts.stands_in:
        return Judgement("failed", f"{error}; site {facts.own.site} is the active", "`twinlog degrade` opens it alone")
    return Judgement("warning", f"{error}; the last that is known is epoch {state.epoch}", "nothing: it continues from there")


def _same_coordinator(facts: CheckFacts) -> Judgement:
    if facts.peer is None or facts.blind:
        return Judgement("unknown", "the other site's value could not be read")
    if facts.peer.coordinator_error is not None:
        return Judgement("warning", f"site {facts.peer_name} does not reach it: {facts.peer.coordinator_error}",
                         f"repair the network from site {facts.peer_name} to the coordinator")
    if facts.peer.opened_by != facts.own.opened_by:
        return Judgement(
            "failed" if facts.kind == "switchover" else "warning",
            f"site {facts.own.site} sees {_plan(facts.own)}, site {facts.peer_name} sees {_plan(facts.peer)}",
            "both sites must be given the same coordinator: compare `twinlog config show` at both",
        )
    return Judgement("ok", "both sites see the same value")


def _plan(site: SiteFacts) -> str:
    return "no record of this pair" if site.opened_by is None else f"plan {site.opened_by}"


def _knows_pair(facts: CheckFacts) -> Judgement:
    if facts.blind or facts.own.coordinator_error is not None:
        return Judgement("unknown", "the coordinator does not answer")
    own, epoch = facts.own, facts.own.forgotten_epoch
    if facts.went_back is not None:
        if facts.kind == "failover" and facts.accepted is not None:
            return Judgement("warning", facts.went_back,
                             f"nothing: the pair begins anew; what site {facts.peer_name} alone acknowledged would be lost")
        return Judgement("failed", facts.went_back, advice(own.site, _once_active(own)))
    if epoch is None:
        return Judgement("ok", "it knows of every epoch that is known here")
    if facts.peer is not None and facts.peer.opened_by is not None:
        return Judgement("failed", f"it has no record of this pair, the one that site {facts.peer_name} asks has",
                         f"give site {own.site} the coordinator.url of site {facts.peer_name}")
    if facts.kind == "failover" and facts.accepted is not None:
        return Judgement("warning", f"it has no record of this pair; site {own.site} knows of epoch {epoch}",
                         f"nothing: the pair begins anew; what site {facts.peer_name} alone acknowledged would be lost")
    return Judgement("failed", f"it has no record of this pair; site {own.site} knows of epoch {epoch}",
                     advice_for_lost_register(own.site, _once_active(own), epoch))


def _once_active(own: SiteFacts) -> str | None:
    """Returns the site that would take over if it was the active. The other one may be lost."""
    return own.site if own.met_active == own.site else None


def _plan_running(facts: CheckFacts) -> Judgement:
    if facts.blind:
        return Judgement("unknown", "the coordinator does not answer")
    running = facts.state.switching if facts.state is not None else None
    if running is None:
        return Judgement("ok", "no plan has the pair")
    seen = f"plan {running.plan_id} ({running.kind} to {running.site}) has the pair"
    if running.site == facts.own.site:
        return Judgement("warning", f"{seen}, left by this site", "nothing: this site's next plan takes its place")
    if facts.kind == "failover":
        return Judgement("warning", seen, "nothing: a failover supersedes it")
    return Judgement("failed", seen, f"follow it, or resume or abort it at site {running.site}: `twinlog history`")


def _active(facts: CheckFacts) -> Judgement:
    if facts.blind:
        return Judgement("unknown", "the coordinator does not answer")
    active = facts.state.active if facts.state is not None else None
    if active is None and facts.own.forgotten_epoch is not None:
        return Judgement("unknown", "the coordinator has no record of it", "see coordinator.knows-pair")
    if active is None:
        return Judgement("failed", "the pair was never open", "start both sites: the first active opens automatically")
    if facts.kind != "failover" and active == facts.own.site:
        fix = f"`twinlog status`; a {facts.kind} is for the other site"
        return Judgement("failed", f"site {active} is the active itself", fix)
    return Judgement("ok", f"site {active}")


def _config(facts: CheckFacts) -> Judgement:
    own, peer = facts.own, facts.peer
    if peer is None:
        return Judgement("unknown", f"site {facts.peer_name} does not answer")
    if (peer.pair, peer.site) != (own.pair, facts.peer_name):
        return Judgement(
            "failed", f"peer.url leads to site {peer.site} of pair {peer.pair}", "correct peer.url: `twinlog config show`"
        )
    waits_s = own.lease_s * (1 + own.drift_margin)
    if waits_s < peer.lease_s:
        seen = f"site {own.site} would wait {waits_s:g} s for a lease of {peer.lease_s:g} s"
        return Judgement("failed", seen, "give both sites the same lease.lease_s, and restart")
    differing = [name for name in ("lease_s", "drift_margin", "initial_active", "policy")
                 if getattr(own, name) != getattr(peer, name)]
    if differing:
        seen = ", ".join(f"{name} is {getattr(own, name)} here and {getattr(peer, name)} there" for name in differing)
        return Judgement("warning", seen, "make both sites' configurations equal")
    return Judgement("ok", "lease and policy are equal")


def _releases(facts: CheckFacts) -> Judgement:
    own, peer = facts.own, facts.peer
    if peer is None:
        return Judgement("unknown", f"site {facts.peer_name} does not answer; this site runs {named(own.says)}")
    why = conflict(own.says, peer.says, own.formats_written, own.release)
    if why is not None and facts.kind == "failover":
        return Judgement("warning", why, f"nothing for the takeover; site {facts.peer_name} cannot follow before")
    if why is not None:
        return Judgement("failed", why, "docs/upgrade.md: install what is named; nothing is lost meanwhile")
    seen = f"release {own.release} here and {peer.release} at site {facts.peer_name} work together"
    if (own.release, own.says) != (peer.release, peer.says):
        return Judgement("warning", seen, "finish the upgrade when there is time for it: docs/upgrade.md")
    return Judgement("ok", seen)


# ---- the sites
def _peer_answers(facts: CheckFacts) -> Judgement:
    if facts.peer is not None:
        if facts.kind == "failover" and facts.stands_in and permissions(facts.peer.role).reads:
            if facts.automatic and facts.peer.lease_left_s:
                return Judgement("failed", f"site {facts.peer_name} answers and serves: it is {facts.peer.role}",
                                 "nothing: the monitor never takes over from a site that serves")
            return Judgement("warning", f"site {facts.peer_name} answers and is {facts.peer.role}",
                             f"`twinlog switchover --to {facts.own.site}` loses nothing, and pauses writes for less long")
        return Judgement("ok", f"site {facts.peer_name} answers")
    if facts.kind == "failover":
        return Judgement("unknown", f"{facts.peer_error}: whether it still runs is not known",
                         "nothing: it is locked out before this site opens")
    way = "use failover if it is lost" if facts.kind == "switchover" else "start it: a site rejoins an active that answers"
    return Judgement("failed", facts.peer_error, f"see whether site {facts.peer_name} runs and is reached from here; {way}")


def _peer_role(facts: CheckFacts) -> Judgement:
    if facts.peer is None:
        return Judgement("unknown", f"site {facts.peer_name} does not answer")
    role = facts.peer.role
    allowed = permissions(role)
    is_active = allowed.reads if facts.kind == "switchover" else allowed.writes
    waits = f", and waits for {facts.peer.waiting_for}" if facts.peer.waiting_for else ""
    if facts.kind == "failover" or is_active:
        return Judgement("ok", f"site {facts.peer_name} is {role}{waits}")
    seen = f"site {facts.peer_name} is {role}{waits}: it must be the active"
    return Judgement("failed", seen, "`twinlog status` shows what it waits for")


def _own_role(facts: CheckFacts) -> Judgement:
    own, running = facts.own, facts.state.switching if facts.state is not None else None
    seen = f"site {own.site} is {own.role}"
    if facts.kind == "switchover":
        if own.role == Role.STANDBY:
            return Judgement("ok", seen)
        seen += f": it must be a standby that follows {facts.peer_name}"
        return Judgement("failed", seen, f"`twinlog rejoin {own.site}`")
    if facts.kind == "failover":
        held_up = running is not None and running.site == facts.peer_name
        begins_anew = own.forgotten_epoch is not None or facts.went_back is not None
        if not permissions(own.role).reads or held_up or begins_anew:
            return Judgement("ok", seen)
        return Judgement("failed", f"{seen} in epoch {own.epoch}: there is nothing to take over", "`twinlog status`")
    if permissions(own.role).reads:
        return Judgement("failed", f"{seen} in epoch {own.epoch}", "the active restarts, it does not rejoin")
    return Judgement("ok", seen)


def _base(facts: CheckFacts) -> Judgement:
    if facts.own.blocker is None:
        return Judgement("ok", f"site {facts.own.site} holds all that it was sent, up to {facts.own.applied_seq:,}")
    return Judgement("failed", facts.own.blocker, f"`twinlog status` shows what site {facts.own.site} lacks, and how far it is")


def _lag(facts: CheckFacts) -> Judgement:
    own, peer = facts.own, facts.peer
    if peer is None:
        heard = "" if own.heard_s is None else f"; the active was last heard {own.heard_s:.1f} s ago"
        return Judgement("unknown", f"site {own.site} has applied up to {own.applied_seq:,}{heard}",
                         "nothing: what the remote log has is replayed" if facts.kind == "failover" else "")
    behind = max(0, peer.committed_seq - own.applied_seq)
    seen = f"{behind:,} records behind" + ("" if own.heard_s is None else f", heard {own.heard_s:.1f} s ago")
    if facts.kind == "switchover" and own.heard_s is not None and own.heard_s > HEARD_WARNING_S:
        return Judgement("warning", seen, f"find out why site {facts.peer_name} does not ship: `twinlog status`")
    if facts.kind == "switchover" and behind > LAG_WARNING_RECORDS:
        return Judgement("warning", seen, "nothing: the switchover waits until it is close, while writes continue")
    return Judgement("ok", seen)


def _lease(facts: CheckFacts) -> Judgement:
    if facts.peer is None:
        return Judgement("unknown", f"site {facts.peer_name} does not answer")
    left = facts.peer.lease_left_s
    if left is None:
        return Judgement("unknown", f"site {facts.peer_name} has no epoch open")
    if left > 0:
        return Judgement("ok", f"proved at site {facts.peer_name}, {left:.1f} s left")
    return Judgement("warning", f"site {facts.peer_name} cannot prove that it is the active: it answers nobody",
                     "see what its remote log or the coordinator lacks: `twinlog status`")


def _skew(facts: CheckFacts) -> Judgement:
    if facts.skew_s is None:
        return Judgement("unknown", f"site {facts.peer_name} does not answer")
    ahead = "ahead of" if facts.skew_s > 0 else "behind"
    seen = f"site {facts.peer_name} is {abs(facts.skew_s):.1f} s {ahead} site {facts.own.site}"
    if abs(facts.skew_s) > SKEW_WARNING_S:
        return Judgement("warning", seen, "check NTP at both sites; nothing is lost, but versions and times jump")
    return Judgement("ok", "less than a second" if facts.skew_s else "within what the call took")


# ---- logs and disks
def _own_dfs(facts: CheckFacts) -> Judgement:
    if facts.own.own_dfs_error is None:
        return Judgement("ok", f"the DFS of site {facts.own.site} takes files")
    status: Status = "warning" if facts.kind == "rejoin" else "failed"
    return Judgement(status, facts.own.own_dfs_error, f"repair the DFS of site {facts.own.site}: the claims are made there")


def _writes_remote_log(facts: CheckFacts) -> Judgement:
    """By the site that would be active, on the DFS of the other one."""
    writer = facts.peer if facts.kind == "rejoin" else facts.own
    if writer is None:
        return Judgement("unknown", f"site {facts.peer_name} does not answer")
    other = facts.own.site if facts.kind == "rejoin" else facts.peer_name
    if writer.peer_dfs_error is None:
        return Judgement("ok", f"site {writer.site} can write it on the DFS of site {other}")
    if facts.kind == "switchover":
        return Judgement("failed", writer.peer_dfs_error, f"repair the DFS of site {other}: the remote log goes there")
    return Judgement("warning", writer.peer_dfs_error, f"writes stay asynchronous until the DFS of site {other} is back")


def _remote_log_found(facts: CheckFacts) -> Judgement:
    state = facts.state
    if facts.own.own_dfs_error is not None or state is None:
        return Judgement("unknown", "it could not be looked for")
    if not facts.stands_in:
        return Judgement("ok", "this site was the active itself: it is not read here")
    if state.mode != "sync":
        return Judgement("ok", "asynchronous: it ends where the active continued alone")
    if facts.own.remote_log_missing is None:
        return Judgement("ok", f"the one of epoch {state.epoch} is on the DFS of site {facts.own.site}")
    seen = f"missing: {facts.own.remote_log_missing}"
    if facts.accepted is not None:
        return Judgement("warning", seen, "nothing: the loss was accepted")
    return Judgement("failed", seen, "bring that DFS, or the old active, back; or force: --accept-data-loss --count unknown")


def _remote_log_readable(facts: CheckFacts) -> Judgement:
    own = facts.own
    if own.own_dfs_error is not None:
        return Judgement("unknown", "it could not be looked at")
    if not facts.stands_in:
        return Judgement("ok", "this site was the active itself: it is not read here")
    if own.remote_log_unreadable is None:
        return Judgement("ok", f"site {own.site} has every key that is named there")
    fix = f"give site {own.site} that key, in its file, and start it anew: nothing is lost, and nothing can be read before"
    return Judgement("failed", own.remote_log_unreadable, fix)


def _open_leases(facts: CheckFacts) -> Judgement:
    count = facts.own.open_leases
    if count is None:
        return Judgement("unknown", "they could not be listed")
    seen = "one file is open" if count == 1 else f"{count} files are open" if count else "none"
    if count > OPEN_LEASES_WARNING:
        return Judgement("warning", seen, "nothing: the fence closes all of them, which may take longer")
    return Judgement("ok", seen + (", the fence closes it" if count == 1 else ", the fence closes them" if count else ""))


def _disk(facts: CheckFacts) -> Judgement:
    worst: Status = "ok"
    seen, short = [], []
    for site in (facts.own, facts.peer):
        if site is None or site.free_bytes is None:
            continue
        seen.append(f"{site.free_bytes / (1 << 30):,.1f} GiB free at {site.site}")
        if site.free_bytes < DISK_WARNING_BYTES:
            short.append(site.site)
            blocks = site is facts.own and site.free_bytes < DISK_FAILED_BYTES and facts.kind == "switchover"
            worst = "failed" if blocks else worst if worst == "failed" else "warning"
    if not seen:
        return Judgement("unknown", "no disk was measured")
    return Judgement(worst, ", ".join(seen), f"make room at site {' and '.join(short)}" if short else "")


def _mode(facts: CheckFacts) -> Judgement:
    if facts.state is None:
        return Judgement("unknown", "the coordinator does not answer")
    if facts.kind == "failover":
        problem = acceptance_problem(facts.manifest, facts.accepted)
        if problem is not None:
            return Judgement("failed", problem.seen, problem.fix)
        if facts.manifest is not None:
            return Judgement("warning", facts.manifest.statement, "nothing: the loss was accepted")
    if facts.state.mode == "sync":
        return Judgement("ok", "synchronous")
    fix = "`twinlog resync`" if facts.kind != "rejoin" else "nothing: the pair goes back to synchronous after it"
    if facts.own.policy == "performance":
        fix = "nothing: the policy is performance"
    return Judgement("warning", "asynchronous: the active's disk holds the only copy of what was not shipped yet", fix)


def _journal(facts: CheckFacts) -> Judgement:
    if facts.unfinished is None:
        return Judgement("ok", f"nothing stopped half-way at site {facts.own.site}")
    return Judgement("warning", facts.unfinished, "nothing, if you start anew; else `twinlog resume` or `twinlog abort`")


def _audit(facts: CheckFacts) -> Judgement:
    """A warning at most: an audit proves what was, and a failover must not wait for one."""
    own, known = facts.own, [site.last_good_audit_ms for site in (facts.own, facts.peer) if site is not None]
    known_ms = [ms for ms in known if ms is not None]
    if not own.audit_recent_s:
        return Judgement("ok", "not asked for (audits.recent_s is 0)")
    fix = "`twinlog audit run compare`, when there is time for it"
    if not known_ms:
        return Judgement("warning", "no audit has found both sites equal yet, as far as is known here", fix)
    age_s = max(0.0, (own.wall_ms - max(known_ms)) / 1000)
    seen = f"both sites were last found equal {age_s / 3600:,.1f} h ago"
    return Judgement("warning", seen, fix) if age_s > own.audit_recent_s else Judgement("ok", seen)


def _listeners(facts: CheckFacts) -> Judgement:
    """A warning at most: a failover waits for no certificate."""
    said = [f"site {site.site}: {site.notices}" for site in (facts.own, facts.peer) if site is not None and site.notices]
    if not said:
        return Judgement("ok", "nothing to say of listeners and certificates")
    return Judgement("warning", "; ".join(said), "see docs/security.md, when there is time for it")


class CheckRow(NamedTuple):
    id: str
    kinds: tuple[str, ...]
    judge: Callable[[CheckFacts], Judgement]


_TAKES = ("switchover", "failover")
CHECKS = (
    CheckRow("coordinator.answers", KINDS, _coordinator),
    CheckRow("coordinator.same", KINDS, _same_coordinator),
    CheckRow("coordinator.knows-pair", KINDS, _knows_pair),
    CheckRow("coordinator.plan-running", KINDS, _plan_running),
    CheckRow("pair.active", KINDS, _active),
    CheckRow("pair.config-agrees", KINDS, _config),
    CheckRow("pair.releases-fit", KINDS, _releases),
    CheckRow("peer.answers", KINDS, _peer_answers),
    CheckRow("peer.role", KINDS, _peer_role),
    CheckRow("site.role", KINDS, _own_role),
    CheckRow("standby.base-complete", _TAKES, _base),
    CheckRow("mode.sync", KINDS, _mode),
    CheckRow("replication.lag", KINDS, _lag),
    CheckRow("read-lease.proved", ("switchover", "rejoin"), _lease),
    CheckRow("remote-log.found", _TAKES, _remote_log_found),
    CheckRow("remote-log.readable", _TAKES, _remote_log_readable),
    CheckRow("remote-log.open-leases", _TAKES, _open_leases),
    CheckRow("remote-log.writable", KINDS, _writes_remote_log),
    CheckRow("dfs.own-writable", KINDS, _own_dfs),
    CheckRow("wal.disk-space", KINDS, _disk),
    CheckRow("clock.skew", KINDS, _skew),
    CheckRow("journal.unfinished", KINDS, _journal),
    CheckRow("audit-recent", _TAKES, _audit),
    CheckRow("listeners.guarded", KINDS, _listeners),
)
