"""What plans ask of the site that executes them. Implemented by gateway/site/control.py; no HTTP, no write path here."""

from __future__ import annotations

from typing import Any, Protocol

from remote_log.replication.sink import Sink
from storage.clock import Clock
from switchover.activation.activation import Activation
from switchover.activation.ports import ActivationRequest, OpenedEpoch
from switchover.facts import SiteFacts
from switchover.register.port import Coordinator, PairState
from switchover.rejoin import RejoinReport
from switchover.roles.table import Event, Role


class SiteControl(Protocol):
    @property
    def site(self) -> str: ...
    @property
    def peer(self) -> str: ...
    @property
    def role(self) -> Role: ...
    @property
    def epoch(self) -> int: ...
    @property
    def applied_seq(self) -> int: ...
    @property
    def applied_epoch(self) -> int: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def coordinator(self) -> Coordinator: ...
    @property
    def sink(self) -> Sink: ...
    def new_id(self) -> str: ...
    def event(self, event: Event) -> None:
        """One step in the role table."""

    async def halt(self, why: str) -> None:
        """End the open epoch of this site, if there is one."""

    async def read_pair_state(self) -> PairState | None: ...
    async def ask_peer(self, method: str, message: dict[str, Any], timeout_s: float) -> dict[str, Any]: ...
    async def facts(self, state: PairState | None, coordinator_error: str | None) -> SiteFacts:
        """This site as it is now. `state`: the coordinator's value, or why there is none."""

    def new_activation(self, request: ActivationRequest) -> Activation: ...
    async def install(self, opened: OpenedEpoch) -> None: ...
    async def delete_replayed(self) -> int:
        """Delete the remote log of older epochs on the own DFS: it is durable here. Epochs deleted."""

    async def flush(self) -> int: ...
    async def canary(self) -> int:
        """Write a record through the whole write path; its sequence."""

    async def rejoin(self) -> RejoinReport: ...
    async def merge_quarantine(self, put_absent: bool) -> dict[str, Any]: ...
    async def degrade(self, automatic: bool) -> None:
        """`automatic`: as the policy does it, with the way back by itself."""

    async def resync(self) -> None: ...
