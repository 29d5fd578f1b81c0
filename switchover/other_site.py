"""The questions that this site asks the other one, and the checks of its answers.

What always holds: no answer counts before it was compared with what was asked, and with what this site knows for itself; one
that does not fit is a PeerError, so its outcome is unknown. What an answer says about the log of the other site alone is
believed, for nobody else knows it. What only the register can say is never taken from an answer: not that it went back, by
which this site would close, nor that an epoch was given away.
Only this room and the shipper call the Transport (tests/switchover/test_other_site.py).
Source: protocol.md section 7 (what is checked before it has an effect).
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from remote_log.replication.formats import CALLS
from remote_log.replication.messages import (
    DRAIN,
    EPOCHS,
    LOOK,
    MERGE,
    PREPARE,
    ROWS,
    STATUS,
    STEP_DOWN,
    TRAIL,
    UNDRAIN,
    DrainReply,
    EpochsReply,
    EpochsRequest,
    LogPoint,
    LookReply,
    LookRequest,
    MergeReply,
    MergeRequest,
    NoRequest,
    PlanRequest,
    PrepareReply,
    PrepareRequest,
    RowsReply,
    RowsRequest,
    StatusReply,
    StoppedReply,
    TrailNote,
    Transport,
    addressed,
    not_understood,
)
from remote_log.replication.understanding import Understanding
from remote_log.replication.verification import JUMP_MAX
from switchover.facts import FACTS, SiteFacts
from switchover.roles.table import Role
from twinlog.errors import MalformedBody, PeerError, Refused, RegisterWentBack

_T = TypeVar("_T")


class OtherSite:
    """Site `name` of `pair`, where `transport` leads, asked in the protocol that both understand. Every question ends by
    its `timeout_s`, and raises what that site raised, or PeerError: it is out of reach, or does not understand the question;
    its answer came too late, or does not fit.
    """

    def __init__(self, name: str, transport: Transport, pair: str, understanding: Understanding) -> None:
        self._name, self._transport, self._pair, self._understanding = name, transport, pair, understanding

    async def _ask(self, method: str, asked: msgspec.Struct, kind: type[_T], timeout_s: float) -> _T:
        try:
            return await self._transport.call(method, self._addressed(asked), kind, timeout_s)
        except RegisterWentBack as error:  # its finding, not ours
            raise Refused(f"site {self._name} answers: {error.message}") from error
        except MalformedBody as error:
            raise PeerError(not_understood(method, error), sent=True) from error

    def _addressed(self, asked: msgspec.Struct) -> dict[str, Any]:
        return addressed(asked, self._pair, self._understanding.writes(CALLS))

    def _unfit(self, method: str, why: str) -> PeerError:
        return PeerError(f"the answer of site {self._name} to {method} cannot be true: {why}", sent=True)

    def _check_self(self, method: str, site: str, role: str) -> None:
        if site != self._name:
            raise PeerError(
                f"what answers at peer.url says that it is site {site!r}, and not {self._name!r}: correct peer.url", sent=True
            )
        if role not in _ROLES:
            raise self._unfit(method, f"there is no role {role!r}")

    async def status(self, timeout_s: float) -> StatusReply:
        reply = await self._ask(STATUS, NoRequest(), StatusReply, timeout_s)
        self._check_self(STATUS, reply.site, reply.role)
        return reply

    async def facts(self, timeout_s: float) -> SiteFacts:
        facts = await self._ask(FACTS, NoRequest(), SiteFacts, timeout_s)
        self._check_self(FACTS, facts.site, facts.role)
        return facts

    async def trail(self, note: TrailNote, timeout_s: float) -> TrailNote:
        reply = await self._ask(TRAIL, note, TrailNote, timeout_s)
        if reply.site != self._name:
            raise self._unfit(TRAIL, f"it is the trail of site {reply.site!r}")
        return reply

    async def look(self, asked: LookRequest, timeout_s: float) -> bytes:
        """Returns what that site shows of itself to operators, as JSON: nothing is decided by it."""
        reply = await self._ask(LOOK, asked, LookReply, timeout_s)
        if reply.site != self._name:
            raise self._unfit(LOOK, f"it is of site {reply.site!r}")
        return reply.document

    # ---- a change of a table
    async def prepare(self, table: int, schema: bytes | None, timeout_s: float) -> PrepareReply:
        return await self._ask(PREPARE, PrepareRequest(table, schema), PrepareReply, timeout_s)

    # ---- a rejoin
    async def epochs(self, at: LogPoint, timeout_s: float) -> EpochsReply:
        """The epochs of the active. Whether its history is one, and its epoch was given away, is for the sink to check."""
        reply = await self._ask(EPOCHS, EpochsRequest(at), EpochsReply, timeout_s)
        end = reply.applied_seq
        if reply.begins_after > end:
            raise self._unfit(EPOCHS, f"its log begins after {reply.begins_after}, and it has applied {end}")
        if reply.history and reply.history[-1][1] > end:
            raise self._unfit(EPOCHS, f"its epoch {reply.epoch} begins at {reply.history[-1][1]}, and it has applied {end}")
        if reply.holds and at.seq > end:
            raise self._unfit(EPOCHS, f"its log, which ends at {end}, holds sequence {at.seq}")
        return reply

    async def rows(self, asked: RowsRequest, timeout_s: float) -> RowsReply:
        """The rows as they came: the verifier, which knows the tables, checks them."""
        return await self._ask(ROWS, asked, RowsReply, timeout_s)

    async def merge(self, asked: MergeRequest, timeout_s: float) -> MergeReply:
        reply = await self._ask(MERGE, asked, MergeReply, timeout_s)
        if reply.merged + reply.skipped != len(asked.rows):
            raise self._unfit(MERGE, f"{reply.merged} merged and {reply.skipped} skipped are not {len(asked.rows)}")
        keys = {(table, key) for table, _, key, _, _ in asked.rows}
        if len(set(reply.absent)) < len(reply.absent) or not keys.issuperset(reply.absent):
            raise self._unfit(MERGE, "it names rows that were not sent, or one of them twice")
        if asked.put_absent and reply.absent:
            raise self._unfit(MERGE, "it leaves out absent rows, which it was to put as well")
        return reply

    # ---- a switchover: `plan_id` has the pair at the coordinator
    async def drain(self, plan_id: str, at: LogPoint, timeout_s: float) -> DrainReply:
        """`at`: where this site stood before it asked. What was shipped stands in the log there, so it ends no earlier."""
        reply = await self._ask(DRAIN, PlanRequest(plan_id), DrainReply, timeout_s)
        if reply.epoch < at.epoch or not at.seq <= reply.last_seq <= at.seq + JUMP_MAX:
            raise self._unfit(DRAIN, (
                f"its log ends at sequence {reply.last_seq} of epoch {reply.epoch}, and this site has applied {at.seq} of "
                f"epoch {at.epoch}"
            ))
        return reply

    async def undrain(self, plan_id: str, timeout_s: float) -> None:
        await self._ask(UNDRAIN, PlanRequest(plan_id), DrainReply, timeout_s)

    async def step_down(self, plan_id: str, drained: DrainReply | None, timeout_s: float) -> StoppedReply:
        """`drained`: its answer of before, if this very attempt has one. Its storage may lack the end of that log: a site that
        restarted since has stopped, too."""
        reply = await self._ask(STEP_DOWN, PlanRequest(plan_id), StoppedReply, timeout_s)
        if drained is None:
            return reply
        if reply.epoch != drained.epoch:
            raise self._unfit(STEP_DOWN, f"it stopped in epoch {reply.epoch}, and was drained in {drained.epoch}")
        if reply.durable_seq > drained.last_seq + JUMP_MAX:
            raise self._unfit(STEP_DOWN, (
                f"its storage is durable up to {reply.durable_seq}, and its log ended at {drained.last_seq} when it was drained"
            ))
        return reply


_ROLES = frozenset(str(role) for role in Role)
