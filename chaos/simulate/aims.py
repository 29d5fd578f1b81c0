"""Plans that aim: a role change or another course of events, and faults at steps of it, drawn from a seed.

A switchover runs to its end in a few of a hundred random plans, and few faults fall into it. A plan that aims begins one in a
quiet pair, with little else, and strikes at a named point of it. What always holds: drawing uses nothing but the seed.
"""

from __future__ import annotations

import random

from msgspec.structs import replace

from chaos.fault_lines import Fault
from chaos.simulate.plan import BY_NAME, DISASTERS, FAULTS_END_S, OLDER, STEP, SeedPlan, draw_fault

DEEDS = ("crash", "machine", "pause", "fail", "late", "cut")
DEED_WEIGHTS = (4, 2, 2, 3, 2, 1)
_PLANS = {
    "failover": ("begin", "fence", "wait_lease", "replay", "claim", "open", "verify", "cleanup"),
    "switchover": (
        "begin", "near", "step_down", "drain", "catch_up", "fence", "wait_lease", "replay", "claim", "open", "verify",
        "cleanup", "begin.undo", "drain.undo",
    ),
    "restart": ("begin", "fence", "wait_lease", "replay", "claim", "open"),
    "rejoin": ("preflight", "rejoin"), "degrade": ("degrade",), "resync": ("resync",),
}
_PORTS = {
    "files": ("create_log", "delete", "list", "make_durable", "read", "truncate_tail", "write_new"),
    "own_dfs": ("create_file", "delete", "is_closed", "list", "read", "recover_lease"),
    "peer_dfs": ("create", "create_file", "delete", "is_closed", "list", "read", "recover_lease"),
    "coordinator": ("compare_and_set", "force", "held", "read", "renew"),
    "transport": ("base", "base_done", "drain", "epochs", "facts", "follow", "prepare", "replicate", "status",
                  "step_down", "undrain"),
    "engine": (
        "apply", "finish_base", "flush", "get", "keep_snapshot", "load_base", "prepare_schema", "reopen",
        "replace_rows", "request_outcome", "scan", "set_meta", "snapshot",
    ),
    "journal": ("create", "load", "operations", "save"),
}
_OFTEN = {  # calls of ports that belong to a course
    "switchover": ("transport.drain", "transport.step_down", "transport.undrain", "coordinator.compare_and_set",
                   "peer_dfs.create_file", "peer_dfs.create", "own_dfs.recover_lease",
                   "own_dfs.list", "own_dfs.read", "transport.status", "transport.facts", "journal.save", "engine.flush",
                   "files.create_log", "files.write_new", "own_dfs.create_file", "transport.replicate", "engine.apply"),
    "failover": ("coordinator.compare_and_set", "own_dfs.create_file", "own_dfs.recover_lease", "own_dfs.is_closed",
                 "own_dfs.list", "own_dfs.read", "peer_dfs.create_file", "peer_dfs.create", "journal.save", "journal.create",
                 "engine.apply", "engine.flush", "files.create_log", "files.write_new", "transport.facts"),
    "restart": ("coordinator.compare_and_set", "peer_dfs.list", "peer_dfs.read", "peer_dfs.recover_lease", "files.list",
                "peer_dfs.create_file", "peer_dfs.create", "files.read", "files.create_log", "files.make_durable",
                "files.write_new", "engine.apply", "journal.save", "coordinator.read"),
    "rejoin": ("transport.epochs", "transport.follow", "files.write_new", "files.truncate_tail", "files.delete",
               "engine.replace_rows", "engine.snapshot", "engine.reopen", "engine.set_meta", "journal.save"),
    "degrade": ("coordinator.compare_and_set", "coordinator.force", "peer_dfs.create", "engine.set_meta"),
    "resync": ("coordinator.compare_and_set", "peer_dfs.create", "peer_dfs.create_file", "transport.status"),
    "write": ("peer_dfs.create", "peer_dfs.delete", "peer_dfs.is_closed", "files.create_log", "files.delete", "engine.flush",
              "engine.prepare_schema", "engine.request_outcome", "engine.apply", "engine.get", "transport.prepare",
              "transport.replicate", "coordinator.renew", "engine.scan", "engine.keep_snapshot"),
    "base": ("transport.base", "transport.base_done", "transport.follow", "engine.load_base", "engine.finish_base",
             "engine.snapshot", "files.write_new", "engine.flush", "engine.set_meta"),
}
_CHANGING = tuple(f"activation.{step}" for step in (
    "begin", "fence", "wait_lease", "replay", "claim", "started", "open", "applied",
))
_INSIDE = {
    "failover": _CHANGING, "switchover": _CHANGING, "restart": _CHANGING,
    "rejoin": ("rejoin.replayed", "rejoin.cut", "rejoin.cleared"),
    "degrade": ("degrade.recorded",), "resync": ("resync.recorded", "resync.tightened"),
    "write": tuple(f"commit.{step}" for step in (
        "framed", "local_synced", "remote_synced", "committed", "applied", "acknowledged",
    )),
}
REFUSABLE = ("own_dfs", "peer_dfs", "transport", "coordinator", "files")
DISASTROUS = tuple(kind.name for kind in (*DISASTERS, *OLDER))  # what may be done beside one is a matter of draw.py
COURSES = {"switchover": 6, "failover": 2, "restart": 1, "rejoin": 2, "degrade": 1, "resync": 2, "write": 3, "base": 4}
WHENS = ("before", "after", "journaled")  # of a step of a plan
OPERATIONS = 0.7  # of those that the plan had, in the same time: a course needs fewer
AFTER_S = (0.0, 0.0, 0.02, 0.1, 0.4, 1.5)  # from the event until the trap is set


