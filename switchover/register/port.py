"""The coordinator port: one compare-and-set register for the pair, kept where neither site's loss takes it away.

What always holds: `state_id` grows by one with each change, and a change succeeds only on the very value that its author had
read, so that a takeover, a restart and a downgrade exclude each other. The number alone does not name a value: a register that
went back gives the same numbers again. What the next value may be is decided in
transitions.py, which is pure; an implementation (sql.py, two_dfs.py) only compares and keeps.
Source: protocol.md section 5; `coord` in the model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Literal, Protocol

import msgspec

from twinlog.errors import PlanSuperseded, RegisterWentBack, Unavailable

Mode = Literal["sync", "async"]
ATTEMPTS_MAX = 16  # two sites and their operators: losing this often means that something spins


class Switching(msgspec.Struct, frozen=True):
    """The plan that has the pair: until it opens or is abandoned, nobody downgrades, renews or opens anything else."""

    plan_id: str  # of one attempt: a process that takes a plan up again begins anew, with a new epoch
    site: str
    epoch: int
    kind: str  # bootstrap | restart | takeover | switchover
    since_wall_ms: int


class Beat(msgspec.Struct, frozen=True):
    """The report of an asynchronous active with each renewal: all that is known of its acknowledgements once it is lost."""

    committed_seq: int  # it had committed up to here, by its own log alone
    wall_ms: int  # by its clock
    lease_s: float  # it may acknowledge for so long without another renewal


class PairState(msgspec.Struct, frozen=True):
    """The value."""

    state_id: int = 0
    epoch: int = 0  # of the open active; 0: none was ever open. With no active: the value was lost, and this epoch is known of
    epoch_allocated: int = 0  # highest ever given to a plan; never below `epoch`
    active: str | None = None  # the site that opened `epoch`
    opened_by: str | None = None  # the plan that opened `epoch`
    mode: Mode = "sync"
    async_since_seq: int | None = None  # mode async: acknowledgements above it may be async; None: unknown, or sync
    switching: Switching | None = None
    lease_beats: int = 0  # one more with each renewal by an asynchronous active
    beat: Beat | None = None  # of the last renewal in this asynchronous spell; None: there was none, or sync
    reason: str = ""  # why this value was set, for people
    home: str | None = None  # the site on whose DFS the next value is decided; None: a coordinator keeps it
    home_forced: int = 0  # how often an operator moved the home without the old one
    pair: str = ""  # the identity of the pair, 16 digits hex, for life: two pairs of one name differ by it
    anew_epoch: int = 0  # with which a command began the pair anew: what was known of lower epochs does not count any more


class Coordinator(Protocol):
    """Raises Unavailable when it does not answer by its deadline; a change may have happened all the same."""

    async def read(self) -> PairState | None:
        """The value; None for a pair that has none yet."""

    async def compare_and_set(self, expected: PairState | None, new: PairState, *, blind: bool = False) -> PairState:
        """Replace the value `expected` (None: there is none) by `new`, with the next state id; that value.

        Durable when it returns. Raises PlanSuperseded (field `current`: the value there is, as JSON) when it is another one, or
        when `new` was decided `blind`, on a look that left a place `unseen`, and every place is in sight now.
        """

    async def renew(self, site: str, epoch: int, beat: Beat) -> PairState:
        """Proves that, at some moment since the call, `site` was the active of `epoch` and no plan had the pair. Returns the
        value that proves it.

        Raises Fenced (a later epoch is open), PlanSuperseded (a plan has the pair, or the value moved), Refused.
        """

    async def held(self, value: PairState) -> bool:
        """False when the register's history, up to the place of `value`, holds another one there: it is on another line. Where
        no history is kept, or lines are brought together, always True."""

    # ---- where the value can be out of reach alone (two_dfs.py); a register in one place knows all, or does not answer
    @property
    def known(self) -> PairState | None:
        """The highest value met, to continue from when the value cannot be read: by an operator's command, or as a hint."""

    @property
    def unseen(self) -> str | None:
        """The site on whose DFS the last look at the value saw nothing, so that a decision there is not known of."""

    async def force(self, change: Callable[[PairState | None], PairState]) -> PairState:
        """By an operator's command: as `update`, or with what `change` makes of `known` when the value is out of reach."""

    async def close(self) -> None: ...


async def update(coordinator: Coordinator, change: Callable[[PairState | None], PairState]) -> PairState:
    """Sets what `change` (of transitions.py) makes of the current value. Returns it, or the current one if it says so already.

    A value that moved in between is read again and judged anew by `change`, whose errors come through.
    """
    for _ in range(ATTEMPTS_MAX):
        current = await coordinator.read()
        new = change(current)
        if new is current:
            return new
        try:
            return await coordinator.compare_and_set(current, new)
        except PlanSuperseded:
            continue
    raise PlanSuperseded(f"the coordinator's value changed {ATTEMPTS_MAX} times under this change: see who else is at work")


async def read_or_known(coordinator: Coordinator) -> PairState | None:
    """By an operator's command: the value, or the highest that is known. A register that went back counts as lost. Raises
    Unavailable when nothing is known."""
    try:
        return await coordinator.read()
    except RegisterWentBack:
        return None
    except Unavailable:
        if coordinator.known is None:
            raise
        return coordinator.known


def pair_begun_by(plan_id: str) -> str:
    """The identity of the pair that this plan begins: 16 digits hex. Plan ids are unique for ever."""
    return hashlib.blake2b(plan_id.encode(), digest_size=8).hexdigest()


def next_state_id(expected: PairState | None) -> int:
    return 1 if expected is None else expected.state_id + 1


def superseded(expected: PairState | None, current: PairState | None) -> PlanSuperseded:
    """The error of a compare-and-set that found another value."""
    at = 0 if expected is None else expected.state_id
    found = "there is none" if current is None else f"it is at {current.state_id}: {current.reason}"
    return PlanSuperseded(
        f"the coordinator's value is not the one at {at} any more, {found}; read it and decide anew",
        expected_state_id=at,
        current=msgspec.to_builtins(current),
    )
