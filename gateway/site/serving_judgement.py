"""The one judgement of a site: does it answer writes and reads now, and if not, why, and what does an operator type?

Health, the cluster document, metrics, the log line at each change and the facts for monitor and other site all show this, so
that none of them calls a site healthy that another one knows to serve nobody.
What always holds: an active whose proof is older than its read lease serves nothing, whatever its role; an error of a
dependency counts only while it is that dependency's newest word; whatever does not serve has a reason and a way out.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from gateway.epoch.words import Words
from gateway.service.documents import ServingDocument, SiteTrouble
from remote_log.replication.setback import Setback
from switchover.roles.table import Role, permissions

OWN_DFS, PEER_DFS, COORDINATOR, REGISTER, PEER, WAY, STORAGE, LOCAL_LOG, KEYS = (
    "own DFS", "peer DFS", "coordinator", "register", "peer", "way", "storage", "local log", "remote log keys",
)
LOST_REGISTER = "it was deleted or replaced, or is another one"
STALLED_S = 3.0  # a write that waits for longer than this does not wait for its turn
SILENCE_S = 5.0  # of the active, as its standby hears it
STANDBY_STORAGE = "standby's storage"
SETBACK_SHOWN_S = 60.0  # at least: it may be made up for before anybody looks


class Refusal(NamedTuple):
    """A schema change that the site's database refuses: what the site waits for, and the operator's ways on."""

    what: str
    do: str

    def __str__(self) -> str:
        return f"{self.what}: {self.do}"


class ServingFacts(msgspec.Struct, frozen=True, kw_only=True):
    """All that is judged. Ages in seconds; None: there is none, or it is not known."""

    site: str
    peer: str
    role: Role
    reason: str  # why it has this role
    waiting_for: str | None
    words: Words  # of the dependencies above
    register_home: str | None = None  # without a coordinator: the site on whose DFS the register is
    refused: Refusal | None = None  # the storage stands at a schema change that its database refuses
    trail_fault: str | None = None
    releases: str | None = None  # why its release and that of the other site do not work together
    # ---- of an open epoch
    needs_remote: bool = False
    degrades: bool = False  # the policy leaves the synchronous mode by itself
    lease_s: float = 0.0
    proof_age_s: float | None = None  # of the newest proof that it is not fenced; None: no epoch is open
    waiting_age_s: float = 0.0  # of the oldest write that waits for its acknowledgement
    work: tuple[tuple[str, str], ...] = ()  # its background work that failed last time, and why
    damaged: tuple[str, ...] = ()  # what is wrong with each segment of its remote log that cannot be read, nor be trimmed
    left_out: str | None = None  # what its remote log held, and its own log does not contain
    stands_in: bool = False  # it keeps the register itself, since an operator gave the coordinator up
    setback: Setback | None = None  # of the standby's storage
    setback_age_s: float = 0.0
    peer_answers: bool = False  # the standby: what it said last was an answer, if a refusal
    needs_base: bool = False  # the standby whose storage was set back: no log here leads on from what it holds
    # ---- of a standby
    heard_age_s: float | None = None


def judge_serving(facts: ServingFacts) -> ServingDocument:
    """Returns what the site serves; `why` and `do` are empty where it does all that its role is for."""
    allowed = permissions(facts.role)
    if facts.proof_age_s is None or not allowed.reads:
        return _closed(facts)
    if facts.proof_age_s >= facts.lease_s:
        return ServingDocument(False, False, False, *_unproved(facts))
    if allowed.writes and facts.waiting_age_s >= STALLED_S:
        said = _own_failure(facts) or "its disk or its storage does not answer"
        return ServingDocument(True, False, False, f"writes wait at site {facts.site}: {said}", _see_to_disk(facts))
    if not allowed.writes:
        why = f"site {facts.site} is {facts.role}: {facts.reason}"
        return ServingDocument(True, False, False, why, "wait, or `twinlog history`")
    return ServingDocument(True, True, False)


def _own_failure(facts: ServingFacts) -> str | None:
    """Says what fails on the site's own disk; None: nothing that is known."""
    storage, disk = facts.words.of(STORAGE).error, facts.words.of(LOCAL_LOG).error
    if storage is not None:
        return f"the storage failed: {storage}"
    return None if disk is None else f"its own log cannot be written: {disk}"