def ports() -> tuple[str, ...]:
    return tuple(f"{port}.{call}.{when}" for port, calls in _PORTS.items() for call in calls for when in ("before", "after"))


def points(course: str) -> tuple[str, ...]:
    """Returns the points of the plan of `course`, and the product's failpoints inside it."""
    steps = tuple(f"plan.{course}.{step}.{when}" for step in _PLANS.get(course, ()) for when in WHENS)
    return (*steps, *_INSIDE.get(course, ()))


def calls_of(course: str) -> tuple[str, ...]:
    """Returns the points of ports that belong to `course`."""
    return tuple(f"{call}.{when}" for call in _OFTEN[course] for when in ("before", "after"))


def aimed(plan: SeedPlan) -> SeedPlan:
    """Returns the plan with a course of events of its own, faults at steps of that, and at most two of its other faults."""
    chance = random.Random(f"aim {plan.seed}")
    course = chance.choices(list(COURSES), list(COURSES.values()))[0]
    at_s = round(chance.uniform(1.0, 3.0) + (2.5 if course == "base" else 0.0), 3)  # base data only where logs were trimmed
    others = [fault for fault in plan.faults if fault.kind not in DISASTROUS]
    if course == "base":  # a disaster: as in draw.py, nobody is talked into accepting a loss then
        others = [replace(fault, how="") if fault.kind == "failover" else fault for fault in others]
    faults = chance.sample(others, min(len(others), chance.choice((0, 0, 1, 2))))
    faults += _events(chance, course, at_s)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        faults.append(_trap(chance, course, at_s))
    knobs = plan.knobs if chance.random() < 0.3 else replace(plan.knobs, loss=0.0, drift_a=0.0, drift_b=0.0, disk_slow=1.0)
    if course == "base":
        knobs = replace(knobs, segment_bytes=4 << 10, flush_interval_s=0.1)
    knobs = replace(knobs, op_interval_s=round(knobs.op_interval_s / OPERATIONS, 3))
    in_order = tuple(sorted(faults, key=lambda fault: fault.at_s))
    return replace(plan, operations=round(plan.operations * OPERATIONS), knobs=knobs, faults=in_order)


def _events(chance: random.Random, course: str, at_s: float) -> list[Fault]:
    """The course itself: what an operator commands, and what has to break before."""
    def broken(kind: str, **how: str) -> Fault:
        return replace(draw_fault(chance, BY_NAME[kind], at_s), target="active", **how)

    if course == "switchover":
        return [Fault(at_s, "switchover", "standby")]
    if course == "rejoin" and chance.random() < 0.6:  # what only the lost active held leaves its rows again
        down = replace(draw_fault(chance, BY_NAME["isolate"], at_s), target="standby", for_s=1.5, how="not-from-clients")
        lost = replace(broken("crash"), at_s=round(at_s + 1.2, 3))
        forced = Fault(round(at_s + 1.7, 3), "failover", "standby", how="accept-data-loss")
        return [down, Fault(round(at_s + 0.3, 3), "degrade", "active"), lost, forced]
    if course in ("failover", "rejoin"):
        lost = broken(chance.choice(("crash", "crash", "pause", "isolate")))
        return [lost, Fault(round(at_s + chance.uniform(0.05, 1.5), 3), "failover", "standby")]
    if course == "restart":
        return [broken("crash")]
    if course in ("degrade", "resync"):
        down = replace(draw_fault(chance, BY_NAME["isolate"], at_s), target="standby", how="not-from-clients")
        degrade = Fault(round(at_s + 0.3, 3), "degrade", "active")
        return [down, degrade, Fault(round(at_s + down.for_s + 0.2, 3), "resync", "active")]
    if course == "base":
        return [replace(draw_fault(chance, BY_NAME["replace-disk"], at_s), target="standby")]
    return []


def _trap(chance: random.Random, course: str, at_s: float) -> Fault:
    roll, inside = chance.random(), points(course)
    if inside and roll < 0.5:
        point = chance.choice(inside)
    elif roll < 0.9:
        point = f"{chance.choice(_OFTEN[course])}.{chance.choice(('before', 'after'))}"
    else:
        point = chance.choice(ports())
    deeds = [deed for deed in DEEDS if deed != "fail" or point.partition(".")[0] in REFUSABLE]
    deed = chance.choices(deeds, [DEED_WEIGHTS[DEEDS.index(each)] for each in deeds])[0]
    nth = chance.choice((1, 1, 1, 1, 1, 2, 3))
    when_s = min(FAULTS_END_S, round(at_s + chance.choice(AFTER_S), 3))
    trap = draw_fault(chance, STEP, when_s)
    return replace(trap, how=f"{deed}:{nth}:{point}")
