"""A site's look at itself for the one judgement (serving_judgement.py): the newest words of what it depends on, and its epoch.

What always holds: nothing is asked and nothing changed, so that a health probe waits for nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from gateway.epoch.words import Word, Words
from gateway.service.documents import DependencyDocument, ServingDocument, SiteTrouble
from gateway.site.serving_judgement import (
    LOCAL_LOG,
    PEER,
    PEER_DFS,
    STORAGE,
    ServingFacts,
    judge_serving,
    site_troubles,
)
from gateway.site.site import Site
from remote_log.replication.shipper import PeerView


class SiteCondition(NamedTuple):
    """Everything that is shown of a site's health, at `now_s`."""

    serving: ServingDocument
    troubles: list[SiteTrouble]
    words: Mapping[str, Word]
    now_s: float

    @property
    def dependencies(self) -> dict[str, DependencyDocument]:
        return {subject: _shown(word, self.now_s) for subject, word in self.words.items()}


def site_condition(site: Site) -> SiteCondition:
    """Returns the judgement as of now."""
    now_s = site.parts.clock.monotonic_s()
    facts = _facts(site, now_s)
    serving = judge_serving(facts)
    return SiteCondition(serving, site_troubles(facts, serving), facts.words.all(), now_s)


def _facts(site: Site, now_s: float) -> ServingFacts:
    epoch, words = site.active_epoch, _words(site, now_s)
    facts = ServingFacts(
        site=site.site, peer=site.peer, role=site.role, reason=site.reason, waiting_for=site.waiting_for, words=words,
        register_home=site.parts.coordinator.met_home,
        refused=site.standing_at_refusal(), heard_age_s=site.follower_silence_s(),
        stands_in=site.parts.stand_in is not None and site.parts.stand_in.stands_in, trail_fault=site.trail_fault(),
        releases=site.parts.understanding.conflict,
    )
    if epoch is None:
        return facts
    setback, view = epoch.shipper.setbacks.newest, epoch.shipper.view
    has_coordinator = site.pair_state is not None and site.pair_state.home is None
    return replace(
        facts, needs_remote=epoch.core.needs_remote, degrades=has_coordinator and site.settings.degrade_after_s is not None,
        lease_s=site.settings.lease.lease_s, proof_age_s=epoch.proof_age_s, waiting_age_s=epoch.commit.waiting_age_s(now_s),
        work=tuple(epoch.work.errors()), damaged=epoch.damaged,
        left_out=epoch.quarantine.left_out, setback=setback,
        setback_age_s=now_s - setback.at_s if setback is not None else 0.0,
        peer_answers=view.state != "unreachable",
        needs_base=setback is not None and lacks_base(view, site.parts.wal.first_previous),
    )


def lacks_base(view: PeerView, log_begins_after: int | None) -> bool:
    """Returns whether the other site lacks what no log has any more: then what stands in both logs is not enough."""
    if view.state in ("diverged", "loading"):
        return True
    return view.applied_seq is not None and view.applied_seq < (log_begins_after or 0)


def _shown(word: Word, now_s: float) -> DependencyDocument:
    return DependencyDocument(_ago(now_s, word.answered_s), _ago(now_s, word.failed_s), word.error)


def _ago(now_s: float, at_s: float | None) -> float | None:
    return None if at_s is None else round(max(0.0, now_s - at_s), 3)


def _words(site: Site, now_s: float) -> Words:
    """The site's own words, and those that its parts keep for themselves."""
    words, epoch = site.words.copy(), site.active_epoch
    failure = site.storage_error()
    if failure is not None:
        words.failed(STORAGE, now_s, failure)
    else:
        words.answered(STORAGE, now_s)
    if epoch is None:
        if site.sink.heard_s is not None:
            words.answered(PEER, site.sink.heard_s)
        return words
    view, remote = epoch.shipper.view, epoch.remote
    if view.at_s is not None:
        words.answered(PEER, view.at_s)
    if view.state in ("unreachable", "refused", "diverged"):
        words.failed(PEER, now_s, view.why or f"site {site.peer} is {view.state}")
    if epoch.core.writes_remote and remote is not None:
        if remote.trouble is not None:
            words.failed(PEER_DFS, now_s, remote.trouble)
        elif epoch.core.needs_remote and epoch.proof_age_s < site.settings.lease.lease_s:
            words.answered(PEER_DFS, now_s - epoch.proof_age_s)
    if epoch.commit.local_trouble is not None:
        words.failed(LOCAL_LOG, now_s, epoch.commit.local_trouble)
    else:
        words.answered(LOCAL_LOG, now_s)
    return words