def _see_to_disk(facts: ServingFacts) -> str:
    return f"see to the disk of site {facts.site}; or `twinlog failover --to {facts.peer}`"


def _closed(facts: ServingFacts) -> ServingDocument:
    storage = facts.words.of(STORAGE).error
    if facts.refused is not None:
        why = f"site {facts.site} is {facts.role} and waits for {facts.refused.what}"
        return ServingDocument(False, False, False, why, facts.refused.do)
    if storage is not None:
        return ServingDocument(False, False, False, f"the storage of site {facts.site} failed and is opened anew: {storage}",
                               f"see to the disk or the database of site {facts.site}")
    if facts.role is Role.STANDBY:
        return ServingDocument(False, False, True)
    why = f"site {facts.site} is {facts.role}: {facts.reason}"
    if facts.waiting_for:
        why = f"site {facts.site} is {facts.role} and waits for {facts.waiting_for}"
    do = f"`twinlog rejoin {facts.site}`" if facts.role is Role.FENCED else "`twinlog advise`"
    return ServingDocument(False, False, False, why, do)


def _unproved(facts: ServingFacts) -> tuple[str, str]:
    """Says why an active has no valid lease, and what ends that."""
    site, peer = facts.site, facts.peer
    coordinator = facts.words.of(COORDINATOR).error
    if not facts.needs_remote:
        return (f"site {site} answers nobody: it cannot renew its lease at the coordinator"
                + (f" ({coordinator})" if coordinator else ""), "bring the coordinator back, or the way to it")
    error, own = facts.words.of(PEER_DFS).error, _own_failure(facts)
    if error is None and own is not None:  # the remote log is proved by frames that both logs take
        return f"site {site} answers nobody: {own}", _see_to_disk(facts)
    why = f"site {site} answers nobody: nothing reaches its remote log on the DFS of site {peer}"
    why += f" ({error})" if error else ""
    if coordinator is not None and facts.register_home == peer:
        return f"{why}, which has the register, too", \
            f"repair that DFS; if it is lost, and site {peer} has not taken over: `twinlog degrade` opens site {site} alone"
    if coordinator is not None:
        return f"{why}, nor does it reach {_register(facts)}", (
            f"repair that DFS or the network; or `twinlog failover --to {peer}`, if "
            f"`twinlog validate --for failover --to {peer}` allows it"
        )
    if facts.degrades:
        return why, "nothing: it continues with its own log by itself"
    return why, "repair that DFS; or `twinlog degrade`: writes then continue with one copy"


def _register(facts: ServingFacts) -> str:
    return "the coordinator" if facts.register_home is None else f"the register on the DFS of site {facts.register_home}"


def site_troubles(facts: ServingFacts, serving: ServingDocument) -> list[SiteTrouble]:
    """Lists what keeps the site from being whole although it may serve; what `serving` says already is left out."""
    return [one for one in _troubles(facts) if serving.why is None or one.seen not in serving.why]


def _set_back(facts: ServingFacts, setback: Setback) -> SiteTrouble:
    site, peer = facts.site, facts.peer
    seen = f"site {peer} had stored everything up to {setback.had_seq}, and then held only {setback.held_seq}: its storage " \
        "was put back from an older copy, replaced, or emptied"
    if setback.is_over:
        return SiteTrouble(STANDBY_STORAGE, f"{seen}; it has everything again",
                           f"find out what was put back at site {peer}, and whether another part was, too")
    how = "filled with base data" if facts.needs_base else "sent the log from there again"
    return SiteTrouble(
        STANDBY_STORAGE, f"{seen}; it is {how}, and until then site {site} alone has all of it",
        f"keep site {site} running until site {peer} has caught up; find out what was put back there",
    )


