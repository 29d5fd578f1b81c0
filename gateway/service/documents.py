"""The documents that a site answers with: the pair as it sees it, receipts, barriers.

What always holds: an answer of the API is the encoding of one of these, and the OpenAPI document takes its schema from the
same struct; a figure that nobody knows is null, never 0. Those of role changes and audits stand beside what makes them
(switchover/operations/document.py, switchover/preflight/preflight.py, audits.py). Source: product.md 2.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from gateway.epoch.commit_rule import CommitMode
from switchover.roles.table import Role

Seconds = Annotated[float, Meta(description="seconds", ge=0)]


class ActiveSite(Struct, frozen=True):
    """The address of the active, as far as the asked site knows."""

    site: str
    url: str
    epoch: int


class SiteDocument(Struct, frozen=True):
    """One site of the pair. The asked site shows `role`; it shows the other one's `state`, as old as `sample_age_s` says."""

    url: str
    applied_seq: int | None
    role: Role | UnsetType = UNSET
    state: Annotated[
        str, Meta(description="unknown, following, diverged, loading, busy, refused, unreachable")
    ] | UnsetType = UNSET
    durable_seq: int | UnsetType | None = UNSET
    sample_age_s: Seconds | UnsetType | None = UNSET
    why: str | UnsetType | None = UNSET
    release: Annotated[str | None, Meta(description="of twinlog; null: it was not heard, or does not say")] | UnsetType = UNSET


class FormatDocument(Struct, frozen=True):
    """The versions of a format that the release of the asked site reads, and the highest one that it writes."""

    reads: tuple[int, int]
    writes: int


class ReplicationLag(Struct, frozen=True):
    """Committed records that the other site has not applied."""

    records: int
    sample_age_s: Seconds | None


class RemoteLogDocument(Struct, frozen=True):
    """The log that this site writes on the other site's file system. `trouble`: why it cannot be written at the moment."""

    bytes: int
    segments: int
    unsynced_frames: int
    trouble: str | None


class AtRisk(Struct, frozen=True):
    """Acknowledged records that are lost if the active is lost now. `records` null: unknown."""

    records: int | None
    exact: bool


class ResyncDocument(Struct, frozen=True):
    """The way back to synchronous mode."""

    automatic: bool
    waiting_for: str | None
    records_left: int | None


class ServingDocument(Struct, frozen=True):
    """Shows what the asked site does now: `reads` and `writes` as the active, `follows` as a standby. `why` not, and what to
    `do` about it; both null where it does all that its role is for."""

    reads: bool
    writes: bool
    follows: bool
    why: str | None = None
    do: str | None = None


class SiteTrouble(Struct, frozen=True):
    """Something that keeps the site from being whole although it may serve. `do`: the way out; `error`: in its own words."""

    about: str
    seen: str
    do: str
    error: str | None = None


class DependencyDocument(Struct, frozen=True):
    """Shows when something that the site depends on last answered and last failed, as ages; null: never. `error`: why it
    failed, as long as that is its newest word."""

    answered_ago_s: Seconds | None
    failed_ago_s: Seconds | None
    error: str | None


class ClusterDocument(Struct, frozen=True, kw_only=True):
    """The pair as one site sees it. `waiting_for`: what the site needs before it can serve. `operation`: the id of the role
    change that runs here. `now_ms`: the site's clock, in milliseconds since 1970. `notices`: what an operator is to know of the
    site's listeners and certificates, though nothing fails yet."""

    pair: str
    site: str
    role: Role
    reason: str
    waiting_for: str | None
    serving: ServingDocument
    troubles: list[SiteTrouble]
    dependencies: Annotated[dict[str, DependencyDocument], Meta(description="own DFS, peer DFS, coordinator, peer, ...")]
    now_ms: int
    release: str
    formats: Annotated[dict[str, FormatDocument], Meta(description="protocol, frames, segments, register, files")]
    epoch: int
    mode: Annotated[str, Meta(description="sync or async; unknown before the site has asked the coordinator")]
    mode_detail: CommitMode | None
    policy: str
    active: ActiveSite | None
    sites: Annotated[dict[str, SiteDocument], Meta(description="both sites by name")]
    committed_seq: int
    applied_seq: int
    durable_seq: int
    replication_lag: ReplicationLag | None
    remote_log: RemoteLogDocument | None
    at_risk: AtRisk | None
    resync: ResyncDocument | None
    operation: str | None
    notices: list[str] = []


Outcome = Literal["survived", "lost", "unknown"]


class ReceiptDocument(Struct, frozen=True):
    """A receipt, what it names, and what became of the write by the history of the asked site."""

    receipt: str
    outcome: Outcome
    log: int
    epoch: int
    seq: int
    mode: Literal["sync", "async"]


EngineName = Literal["rocksdb", "postgresql", "sqlite", "memory"]


class BarrierDocument(Struct, frozen=True):
    """The snapshot that the asked site holds of all up to sequence `seq` of `epoch`. Times are RFC 3339 texts in UTC. `place`:
    where another process reads it."""

    name: str
    epoch: int
    seq: int
    taken_at: str
    expires_at: str
    engine: EngineName
    place: str


class BarrierList(Struct, frozen=True):
    """The barriers whose snapshot `site` holds, the oldest first."""

    site: str
    barriers: list[BarrierDocument]


class SettingChange(Struct, frozen=True):
    """A setting that was changed, or that differs: its key, what it was and what it is now, as texts without secrets."""

    key: str
    before: str
    after: str


class ReloadDocument(Struct, frozen=True):
    """The outcome of a reload. `changed`: in effect now; `needs_restart`: it differs in the file, for the next start."""

    site: str
    changed: list[SettingChange] = []
    needs_restart: list[SettingChange] = []

    def told(self) -> dict[str, object]:
        """Returns what the line of a reload says in the audit trail."""
        changed = {change.key: f"{change.before} -> {change.after}" for change in self.changed}
        return {"changed": changed, "needs_restart": [change.key for change in self.needs_restart]}
