"""The role of one site: ONE table (role, event) -> (role, reason). The reason is also the log line.

What always holds, and tests/switchover/roles/test_roles.py checks on every pair:
- an event that the table does not list for a role raises IllegalTransition and changes nothing;
- writes are open only where reads are open too, and never where shipped frames are accepted;
- only a plan opens writes: the way from anywhere else to ACTIVE or DOWNGRADE_ACTIVE leads through SWITCHING;
- no step gives and takes permissions at once: a site that goes from one to the other is closed in between.

Every request reads the permissions of the role at that moment (gateway/site/site.py), so a change of the role is itself what
opens and closes. A role says what a site may do at most: every request also checks the read lease
(remote_log/fencing/read_lease.py). An active that cannot prove for a while that it is not fenced keeps its role and answers
nothing until it can again.
Source: protocol.md sections 5, 6 and 8.
This module is pure.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from twinlog.errors import IllegalTransition


class Role(StrEnum):
    CLOSED = "CLOSED"  # knows too little to act, or has stopped; a booted gateway begins here
    STANDBY = "STANDBY"  # follows the active of the current epoch
    SWITCHING = "SWITCHING"  # a plan to become active runs here, past its coordinator step
    ACTIVE = "ACTIVE"  # acknowledges what both logs hold
    DOWNGRADE_ACTIVE = "DOWNGRADE_ACTIVE"  # acknowledges what the local log holds
    DRAINING = "DRAINING"  # a planned switchover away: finishes what it has admitted; its mode stays what it was
    FENCED = "FENCED"  # was active and met a higher epoch


class Event(StrEnum):
    PLAN_STARTED = "plan_started"  # the register says: this site is switching
    PLAN_FAILED = "plan_failed"
    OPENED_SYNC = "opened_sync"  # the register says: this site is active
    OPENED_ASYNC = "opened_async"
    DOWNGRADE_RECORDED = "downgrade_recorded"  # by the register, or by an operator's command without one
    RESYNCED = "resynced"  # the register says `sync` again
    DRAIN = "drain"
    DRAIN_CANCELLED_SYNC = "drain_cancelled_sync"  # which of the two: the mode in which it was drained
    DRAIN_CANCELLED_ASYNC = "drain_cancelled_async"
    STEPPED_DOWN = "stepped_down"  # drained; what comes now belongs to the other site's epoch
    MET_HIGHER_EPOCH = "met_higher_epoch"
    REJOIN_STARTED = "rejoin_started"  # the local log and storage are about to be cut or rebuilt
    FOLLOW = "follow"  # log and storage agree with the history of the active
    HALTED = "halted"  # shut down, or a local failure that this process cannot repair


class Permissions(NamedTuple):
    writes: bool
    reads: bool
    accepts_shipped: bool


class Transition(NamedTuple):
    role: Role
    reason: str


_PERMISSIONS: dict[str, Permissions] = {
    Role.CLOSED: Permissions(writes=False, reads=False, accepts_shipped=False),
    Role.STANDBY: Permissions(writes=False, reads=False, accepts_shipped=True),
    Role.SWITCHING: Permissions(writes=False, reads=False, accepts_shipped=False),
    Role.ACTIVE: Permissions(writes=True, reads=True, accepts_shipped=False),
    Role.DOWNGRADE_ACTIVE: Permissions(writes=True, reads=True, accepts_shipped=False),
    Role.DRAINING: Permissions(writes=False, reads=True, accepts_shipped=False),
    Role.FENCED: Permissions(writes=False, reads=False, accepts_shipped=False),
}

TABLE: dict[tuple[Role, Event], Transition] = {
    (Role.CLOSED, Event.PLAN_STARTED): Transition(
        Role.SWITCHING, "this site is to be active: it claims, fences and replays before it opens"
    ),
    (Role.CLOSED, Event.REJOIN_STARTED): Transition(
        Role.CLOSED, "the log is compared with the active's history; nothing is served or applied meanwhile"
    ),
    (Role.CLOSED, Event.FOLLOW): Transition(
        Role.STANDBY, "log and storage agree with the active's history: this site follows it"
    ),
    (Role.STANDBY, Event.PLAN_STARTED): Transition(
        Role.SWITCHING,
        "this site takes over: it reads the remote log itself, and nothing shipped may come between",
    ),
    (Role.STANDBY, Event.REJOIN_STARTED): Transition(
        Role.CLOSED, "this site cannot follow as it is: it stops applying until it has rejoined"
    ),
    (Role.STANDBY, Event.HALTED): Transition(
        Role.CLOSED, "this standby stops: the active keeps what was not yet shipped"
    ),
    (Role.SWITCHING, Event.OPENED_SYNC): Transition(
        Role.ACTIVE,
        "the register names this site active, and its remote log is open: it acknowledges what both logs hold",
    ),
    (Role.SWITCHING, Event.OPENED_ASYNC): Transition(
        Role.DOWNGRADE_ACTIVE,
        "the register names this site active and the mode asynchronous: it acknowledges what the local log holds",
    ),
    (Role.SWITCHING, Event.PLAN_FAILED): Transition(
        Role.CLOSED, "the plan stopped or lost: this site stays closed until it has read its role from the register"
    ),
    (Role.ACTIVE, Event.DOWNGRADE_RECORDED): Transition(
        Role.DOWNGRADE_ACTIVE,
        "the downgrade is durably recorded: writes continue without the remote log",
    ),
    (Role.ACTIVE, Event.DRAIN): Transition(
        Role.DRAINING, "a planned switchover: no new writes, those admitted are finished"
    ),
    (Role.ACTIVE, Event.MET_HIGHER_EPOCH): Transition(
        Role.FENCED, "a higher epoch was claimed: this site is fenced and acknowledges nothing more"
    ),
    (Role.ACTIVE, Event.HALTED): Transition(
        Role.CLOSED, "this active stops: it must claim a new epoch before it opens again"
    ),
    (Role.DOWNGRADE_ACTIVE, Event.RESYNCED): Transition(
        Role.ACTIVE,
        "the other site holds everything again, and the register has mode sync: writes wait for both logs",
    ),
    (Role.DOWNGRADE_ACTIVE, Event.DRAIN): Transition(
        Role.DRAINING, "a planned switchover while asynchronous: all of it must be shipped first"
    ),
    (Role.DOWNGRADE_ACTIVE, Event.MET_HIGHER_EPOCH): Transition(
        Role.FENCED, "a higher epoch was claimed while asynchronous: writes that were not shipped wait for the rejoin"
    ),
    (Role.DOWNGRADE_ACTIVE, Event.HALTED): Transition(
        Role.CLOSED, "this asynchronous active stops: it must claim a new epoch before it opens again"
    ),
    (Role.DRAINING, Event.DRAIN_CANCELLED_SYNC): Transition(
        Role.ACTIVE, "the switchover was given up in time: synchronous writes are admitted again"
    ),
    (Role.DRAINING, Event.DRAIN_CANCELLED_ASYNC): Transition(
        Role.DOWNGRADE_ACTIVE, "the switchover was given up in time: asynchronous writes continue"
    ),
    (Role.DRAINING, Event.STEPPED_DOWN): Transition(
        Role.CLOSED, "the other site holds everything and takes over: this site has stopped, and reports it"
    ),
    (Role.DRAINING, Event.MET_HIGHER_EPOCH): Transition(
        Role.FENCED, "a higher epoch was claimed during the drain: this site is fenced"
    ),
    (Role.DRAINING, Event.HALTED): Transition(
        Role.CLOSED, "this site stops during the drain: it must claim a new epoch before it opens again"
    ),
    (Role.FENCED, Event.REJOIN_STARTED): Transition(
        Role.CLOSED, "the fenced log is cut where the new epoch begins: what diverges is dropped or quarantined"
    ),
}


def permissions(role: str) -> Permissions:
    """The role allows this at most. A name from another release, which stands in no table here, allows nothing."""
    return _PERMISSIONS.get(role, _PERMISSIONS[Role.CLOSED])


def step(role: Role, event: Event) -> Transition:
    """The new role and the reason. Raises IllegalTransition, and then nothing has changed."""
    found = TABLE.get((role, event))
    if found is None:
        legal = ", ".join(known for at, known in TABLE if at is role)
        raise IllegalTransition(f"{event} means nothing to a site that is {role} (legal here: {legal})", role=role, event=event)
    return found