def _of_dependencies(facts: ServingFacts) -> Iterator[SiteTrouble]:
    """Yields those that have an error, and whose error keeps this site from being whole."""
    errors = list(facts.words.errors())
    if not errors:
        return
    site, peer, is_active = facts.site, facts.peer, facts.proof_age_s is not None
    ways = {
        OWN_DFS: (f"the DFS of site {site} takes no files", f"repair it: site {peer} writes its log there"),
        PEER_DFS: (f"site {site} cannot write the DFS of site {peer}", "repair that DFS, or the network"),
        COORDINATOR: (f"site {site} does not reach {_register(facts)}", "bring it back: until then no role changes by itself"),
        REGISTER: (f"the register has no record of the pair that site {site} {'has open' if is_active else 'follows'}, so site "
                   f"{peer if is_active else site} could not take over", "`twinlog advise`"),
        PEER: (f"site {peer} does not take what site {site} ships", "repair what that answer names" if facts.peer_answers else
               f"see to the gateway of site {peer}, the network, and peer.url of site {site}"),
        STORAGE: (f"the storage of site {site} failed", f"see to the disk or the database of site {site}"),
        LOCAL_LOG: (f"the log of site {site} cannot be written", f"see to the disk of site {site}"),
        KEYS: (f"site {site} cannot read the remote log that site {peer} writes, so it could not take over",
               f"give site {site} the key that the error names, in its file, and start it anew"),
    }
    for about, error in errors:
        if facts.stands_in and about == PEER:
            continue  # its gateway must not be started yet: another trouble says what comes first
        if about in ways and (is_active or about not in (PEER_DFS, PEER)):
            seen, do = ways[about]
            yield SiteTrouble(about, seen, do, error)


def _troubles(facts: ServingFacts) -> Iterator[SiteTrouble]:
    site, peer, words = facts.site, facts.peer, facts.words
    if facts.stands_in:
        yield SiteTrouble(
            "register", f"site {site} keeps the register itself since its coordinator was given up: site {peer} cannot follow",
            f"do not start site {peer} with the old one; in daylight give both sites a new, empty coordinator.url, start site "
            f"{site} with it, then `twinlog failover --to {site} --accept-data-loss --count unknown`, then start site {peer}",
        )
    yield from _of_dependencies(facts)
    if facts.releases is not None and facts.proof_age_s is None:  # an active hears it as an answer to what it ships
        seen = f"the releases of site {site} and site {peer} do not work together: site {site} takes and sends nothing"
        yield SiteTrouble("releases", seen, "install what the error names; what is in both logs is safe", facts.releases)
    if facts.trail_fault is not None:
        yield SiteTrouble(
            "audit trail", f"the audit trail of site {site} cannot be written: role changes continue, and stand in its log "
            "alone; tables are not changed", f"see to the disk of site {site}", facts.trail_fault,
        )
    if facts.setback is not None and (not facts.setback.is_over or facts.setback_age_s < SETBACK_SHOWN_S):
        yield _set_back(facts, facts.setback)
    for about, error in facts.work:
        yield SiteTrouble(about, f"the {about} of site {site} failed, and is tried again", "repair what the error names", error)
    for error in facts.damaged:
        yield SiteTrouble(
            "damaged segment", f"a segment of the remote log on the DFS of site {peer} is damaged, and cannot be trimmed",
            f"restart the gateway of site {site}: it begins a new epoch, and deletes the file once site {peer} has that", error,
        )
    if facts.left_out is not None:
        yield SiteTrouble(
            "left out", f"the remote log on the DFS of site {peer} held records, perhaps acknowledged, that site {site} has"
            " opened without: an older copy of its disk, say. They are in its quarantine",
            f"`twinlog rejoin {site} --merge` writes them again where nothing newer is", facts.left_out,
        )
    if facts.role is not Role.STANDBY or facts.refused is not None or words.of(STORAGE).error is not None:
        return  # what its own storage does not take seems not to come
    if facts.heard_age_s is not None and facts.heard_age_s > SILENCE_S:
        seen = f"nothing comes from site {peer}, which site {site} follows"
        yield SiteTrouble("active", seen, "`twinlog advise`", words.of(WAY).error)
    elif words.of(WAY).error is not None:
        seen = f"site {site} does not reach the gateway of site {peer}"
        yield SiteTrouble(WAY, seen, f"see to that gateway, the network, and peer.url of site {site}", words.of(WAY).error)
