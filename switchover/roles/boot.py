"""The decision what a closed or fenced site should become, from its role and the coordinator's value.

What always holds: a site opens by itself only as the active that the coordinator names, or as the first one of a fresh pair;
it takes over only by an operator's command, which it resumes when its process ended half-way; while another
site's plan has the pair, it waits. Source: protocol.md sections 6 ("a restarted gateway is closed until it knows") and 8,
model step_decide.
This module is pure.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from switchover.register.lost_value import advice_for_lost_register
from switchover.register.port import PairState
from switchover.roles.table import Role


class Action(Enum):
    NOTHING = "nothing"  # the role is right as it is
    WAIT = "wait"
    BOOTSTRAP = "bootstrap"
    RESTART = "restart"
    REJOIN = "rejoin"
    UNDRAIN = "undrain"
    UNDO = "undo"
    RESUME = "resume"  # unless the operation that it is part of has failed: then `waiting_for`, the operator decides


class Decision(NamedTuple):
    action: Action
    waiting_for: str | None


def decide(
    site: str, role: Role, state: PairState | None, initial_active: str, lost_epoch: int | None = None,
    met_active: str | None = None,
) -> Decision:
    """Decides what to do next. The status page shows `waiting_for` meanwhile. `role`: as it was before `state` was read.

    `lost_epoch`: the highest known epoch of a pair that the register has no record of (lost_value.py). `met_active`: the last
    active that this site knows of: both sites then name the same one.
    """
    if role is Role.DRAINING and state is not None and state.switching is None and state.active == site:
        return Decision(Action.UNDRAIN, None)  # the switchover was given up, and its undrain was lost
    if role is Role.STANDBY and state is not None and state.switching is not None and state.switching.site == site:
        return Decision(Action.UNDO, None)  # its own plan, given up before its claim, still has the pair
    if role not in (Role.CLOSED, Role.FENCED):
        return Decision(Action.NOTHING, None)
    if state is not None and state.switching is not None:
        running = state.switching
        if running.site != site:
            return Decision(Action.WAIT, f"plan {running.plan_id} ({running.kind} to {running.site}), which has the pair")
        if running.kind not in ("restart", "bootstrap") or _begins_anew(state):
            stopped = f"{running.kind} to {site} stopped half-way"
            return Decision(Action.RESUME, f"the operator: {stopped}; run `twinlog resume` or `twinlog abort`")
    if state is None or state.active is None:
        if lost_epoch is not None:
            return Decision(Action.WAIT, f"the operator: {advice_for_lost_register(site, met_active, lost_epoch)}")
        if site == initial_active:
            return Decision(Action.BOOTSTRAP, "the other site's DFS, to open the pair for the first time")
        return Decision(Action.WAIT, f"site {initial_active} to open the pair for the first time")
    if state.active == site:
        return Decision(Action.RESTART, "its own restart")
    return Decision(Action.REJOIN, f"site {state.active}, the active of epoch {state.epoch}, to answer")


def _begins_anew(state: PairState) -> bool:
    """By command, after the pair's value was lost: nothing of that continues as if the pair were fresh."""
    return state.active is None and state.epoch > 0
