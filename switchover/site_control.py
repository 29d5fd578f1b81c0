"""The members of a site that plans and the preflight use. gateway/site/site.py has them all: no adapter stands between.

What always holds: no HTTP and no write path is named here, so that the plans stay below the gateway (the law of imports).
"""

from __future__ import annotations

from typing import Protocol

from remote_log.replication.sink import Sink
from switchover.activation.activation import Activation
from switchover.activation.ports import ActivationRequest, OpenedEpoch
from switchover.register.lost_value import KnownEpochs
from switchover.register.port import PairState
from switchover.rejoin import RejoinReport
from switchover.roles.table import Event, Role
from switchover.site_parts import SiteParts


class SiteControl(Protocol):
    site: str
    peer: str
    role: Role

    @property
    def epoch(self) -> int: ...
    @property
    def parts(self) -> SiteParts: ...
    @property
    def sink(self) -> Sink: ...
    def event(self, event: Event, why: str = "") -> None:
        """Makes one step in the role table. `why`: more than the table says."""

    def on_fenced(self, epoch: int, dfs: str) -> None:
        """Takes note that this site has closed the logs below `epoch` on the DFS of site `dfs`."""

    async def halt(self, why: str) -> None:
        """Ends the open epoch of this site, if there is one."""

    async def refresh_pair_state(self) -> PairState | None:
        """Reads the coordinator, and keeps the value."""

    async def known_epochs(self) -> KnownEpochs:
        """Looks which epochs are known here and on both DFSs, whatever the register says."""

    def new_activation(self, request: ActivationRequest) -> Activation: ...
    async def install(self, opened: OpenedEpoch) -> None:
        """Begins to serve the epoch that a plan has opened."""

    async def canary(self) -> int:
        """Writes a record through the whole write path. Returns its sequence."""

    async def rejoin(self, accepted: int | str | None = None) -> RejoinReport:
        """`accepted`: the loss that an operator accepts. Raises Diverged."""

    async def degrade(self, automatic: bool) -> None:
        """`automatic`: as the policy does it, with the way back by itself."""

    async def resync(self) -> None: ...
