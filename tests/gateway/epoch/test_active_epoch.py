"""An active whose lease had run out looks for a later epoch before it answers again: at the register, and at the other site."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.epoch.active_epoch import ActiveEpoch
from remote_log.replication.messages import StatusReply
from switchover.register.port import Beat, PairState, Switching
from twinlog.errors import Fenced, Incompatible, PeerError, Refused, TwinlogError, Unavailable

EPOCH, STARTED_S = 7, 12.5
OURS = PairState(state_id=4, epoch=EPOCH, epoch_allocated=EPOCH, active="a")
TAKEN = replace(OURS, epoch_allocated=8, switching=Switching("p", "b", 8, "takeover", 0))
OWN_PLAN = replace(OURS, epoch_allocated=8, switching=Switching("p", "a", 8, "restart", 0))
AT_HOME = replace(OURS, home="b")
UNREACHABLE = Unavailable("the coordinator does not answer", retry_after_s=1)
AWAY = PeerError("site b does not answer")


def said(role: str, epoch: int) -> StatusReply:
    return StatusReply("b", role, epoch, "sync", 90, 90, 0, "")


def active(register: PairState | TwinlogError | None, other: StatusReply | TwinlogError) -> tuple[ActiveEpoch, list[float]]:
    """Epoch 7 of site a, with the answers of the register and of the other site, and the confirmations of its lease."""
    async def read() -> PairState | None:
        if isinstance(register, TwinlogError):
            raise register
        return register

    async def status(timeout_s: float) -> StatusReply:
        if isinstance(other, TwinlogError):
            raise other
        return other

    confirmed: list[float] = []
    epoch: Any = object.__new__(ActiveEpoch)
    epoch.epoch = EPOCH
    epoch.parts = SimpleNamespace(
        site="a", coordinator=SimpleNamespace(read=read), other_site=SimpleNamespace(status=status)
    )
    epoch.commit = SimpleNamespace(lease_confirmed=confirmed.append)
    return epoch, confirmed


@pytest.mark.parametrize(("register", "other"), [
    (OURS, AWAY), (OURS, said("ACTIVE", 8)),  # a coordinator knows: nobody else is asked
    (OWN_PLAN, AWAY),
    (AT_HOME, AWAY), (AT_HOME, said("STANDBY", EPOCH)), (AT_HOME, said("CLOSED", 0)),
    (AT_HOME, Incompatible("another protocol")),  # it says as little as one that is away
    (UNREACHABLE, said("STANDBY", EPOCH)), (None, said("STANDBY", EPOCH)),
])
async def test_a_lease_is_confirmed_where_nobody_can_have_fenced_it(register: Any, other: Any) -> None:
    epoch, confirmed = active(register, other)
    await epoch._confirm_lease(STARTED_S)
    assert confirmed == [STARTED_S]


async def test_a_renewal_at_the_register_proves_the_lease_as_of_its_start() -> None:
    """There is no other proof without a remote log, and reads would end with the first lease."""
    times = iter([STARTED_S, STARTED_S + 3])
    clock, beats = SimpleNamespace(monotonic_s=lambda: next(times), wall_ms=lambda: 5), []

    async def renew(*given: object) -> None:
        clock.monotonic_s()
        beats.append(given)

    epoch: Any
    epoch, confirmed = active(OURS, AWAY)
    epoch.parts = SimpleNamespace(site="a", clock=clock, coordinator=SimpleNamespace(renew=renew))
    epoch.core = SimpleNamespace(committed=41)
    epoch.settings = SimpleNamespace(lease=SimpleNamespace(lease_s=2.0))
    await epoch._renew()
    assert beats == [("a", EPOCH, Beat(41, 5, 2.0))]
    assert confirmed == [STARTED_S]


@pytest.mark.parametrize(("register", "other", "error"), [
    (replace(OURS, epoch=8, active="b"), said("ACTIVE", 8), Fenced),
    (replace(OURS, epoch=8, active="a"), said("STANDBY", 8), Fenced),  # a later process of this site
    (replace(OURS, active="b"), said("STANDBY", EPOCH), Fenced),
    (TAKEN, said("STANDBY", EPOCH), Refused),
    (AT_HOME, said("ACTIVE", 8), Refused), (AT_HOME, said("STANDBY", 8), Refused),
    (UNREACHABLE, AWAY, PeerError), (None, AWAY, PeerError),
    (UNREACHABLE, said("STANDBY", 8), Refused), (UNREACHABLE, said("STANDBY", 6), Refused),
    (UNREACHABLE, said("CLOSED", EPOCH), Refused), (None, said("SWITCHING", EPOCH), Refused),
])
async def test_it_is_not_where_somebody_may(register: Any, other: Any, error: type[TwinlogError]) -> None:
    epoch, confirmed = active(register, other)
    with pytest.raises(error):
        await epoch._confirm_lease(STARTED_S)
    assert confirmed == []
