"""The plan of a run: its workload, its knobs, and every fault with its time. Drawn from a seed (draw.py), or read from a file.

What always holds: a plan is plain data; `parse(text(plan)) == plan`. Shrinking a plan
removes faults and operations and leaves the rest as it was: what is random within a run (delays, torn bytes) comes from
streams of the plan's seed that are named for their use. The text form is a scenario for people, one thing a line.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from chaos.fault_lines import Fault, fault_text, parse_fault
from chaos.simulate.actors.false_answers import FALSE_ANSWERS
from chaos.simulate.actors.lies import LIES
from chaos.workloads import WORKLOADS
from twinlog.errors import InvalidInput

SITES = ("a", "b")


class Knobs(msgspec.Struct, frozen=True):
    """The settings of the world, all through a run: seconds, bytes and shares."""

    coordinator: bool = True  # False: the register is on the two DFSs, "w" is nobody, and the policy is not available
    policy: str = "protect"
    lease_s: float = 1.0
    noop_interval_s: float = 0.3
    flush_interval_s: float = 0.5
    degrade_after_s: float = 2.0  # of policy available
    segment_bytes: int = 16 << 10
    op_interval_s: float = 0.1  # of one client, on average
    link_s: float = 0.002  # one way, between the sites
    link_jitter: float = 0.5  # share of it
    loss: float = 0.0  # share of messages that vanish
    duplicate: float = 0.0
    disk_slow: float = 1.0  # how many times slower than a good disk
    slow_reads: float = 0.0  # share of the reads of a row from a storage that take a while, for others to come between
    drift_a: float = 0.0  # share: how much faster a's clock runs
    drift_b: float = 0.0
    again: float = 0.0  # share of the turns of a client in which it also repeats a write of before, or asks for its receipt
    http: float = 0.0  # share of the clients' requests that pass the HTTP protocol and the routes of the site
    monitor: str = "off"  # off | observe | act
    engine: str = "simulated"  # simulated | rocksdb | sqlite: what both sites keep their rows in


class SeedPlan(msgspec.Struct, frozen=True):
    seed: int
    workload: str
    clients: int
    operations: int  # in all, by all clients
    knobs: Knobs = Knobs()
    faults: tuple[Fault, ...] = ()
    skipped: tuple[int, ...] = ()  # operations that shrinking left out


class Kind(msgspec.Struct, frozen=True):
    """A kind of fault. `weight` among all; `how` is one of; durations between `least_s` and `most_s`, 0 for a moment."""

    name: str
    targets: tuple[str, ...]
    weight: float
    least_s: float = 0.0
    most_s: float = 0.0
    how: tuple[str, ...] = ("",)


EITHER = ("a", "b", "active", "standby")
KINDS = (
    Kind("crash", EITHER, 3.0, 0.1, 6.0, ("process", "machine")),
    Kind("pause", EITHER, 2.0, 0.1, 8.0),
    Kind("cut", ("a-b", "a>b", "b>a", "a-w", "b-w", "a-c", "b-c"), 3.0, 0.1, 5.0),
    Kind("isolate", EITHER, 1.5, 0.5, 6.0, ("from-all", "not-from-clients")),
    Kind("slow-link", ("a-b", "a-w", "b-w"), 0.7, 0.5, 4.0),
    Kind("fail-sync", EITHER, 2.0, how=("none", "part", "all")),
    Kind("hang-disk", EITHER, 0.7, 0.2, 4.0),
    Kind("slow-disk", EITHER, 0.7, 0.5, 4.0),
    Kind("full-disk", EITHER, 0.7, 0.2, 4.0),
    Kind("fail-append", SITES, 2.0, how=("none", "part", "flipped", "all")),
    Kind("hang-dfs", SITES, 1.0, 0.2, 4.0),
    Kind("dfs-down", SITES, 1.5, 0.2, 5.0),
    Kind("crash-dfs", SITES, 1.5, 0.5, 5.0),  # at its next append, in the middle of it
    Kind("slow-recovery", SITES, 0.7, 2.0, 8.0),
    Kind("stuck-recovery", SITES, 0.4, 2.0, 8.0),
    Kind("witness-down", ("w",), 1.0, 0.2, 5.0),
    Kind("jump", SITES, 0.7, how=("-30", "-0.5", "0.5", "30")),
    Kind("engine-fails", EITHER, 0.4, 0.2, 3.0),
    Kind("failover", ("a", "b", "standby"), 3.0, how=("", "", "accept-data-loss")),
    Kind("switchover", ("a", "b", "standby"), 2.0),
    Kind("rejoin", EITHER, 0.7),
    Kind("degrade", ("active",), 1.0),
    Kind("resync", ("active",), 1.0),
    Kind("abort", EITHER, 0.7),
    Kind("resume", EITHER, 0.5),
)
DISASTERS = (  # what was synced is lost, or wrong; one a run at most, for two may take both copies of what was acknowledged
    Kind("replace-disk", EITHER, 3.0, 0.5, 6.0),
    Kind("site-lost", EITHER, 2.0, 0.5, 6.0),
    Kind("rot", ("active",), 2.0, how=("wal", "remote", "cursors", "register")),
    Kind("coordinator-lost", ("w",), 2.0, how=SITES),
    Kind("coordinator-back", ("w",), 3.0, how=("1", "2", "3", "5", "8")),
    Kind("part-back", EITHER, 2.0, 0.5, 5.0, ("wal", "journal", "notes")),
)
OLDER = (  # a disaster, too; drawn behind everything else, so that each other seed keeps its plan
    Kind("storage-back", EITHER, 3.0, 0.5, 5.0),
    Kind("disk-back", EITHER, 2.0, 0.5, 5.0),
    Kind("dfs-back", EITHER, 3.0, 0.5, 5.0),
)
BARRIER = Kind("barrier", ("active",), 1.0)
REFUSAL = Kind("refuse-change", EITHER, 1.0)  # a database refuses the next schema change that it meets, for ever
LIE = Kind("lie", ("a", "b", "active", "standby", "standby"), 1.0, how=tuple(LIES))  # what one posts that no site sends
FALSE_ANSWER = Kind("false-answer", EITHER, 1.0, 0.2, 4.0, tuple(FALSE_ANSWERS))  # what no site answers
STEP = Kind("at-step", ("any", "any", *SITES), 1.0, 0.05, 4.0)  # `how`: DEED:NTH:POINT (aims.py)
PLAIN = tuple(kind.name for kind in KINDS)
BY_NAME = {kind.name: kind for kind in (*KINDS, *DISASTERS, *OLDER, BARRIER, REFUSAL, LIE, FALSE_ANSWER, STEP)}
FAULTS_END_S = 7.0  # by then the last fault has begun


def draw_fault(chance: random.Random, kind: Kind, at_s: float) -> Fault:
    for_s = round(chance.uniform(kind.least_s, kind.most_s), 3) if kind.most_s else 0.0
    return Fault(at_s, kind.name, chance.choice(kind.targets), for_s, chance.choice(kind.how))


# ---- the text form
def text(plan: SeedPlan) -> str:
    """The plan, one thing a line."""
    lines = [f"seed {plan.seed}", f"workload {plan.workload}", f"clients {plan.clients}", f"operations {plan.operations}"]
    if plan.skipped:
        lines.append("skipped " + ",".join(map(str, plan.skipped)))
    plain = asdict(Knobs())
    lines += [f"knob {name} {value}" for name, value in asdict(plan.knobs).items() if value != plain[name]]
    lines += [fault_text(fault) for fault in plan.faults]
    return "\n".join(lines) + "\n"


def parse(source: str) -> SeedPlan:
    """Raises InvalidInput that names the line. `#` begins a comment."""
    found: dict[str, Any] = {"seed": 0, "workload": "registers", "clients": 4, "operations": 100}
    knobs: dict[str, Any] = {}
    faults: list[Fault] = []
    for number, line in enumerate(source.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            if words[0] == "at":
                faults.append(parse_fault(words, BY_NAME))
            elif words[0] == "knob":
                knobs[words[1]] = words[2]
            elif words[0] == "skipped":
                found["skipped"] = tuple(int(each) for each in words[1].split(","))
            elif words[0] in found:
                found[words[0]] = words[1] if words[0] == "workload" else int(words[1])
            else:
                raise InvalidInput(f"{words[0]!r} begins no line of a plan")
        except (IndexError, ValueError, KeyError, InvalidInput) as error:
            raise InvalidInput(f"line {number} of the plan, {line.strip()!r}: {error}", line=number) from error
    try:
        plan = SeedPlan(**found, knobs=msgspec.convert(knobs, Knobs, strict=False), faults=tuple(faults))
    except msgspec.ValidationError as error:
        raise InvalidInput(f"a knob of the plan is wrong: {error}") from error
    if plan.workload not in WORKLOADS:
        raise InvalidInput(f"workload {plan.workload!r} is none of {', '.join(WORKLOADS)}")
    return plan


def without(plan: SeedPlan, faults: frozenset[int]) -> SeedPlan:
    """The plan without the faults of these indices."""
    return replace(plan, faults=tuple(fault for index, fault in enumerate(plan.faults) if index not in faults))
