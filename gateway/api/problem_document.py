"""The problem document (RFC 9457): every member that an answer to a failed request may have.

What always holds: a problem is the encoding of `Problem`, so that it has no member which the OpenAPI document does not know;
the facts that the errors of the tree carry (`fields`) are members here by the same names.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from gateway.service.documents import ActiveSite
from switchover.preflight.checks import Check
from switchover.preflight.loss import LossManifest
from twinlog.problem_documents import TYPE_PREFIX

Text = str | UnsetType
Number = int | UnsetType
VersionText = Annotated[str, Meta(description="a version, as decimal text", pattern="^[0-9]+$")]
Names = list[str] | UnsetType
Object = dict[str, Any] | None | UnsetType
Outcome = Literal["not_applied", "unknown"]


class Problem(Struct, frozen=True):
    """RFC 9457. `type` is stable, `detail` says what to do. `outcome` is that of a failed write. `active` is where the active
    is; `retry_after_s`: when to try again, in seconds; `incident`: the number under which the site's log has the error;
    `manifest`: what a failover may lose. The other members name what is at fault."""

    type: Annotated[str, Meta(pattern=f"^{TYPE_PREFIX}[a-z-]+$")]
    title: str
    status: Annotated[int, Meta(ge=400, le=599)]
    detail: str
    outcome: Outcome | UnsetType = UNSET
    # ---- the site, and when to ask which one again
    active: ActiveSite | str | UnsetType | None = UNSET
    retry_after_s: Annotated[float, Meta(ge=0)] | UnsetType = UNSET
    incident: Text = UNSET
    site: Text = UNSET
    role: Text = UNSET
    ask: Text = UNSET
    replication_lag_s: float | UnsetType | None = UNSET
    waiting_for: Text = UNSET
    # ---- the request
    grant: Text = UNSET
    parameter: Text = UNSET
    parameters: Names = UNSET
    allowed: Names = UNSET
    member: Text = UNSET
    faults: list[dict[str, Any]] | UnsetType = UNSET
    problem: Text = UNSET
    receipt: Text = UNSET
    mutation: Number = UNSET
    line: Number = UNSET
    condition: Number = UNSET
    op: Text = UNSET
    # ---- tables and rows
    table: Text = UNSET
    column: Text = UNSET
    key: Text = UNSET
    write: Text = UNSET
    confirm: Text = UNSET
    row: int | UnsetType | None = UNSET
    version: VersionText | UnsetType | None = UNSET
    parts: Number = UNSET
    replication: Text = UNSET
    held_from: VersionText | UnsetType = UNSET
    # ---- limits
    rows: Number = UNSET
    rows_max: Number = UNSET
    batch_rows_max: Number = UNSET
    page_rows_max: Number = UNSET
    body_bytes_max: Number = UNSET
    bytes_max: Number = UNSET
    key_bytes: Number = UNSET
    key_bytes_max: Number = UNSET
    row_bytes: Number = UNSET
    row_bytes_max: Number = UNSET
    # ---- role changes and barriers
    operation: Text = UNSET
    running: Text = UNSET
    id: Text = UNSET
    kind: Text = UNSET
    option: Text = UNSET
    policy: Text = UNSET
    expires_ms: Number = UNSET
    step: Text = UNSET
    event: Text = UNSET
    checks: list[Check] | UnsetType = UNSET
    manifest: LossManifest | UnsetType | None = UNSET
    barrier: Text = UNSET
    barriers: Names = UNSET
    # ---- the pair's epochs, logs and register, and the file system of the other site
    epoch: Number = UNSET
    by_epoch: Number = UNSET
    winner_epoch: int | UnsetType | None = UNSET
    winner: Object = UNSET
    current: Object = UNSET
    expected_state_id: Number = UNSET
    plan_id: Text = UNSET
    async_since_seq: int | UnsetType | None = UNSET
    seq: Number = UNSET
    held_seq: Number = UNSET
    end_seq: Number = UNSET
    at_risk: int | str | UnsetType = UNSET
    offered_previous: Number = UNSET
    committed: Number = UNSET
    file: Text = UNSET
    key_id: Text = UNSET
    path: Text = UNSET
    offset: Number = UNSET
    sound_offset: Number = UNSET
    other_file: Text = UNSET
    other_offset: Number = UNSET
    errno: Number = UNSET
    root: Text = UNSET
    section: Text = UNSET
    setting: Text = UNSET
    url: Text = UNSET
    sent: bool | UnsetType = UNSET
    release: Text = UNSET


MEMBERS = frozenset(Problem.__struct_fields__)
