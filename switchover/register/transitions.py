"""The protocol steps on the coordinator's value: functions from the old value to the new one, or to an error.

What always holds (tests/switchover/register/test_transitions.py walks it, as the model does with `coord`):
- while a plan has the pair, nothing is downgraded, resynced or renewed, and only that plan opens;
- an epoch is given to one plan only and opened at most once, and epochs open in growing order;
- acknowledgements become asynchronous, and synchronous again, only for the active of the open epoch.
A function that finds its change already made returns the very value it was given, so that a lost answer can be asked again.
Each step ends with `check`, which raises InvariantBroken when one of these does not hold.
Source: protocol.md sections 5 and 6.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

from msgspec.structs import replace

from storage.invariants import InvariantBroken
from switchover.register.homes import next_epoch
from switchover.register.port import Beat, Mode, PairState, Switching
from twinlog.errors import Fenced, PlanSuperseded, Refused

KINDS = ("bootstrap", "restart", "takeover", "switchover")
LEASE_RENEWED = "the asynchronous active renewed its lease"
_Args = ParamSpec("_Args")
_Step = Callable[Concatenate[PairState | None, _Args], PairState]


def check(before: PairState | None, after: PairState) -> None:
    """Raises InvariantBroken when no step of the protocol leads from `before` to `after`."""
    old, running, planned = before or PairState(), (before or PairState()).switching, after.switching
    if not (old.epoch <= after.epoch <= after.epoch_allocated and old.epoch_allocated <= after.epoch_allocated):
        raise _broken(before, after, "epochs only grow, and none is open that was not given away")
    if old.pair not in ("", after.pair):
        raise _broken(before, after, "a pair keeps its identity")
    if after.mode == "sync" and after.async_since_seq is not None:
        raise _broken(before, after, "no acknowledgement is asynchronous in mode sync")
    if planned is not None and not after.epoch < planned.epoch <= after.epoch_allocated:
        raise _broken(before, after, "a plan has an epoch of its own above the open one")
    if planned is not None and planned != running and planned.epoch <= old.epoch_allocated:
        raise _broken(before, after, "an epoch is given to one plan only")
    if after.active is not None and (after.epoch, after.active, after.opened_by) != (old.epoch, old.active, old.opened_by):
        opened = None if running is None else (running.epoch, running.site, running.plan_id)
        if (after.epoch, after.active, after.opened_by) != opened or planned is not None:
            raise _broken(before, after, "only the plan that has the pair opens, its own epoch at its own site, and lets it go")
    if running is not None and planned is not None and after.mode != old.mode:
        raise _broken(before, after, "the mode does not change while a plan has the pair")
    is_spell = (after.active, after.mode) == (old.active, old.mode)
    if after.beat is not None and after.beat == old.beat and not is_spell:
        raise _broken(before, after, "a beat is of one asynchronous spell of one active")


def _broken(before: PairState | None, after: PairState, rule: str) -> InvariantBroken:
    return InvariantBroken(f"register: {rule}; {before} became {after}")


def _checked(step: _Step[_Args]) -> _Step[_Args]:
    @wraps(step)
    def stepped(state: PairState | None, /, *args: _Args.args, **kwargs: _Args.kwargs) -> PairState:
        new = step(state, *args, **kwargs)
        if new is not state:
            check(state, new)
        return new

    return stepped


@_checked
def begin_plan(
    state: PairState | None,
    plan_id: str,
    site: str,
    kind: str,
    wall_ms: int,
    *,
    supersede: bool = False,
    accept_data_loss: bool = False,
    continues: str | None = None,
    highest_claim: int = 0,
    lost_epoch: int = 0,
    epoch_step: int = 1,
    pair: str = "",
) -> PairState:
    """The plan has the pair, with an epoch of its own at least `epoch_step` above every one given away and `highest_claim`.

    Refused: another site's plan has the pair (unless `supersede`: an operator's command), a takeover from an asynchronous
    active (unless `accept_data_loss`), or a restart at a site that is not the active. A site's own unfinished plan is
    superseded without a word: its process is gone, or gave up. PlanSuperseded: the plan `continues`, which this one continues,
    does not have the pair any more. `lost_epoch`: a bootstrap by command of a pair whose value was lost (known_epochs.py).
    `pair`: the identity of a pair that has none yet.
    """
    current = state or PairState()
    running = current.switching
    if running is not None and running.plan_id == plan_id:
        assert state is not None
        return state
    if continues is not None and (running is None or running.plan_id != continues):
        raise PlanSuperseded(
            f"plan {continues} does not have the pair any more ({_holder(state)}): its operation does not resume",
            plan_id=continues,
        )
    if running is not None and running.site != site and not supersede:
        raise Refused(
            f"plan {running.plan_id} ({running.kind} to {running.site}) has the pair: follow it, resume or abort it there, "
            "or supersede it by command",
            plan_id=running.plan_id, site=running.site,
        )
    _check_kind(current, site, kind, accept_data_loss)
    epoch = next_epoch(max(current.epoch_allocated, highest_claim), current.home, epoch_step)
    over = f", superseding {running.plan_id}" if running is not None else ""
    return replace(
        current,
        pair=current.pair or pair,
        epoch=max(current.epoch, lost_epoch),
        epoch_allocated=epoch,
        anew_epoch=epoch if kind == "bootstrap" and accept_data_loss else current.anew_epoch,
        switching=Switching(plan_id=plan_id, site=site, epoch=epoch, kind=kind, since_wall_ms=wall_ms),
        reason=f"plan {plan_id} ({kind} to {site}) began with epoch {epoch}{over}",
    )


def _check_kind(current: PairState, site: str, kind: str, accept_data_loss: bool) -> None:
    """A plan of a wrong kind would skip what its situation asks for: reading the remote log, or the loss manifest."""
    if kind not in KINDS:
        raise Refused(f"no plan is of kind {kind}: it is one of {', '.join(KINDS)}")
    if kind == "bootstrap" and current.active is not None:
        raise Refused(f"the pair has been open before (epoch {current.epoch} at {current.active}): it needs no bootstrap")
    if kind == "bootstrap" and current.epoch and not accept_data_loss:
        raise Refused(
            f"the pair was open before (epoch {current.epoch}), and its register was lost: a forced failover begins it anew"
        )
    if kind in ("restart", "takeover", "switchover") and current.active is None:
        raise Refused(f"the pair has no active: {site} cannot {kind}; it needs a bootstrap")
    if kind == "restart" and current.active != site:
        raise Refused(f"the active of epoch {current.epoch} is {current.active}: {site} rejoins it, or takes over by command")
    if kind in ("takeover", "switchover") and current.active == site:
        raise Refused(f"{site} cannot take over from itself: restart it")
    if kind == "takeover" and current.mode == "async" and not accept_data_loss:
        raise Refused(
            f"{current.active} acknowledged writes asynchronously that {site} may lack: bring it back, or see the loss "
            "manifest and repeat with --accept-data-loss",
            active=current.active, epoch=current.epoch, async_since_seq=current.async_since_seq,
        )


@_checked
def open_plan(state: PairState | None, plan_id: str, mode: Mode, async_since_seq: int | None = None) -> PairState:
    """The plan's site is the active of the plan's epoch. `async_since_seq` for mode async: the end of the epoch before. Nothing
    that lies above it is known of any more: whoever opened without it has accepted that loss.

    PlanSuperseded: the plan does not have the pair (any more). Refused: a restart must not turn async into sync.
    """
    if state is not None and state.opened_by == plan_id:
        return state
    running = state.switching if state is not None else None
    if state is None or running is None or running.plan_id != plan_id:
        raise PlanSuperseded(
            f"plan {plan_id} does not have the pair any more ({_holder(state)}): it must stop, and open nothing",
            plan_id=plan_id,
        )
    stays = state.active == running.site and state.mode == "async"
    if stays and mode == "sync":
        raise Refused(f"{running.site} was asynchronous when it stopped: it restarts so, and a resync makes it synchronous")
    end = since = async_since_seq
    beat = state.beat if stays else None
    if stays:
        since = state.async_since_seq if end is None or state.async_since_seq is None else min(state.async_since_seq, end)
    if beat is not None and end is not None and beat.committed_seq > end:
        beat = None
    return replace(
        state,
        epoch=running.epoch,
        active=running.site,
        opened_by=plan_id,
        mode=mode,
        async_since_seq=since if mode == "async" else None,
        beat=beat,
        switching=None,
        reason=f"plan {plan_id} ({running.kind}) opened epoch {running.epoch} at {running.site}, {mode}",
    )


@_checked
def abandon_plan(state: PairState | None, plan_id: str) -> PairState:
    """The plan lets the pair go; its epoch stays given away. The value as it is when the plan does not have the pair.

    Refused once it has opened, or when there is no value at all.
    """
    if state is None or state.opened_by == plan_id:
        raise Refused(f"plan {plan_id} has opened, or never began: there is nothing to abandon", plan_id=plan_id)
    if state.switching is None or state.switching.plan_id != plan_id:
        return state
    return replace(state, switching=None, reason=f"plan {plan_id} ({state.switching.kind}) was abandoned")


@_checked
def downgrade(state: PairState | None, site: str, epoch: int, async_since_seq: int) -> PairState:
    """From now on acknowledgements above `async_since_seq` may be asynchronous. Errors as of `_active_value`."""
    current = _active_value(state, site, epoch, "downgrade")
    if current.mode == "async":
        return current
    why = f"{site} downgraded epoch {epoch}: acknowledgements above {async_since_seq} may be asynchronous"
    return replace(current, mode="async", async_since_seq=async_since_seq, beat=None, reason=why)


@_checked
def downgrade_closed(state: PairState | None, site: str, async_since_seq: int, opened_here: set[int]) -> PairState:
    """The active that is not open opens its next epoch asynchronously, without the other site's DFS; a restart of its own that
    was begun loses the pair. `async_since_seq`: what its storage holds. Only frames that both logs had were acknowledged below.
    `opened_here`: the epochs whose log this disk has (known_epochs.py).

    Refused: another site is the active, or its disk was replaced: it could not open, and nobody else without force any more.
    PlanSuperseded: a plan other than its own restart has the pair.
    """
    running = state.switching if state is not None else None
    if state is None or state.active != site:
        raise Refused(f"no downgrade: {site} is not the active of this pair", site=site)
    if running is not None and (running.site != site or running.kind != "restart"):
        raise PlanSuperseded(f"no downgrade of the closed site {site}: {_holder(state)}", plan_id=running.plan_id)
    if state.epoch not in opened_here:
        raise Refused(
            f"no downgrade: {site} opened epoch {state.epoch}, but its storage and log do not have it: its disk was replaced, "
            "or this is not its data directory; let the other site take over: `twinlog failover --to` it", site=site,
        )
    if state.mode == "async" and running is None:
        return state
    since = state.async_since_seq if state.mode == "async" else async_since_seq
    why = f"{site}, closed, is to open asynchronously: acknowledgements above {since} may be asynchronous"
    return replace(state, mode="async", async_since_seq=since, beat=None, switching=None, reason=why)


@_checked
def resync(state: PairState | None, site: str, epoch: int) -> PairState:
    """The other site and the remote log hold everything: synchronous again. Errors as of `_active_value`."""
    current = _active_value(state, site, epoch, "resync")
    if current.mode == "sync":
        return current
    return replace(current, mode="sync", async_since_seq=None, beat=None, reason=f"{site} resynced epoch {epoch}")


@_checked
def renew_lease(state: PairState | None, site: str, epoch: int, beat: Beat | None = None) -> PairState:
    """Proves that no plan had the pair at this moment, and leaves `beat` for a loss manifest. Errors as of `_active_value`."""
    current = _active_value(state, site, epoch, "lease renewal")
    return replace(current, lease_beats=current.lease_beats + 1, beat=beat or current.beat, reason=LEASE_RENEWED)


def _active_value(state: PairState | None, site: str, epoch: int, what: str) -> PairState:
    """The value, if `site` is the active of `epoch` and no plan has the pair.

    Fenced: a later epoch is open. PlanSuperseded: a plan has the pair. Refused: never was the active of that epoch.
    """
    if state is not None and state.epoch > epoch:
        raise Fenced(
            f"no {what} for epoch {epoch}: {state.active} has opened epoch {state.epoch}; stop, and rejoin",
            epoch=epoch, by_epoch=state.epoch,
        )
    if state is None or state.epoch != epoch or state.active != site:
        raise Refused(f"no {what}: {site} is not the active of epoch {epoch}", site=site, epoch=epoch)
    if state.switching is not None:
        raise PlanSuperseded(f"no {what} for epoch {epoch}: {_holder(state)}", plan_id=state.switching.plan_id)
    return state


def _holder(state: PairState | None) -> str:
    running = state.switching if state is not None else None
    return "no plan has it" if running is None else f"plan {running.plan_id} ({running.kind} to {running.site}) has it"
