"""The facts that one site knows about itself; the checks before a role change judge them.

What always holds: a fact that could not be seen is None, and the reason stands beside it; gathering facts changes nothing.
The struct is also the answer to the call FACTS between the sites, so that both are judged by the same figures; so every field
has a bound.
This module is pure.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from remote_log.replication.formats import SILENT
from remote_log.replication.messages import FORMATS_MAX, Crc, Epoch, Formats, FormatVersion, Name, Says, Seq, Text

FACTS = "facts"
FormatsWritten = Annotated[dict[Name, FormatVersion], Meta(max_length=FORMATS_MAX)]
Seconds = Annotated[float, Meta(ge=0, le=1e9)]
WallMs = Annotated[int, Meta(ge=0, lt=1 << 48)]  # as a hybrid timestamp holds it
Bytes = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]


class SiteFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One site at one moment."""

    site: Name
    pair: Name
    release: Name
    formats: Formats | None = None  # which versions of each it reads; None: its release does not say
    formats_written: FormatsWritten = {}  # and which are in use since both sites could read them
    wall_ms: WallMs
    # ---- its settings, as far as both sites must agree on them
    lease_s: Seconds
    drift_margin: Seconds
    initial_active: Name
    policy: Name
    # ---- what it is
    role: Name
    epoch: Epoch
    mode: Name
    waiting_for: Text | None = None
    lease_left_s: Seconds | None = None  # of its read lease; None: it has no epoch open
    serves_reads: bool = False  # by the site's one judgement of itself, which its health and status show
    serves_writes: bool = False
    serves_not: Text | None = None  # why it does less than its role is for
    serves_again: Text | None = None  # what to do about that
    # ---- what it holds
    applied_seq: Seq
    durable_seq: Seq
    committed_seq: Seq
    blocker: Text | None = None  # why its storage cannot stand in for the active
    heard_s: Seconds | None = None  # a standby: seconds since it last heard the active
    free_bytes: Bytes | None = None  # on the disk of its WAL
    # ---- what it reaches
    local_log_error: Text | None = None  # why its WAL takes nothing
    own_dfs_error: Text | None = None
    peer_dfs_error: Text | None = None
    coordinator_error: Text | None = None
    register_home: Name | None = None  # without a coordinator: the site on whose DFS the register is, as far as is known
    opened_by: Name | None = None  # the plan that opened the pair, as the coordinator says to this site
    forgotten_epoch: Epoch | None = None  # known here, of a pair that the coordinator has no record of (known_epochs.py)
    register_went_back: Text | None = None  # how this site knows that the register is older than what it has met
    met_epoch: Epoch = 0  # the highest epoch that this site knows to be given away
    met_active: Name | None = None  # the active, as the last value of the register said that this site believed
    stands_in: bool = False  # it keeps the register itself, since an operator gave the coordinator up
    remote_log_missing: Text | None = None  # what the remote log on its own DFS lacks, if it is the other site's
    remote_log_unreadable: Text | None = None  # why it could not be decrypted here
    open_leases: Seq | None = None  # files of the remote log on its own DFS that are not closed
    remote_log_mark: Crc | None = None  # a checksum of the end of the other site's, if that is the active: an append changes it
    audit_recent_s: Seconds = 0.0  # how old the last good audit may be; 0: nobody asks
    last_good_audit_ms: WallMs | None = None  # when an audit last found both sites equal, as far as this site knows
    peer_set_back: Text | None = None  # an open epoch: how its standby's storage went back
    notices: Text | None = None  # what operators are to know of its listeners and certificates
    resyncs: bool | None = None  # an open epoch: it goes back to sync by itself

    @property
    def says(self) -> Says:
        return SILENT if self.formats is None else Says(self.release, self.formats)
