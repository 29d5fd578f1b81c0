"""Planted bugs of fencing, leases, modes and role changes."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

import remote_log.fencing.reading
import remote_log.writing.segments
import switchover.activation.activation
import switchover.activation.opening
from chaos.simulate.bugs.bug import Bug
from chaos.simulate.draw import draw
from gateway.epoch.active_epoch import RemoteReports
from gateway.epoch.modes import Modes
from remote_log.fencing.claims import claimed_epochs
from remote_log.fencing.read_lease import ReadLease
from remote_log.replication.sink import Sink
from storage.clock import Clock
from storage.engines.applying import transactions
from storage.log.segment import scan_segment
from switchover.activation.activation import Activation
from switchover.activation.ports import OpenedEpoch
from switchover.plans.takeover import Takeover
from switchover.register.homes import next_epoch
from switchover.register.port import PairState, Switching
from switchover.register.transitions import open_plan
from switchover.rejoin import Rejoin
from twinlog.errors import PlanSuperseded

TAKEOVERS = ("pause", "isolate", "cut", "failover")
SLOW_RESTART_S = 5.0
ASYNC_LOSS = ("cut", "degrade", "degrade", "degrade", "failover")  # what is named often is drawn often
FORCED = ("crash", "pause", "isolate", "dfs-down", "failover", "degrade", "resync")
_on_synced = RemoteReports.on_synced
_begin, _replay, _open = Activation.begin, Activation.replay, Activation.open


async def _nothing(*_: Any, **__: Any) -> None:
    return None


async def _no_fence(
    dfs: Any, layout: Any, below_epoch: int, clock: Clock, deadline_s: float, progress: Any = None
) -> float:
    return clock.monotonic_s()


async def _no_wait(self: Activation) -> None:
    await self.replay()


def _no_check(*_: Any) -> None:
    return None


# ---- fencing and leases
async def _read_though_open(dfs: Any, layout: Any, path: str, pair: str = "", keys: Any = None) -> Any:
    return scan_segment(await dfs.read(path), path).frames


def _always_valid(self: ReadLease, now_s: float) -> bool:
    return self._start_s > -1


def _proved_when_answered(self: RemoteReports, seq: int, started_s: float) -> None:
    _on_synced(self, seq, self._clock.monotonic_s())


# ---- modes
def _unrecorded(self: Modes, state: PairState, since: int) -> PairState:
    return state


def _has_caught_up(self: Modes) -> bool:
    return True


# ---- activation
async def _numbers_from_storage(self: Activation) -> None:
    if "replay" not in self._done:
        await _replay(self)
        self._high_seq = self.parts.engine.applied.seq


async def _begin_without_asking(self: Activation) -> None:
    if self.request.kind != "restart" or "begin" in self._done:
        await _begin(self)
        return
    self.before = state = await self.parts.coordinator.read()
    assert state is not None
    claims = await claimed_epochs(self._arbiter, self.parts.layout) if self._needs_arbiter else []
    met = [state.epoch_allocated, *claims, *(each.epoch for each in self.parts.wal.segments())]
    self.epoch = next_epoch(max(met), state.home)
    _restarts[self.request.plan_id] = Switching(self.request.plan_id, self.parts.site, self.epoch, "restart", 0)
    self._reached("begin")
    await self.parts.clock.sleep(SLOW_RESTART_S)


def _open_anyway(state: PairState | None, plan_id: str, mode: Any, async_since_seq: int | None = None) -> PairState:
    try:
        return open_plan(state, plan_id, mode, async_since_seq)
    except PlanSuperseded:
        if state is None or plan_id not in _restarts:
            raise
        mine = _restarts[plan_id]
        taken = replace(state, switching=mine, epoch_allocated=max(state.epoch_allocated, mine.epoch))
        return open_plan(taken, plan_id, mode, async_since_seq)


_restarts: dict[str, Switching] = {}


_step_down = Takeover._step_down


async def _apply_only(self: Activation, frames: Any) -> None:
    for group in transactions(frames):
        await self.parts.engine.apply(group)


async def _write_no_wal(self: Activation, frames: Any, local: Any, end: Any) -> None:
    await self.parts.wal.start(self.epoch, self._high_seq + 1, self._pair)


async def _open_slowly(self: Activation) -> OpenedEpoch:
    """Waits between the replay and the opening, so that other events can come between."""
    await self.replay()
    await self.parts.clock.sleep(1.0)
    return await _open(self)


# ---- rejoin
async def _keep_rows(self: Rejoin, end: int) -> None:
    epoch = max(entry.epoch for entry in self._history if entry.first_seq <= end)
    await self._engine.replace_rows([], end, epoch, self._engine.applied.timestamp)


# ---- switchover
async def _believe_it_stopped(self: Takeover) -> dict[str, Any]:
    detail = await _step_down(self)
    if not detail["confirmed"]:
        (await self._need_activation()).old_has_stopped(self._control.parts.engine.durable_seq)
    return detail


BUGS = (
    Bug(
        "step-down-believed", "A switchover takes an old active that did not answer for one that stopped with what it knows.",
        "P1", ("two_copies", "one_active", "acknowledged", "linearizable", "liveness"), 75, 5,
        ((Takeover, "_step_down", _believe_it_stopped),), drawn=draw,
    ),
    Bug(
        "no-fencing", "A takeover neither recovers leases nor minds that a segment is open when it reads it.", "P2",
        ("one_active", "acknowledged", "linearizable"), 42, 25,
        (
            (switchover.activation.activation, "fence", _no_fence),
            (remote_log.fencing.reading, "read_segment", _read_though_open),
        ),
        TAKEOVERS,
    ),
    Bug(
        "no-lease-wait", "A takeover opens while the old active's read lease may still run.", "P2",
        ("one_active", "linearizable"), 170, 60, ((Activation, "wait_lease", _no_wait),), TAKEOVERS,
    ),
    Bug(
        "no-claim-check", "A writer that made a segment does not look at the claims.", "P2",
        ("one_active", "linearizable", "liveness"), 17, 100,
        ((remote_log.writing.segments, "check_not_fenced", _nothing),), TAKEOVERS,
    ),
    Bug(
        "serve-without-lease", "Reads are served and writes acknowledged though the lease has run out.", "P2",
        ("proved", "one_active"), 7, 10, ((ReadLease, "valid_at", _always_valid),), TAKEOVERS,
    ),
    Bug(
        "lease-from-the-answer", "An append proves the lease as of when its success is heard of, not as of its begin.", "P2",
        ("proved",), 51, 10, ((RemoteReports, "on_synced", _proved_when_answered),), drawn=draw,
    ),
    Bug(
        "no-epoch-check-at-sink", "A site takes shipped frames of every epoch and in every role, also before it opens.", "P2",
        ("acknowledged", "linearizable", "liveness"), 1088, 10,
        ((Sink, "_check_following", _no_check), (Activation, "open", _open_slowly)),
        ("degrade", "degrade", "slow-disk", "failover", "failover"),
    ),
    Bug(
        "downgrade-unrecorded", "A downgrade is not recorded at the coordinator.", "P8", ("honest",), 1, 10,
        ((Modes, "_downgraded", _unrecorded),), FORCED,
    ),
    Bug(
        "resync-too-early", "The mode is called sync before the standby has what was acknowledged asynchronously.", "P1",
        ("two_copies",), 44, 30, ((Modes, "_peer_has_caught_up", _has_caught_up),), FORCED,
    ),
    Bug(
        "sequence-again-after-restart", "A new epoch counts on from what the storage held before the replay.", "P1",
        ("acknowledged", "linearizable", "liveness"), 1, 15, ((Activation, "replay", _numbers_from_storage),), ("crash",),
    ),
    Bug(
        "restart-without-asking", "A restart, a slow one, opens without having taken the pair at the coordinator.", "P2",
        ("linearizable", "invariants", "one_active"), 117, 20,
        ((Activation, "begin", _begin_without_asking), (switchover.activation.opening, "open_plan", _open_anyway)),
        ("degrade", "degrade", "degrade", "crash", "failover"),
    ),
    Bug(
        "open-before-durable", "A takeover opens with a storage that is not durable, and with nothing of it in its WAL.", "P1",
        ("two_copies",), 12, 20,
        ((Activation, "_apply", _apply_only), (Activation, "_write_wal", _write_no_wal)), ("crash", "pause", "failover"),
    ),
    Bug(
        "rejoin-keeps-rows", "A rejoin cuts the diverging end of the log and keeps its rows.", "P6", ("convergence",), 30, 60,
        ((Rejoin, "_refetch", _keep_rows),), ASYNC_LOSS,
    ),
    Bug(
        "rejoin-keeps-tail", "A rejoin keeps the diverging end of its log.", "P6", ("linearizable", "liveness"), 16, 40,
        ((Rejoin, "_cut", _nothing),), ASYNC_LOSS,
    ),
)
