"""The plan of a run: its workload, its knobs, and every fault with its time. Drawn from a seed, or read from a file.

What always holds: a plan is plain data; drawing it uses nothing but the seed; `parse(text(plan)) == plan`. Shrinking a plan
removes faults and operations and leaves the rest as it was: what is random within a run (delays, torn bytes) comes from
streams of the plan's seed that are named for their use. The text form is a scenario for people, one thing a line.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from chaos.simulate.actors.lies import LIES
from chaos.workloads import WORKLOADS
from chaos.workloads.schema_changes import SchemaChanges
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
    drift_a: float = 0.0  # share: how much faster a's clock runs
    drift_b: float = 0.0
    monitor: str = "off"  # off | observe | act


class Fault(msgspec.Struct, frozen=True):
    """`for_s` until it is healed; 0 where there is nothing to heal. `how` refines it."""

    at_s: float
    kind: str
    target: str
    for_s: float = 0.0
    how: str = ""


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
STEP = Kind("at-step", ("any", "any", *SITES), 1.0, 0.05, 4.0)  # `how`: DEED:NTH:POINT (aims.py)
PLAIN = tuple(kind.name for kind in KINDS)
BY_NAME = {kind.name: kind for kind in (*KINDS, *DISASTERS, *OLDER, BARRIER, REFUSAL, LIE, STEP)}
FAULTS_END_S = 7.0  # by then the last fault has begun
AFTER_LOSS = ("crash", "pause", "cut", "isolate", "dfs-down")  # an operator may react to these with a failover
IN_CHANGE = ("failover", "switchover")  # in the middle of these a site may crash
MODES = ("rejoin", "degrade", "resync")  # and of these
ALONE = 4  # one plan in so many is of a pair without a coordinator
STRUCK = 5  # one plan in so many has a disaster
CHOSEN = 10  # one plan in so many has the policy performance
REFUSED = 4  # in one plan in so many of those with schema changes a database refuses one
AUDITED = 4  # in one plan in so many barriers are taken
RESTORED = 12  # in one plan in so many without another disaster a part comes back older
LIED_TO = 3  # in one plan in so many somebody posts forged messages


def draw(seed: int, kinds: tuple[str, ...] = tuple(BY_NAME)) -> SeedPlan:
    """The plan of `seed`, of faults of `kinds` only."""
    plan = audited(struck(hurried(watched(chosen(plain(seed, kinds))), kinds), kinds), kinds)
    return restored(lied_to(refused(plan, kinds), kinds), kinds)


def restored(plan: SeedPlan, kinds: tuple[str, ...] = tuple(BY_NAME)) -> SeedPlan:
    """Returns the plan, with a part that comes back older if its seed is one of those and has no other disaster. Nobody is
    talked into accepting a loss then, as in `struck`."""
    chance = random.Random(f"older {plan.seed}")
    drawn = [kind for kind in OLDER if kind.name in kinds]
    struck_already = any(fault.kind == kind.name for fault in plan.faults for kind in DISASTERS)
    if not drawn or struck_already or (chance.randrange(RESTORED) and any(name in PLAIN for name in kinds)):
        return plan
    kind = chance.choices(drawn, [kind.weight for kind in drawn])[0]
    back = draw_fault(chance, kind, round(chance.uniform(0.2, FAULTS_END_S), 3))
    faults = [replace(fault, how="") if fault.kind == "failover" else fault for fault in plan.faults]
    if kind.name == "disk-back":  # alone, a closed site cannot know that its disk is older than the log on the other DFS
        faults = [fault for fault in faults if fault.kind != "degrade"]
    knobs = plan.knobs
    if kind.name == "dfs-back":  # a takeover before the active has copied what is gone lacks it, and nobody there can know
        faults = [fault for fault in faults if fault.kind != "failover"]
        knobs = replace(knobs, monitor="observe" if knobs.monitor == "act" else knobs.monitor)
    faults.append(back)
    for name in ("crash",) if kind.name == "dfs-back" else ("failover", "crash"):  # what is done about it, and in the middle
        if name in kinds and chance.random() < 0.4:
            after_s = round(back.at_s + back.for_s + chance.expovariate(1.0), 3)
            faults.append(replace(draw_fault(chance, BY_NAME[name], after_s), how=chance.choice(("process", "machine"))
                          if name == "crash" else ""))
    return replace(plan, knobs=knobs, faults=tuple(sorted(faults, key=lambda fault: fault.at_s)))


def refused(plan: SeedPlan, kinds: tuple[str, ...] = tuple(BY_NAME)) -> SeedPlan:
    """The plan, with a database that refuses a schema change if its seed is one of those."""
    chance = random.Random(f"refusal {plan.seed}")
    if REFUSAL.name not in kinds or (len(kinds) > 1 and (plan.workload != SchemaChanges.name or chance.randrange(REFUSED))):
        return plan
    times = [chance.uniform(0.2, FAULTS_END_S) for _ in range(chance.randint(1, 2))]
    refusals = [draw_fault(chance, REFUSAL, round(at_s, 3)) for at_s in times]
    return replace(plan, faults=tuple(sorted((*plan.faults, *refusals), key=lambda fault: fault.at_s)))


def lied_to(plan: SeedPlan, kinds: tuple[str, ...] = tuple(BY_NAME)) -> SeedPlan:
    """Returns the plan, with lies if its seed is one of those: at any time, and while roles or modes change."""
    chance = random.Random(f"lies {plan.seed}")
    if LIE.name not in kinds or (chance.randrange(LIED_TO) and len(kinds) > 1):
        return plan
    times = [chance.uniform(0.2, FAULTS_END_S) for _ in range(chance.randint(2, 10))]
    times += [fault.at_s + chance.expovariate(2.0) for fault in plan.faults if fault.kind in (*IN_CHANGE, *MODES)]
    lies = [draw_fault(chance, LIE, round(at_s, 3)) for at_s in times]
    return replace(plan, faults=tuple(sorted((*plan.faults, *lies), key=lambda fault: fault.at_s)))


def audited(plan: SeedPlan, kinds: tuple[str, ...] = tuple(BY_NAME)) -> SeedPlan:
    """The plan, with barriers if its seed is one of those: at any time, and at each change of roles or modes."""
    chance = random.Random(f"barriers {plan.seed}")
    if BARRIER.name not in kinds or (chance.randrange(AUDITED) and len(kinds) > 1):
        return plan
    times = [chance.uniform(0.2, FAULTS_END_S) for _ in range(chance.randint(1, 4))]
    times += [fault.at_s + chance.expovariate(2.0) for fault in plan.faults if fault.kind in (*IN_CHANGE, *MODES)]
    barriers = [draw_fault(chance, BARRIER, round(at_s, 3)) for at_s in times]
    return replace(plan, faults=tuple(sorted((*plan.faults, *barriers), key=lambda fault: fault.at_s)))


def plain(seed: int, kinds: tuple[str, ...] = PLAIN) -> SeedPlan:
    """Returns the plan without a disaster."""
    chance = random.Random(f"plan {seed}")
    clients = chance.randint(3, 8)
    plan = SeedPlan(
        seed=seed, workload=chance.choice(tuple(WORKLOADS)), clients=clients, operations=chance.randint(196, 276),
        knobs=_draw_knobs(chance, clients), faults=_draw_faults(chance, kinds),
    )
    return plan if random.Random(f"place {seed}").randrange(ALONE) else alone(plan, kinds)


def alone(plan: SeedPlan, kinds: tuple[str, ...] = tuple(BY_NAME)) -> SeedPlan:
    """The plan for a pair without a coordinator. An operator may react to a loss with a degrade, too: it is not automatic."""
    chance = random.Random(f"alone {plan.seed}")
    more = [
        draw_fault(chance, BY_NAME["degrade"], round(fault.at_s + chance.expovariate(1.0), 3))
        for fault in plan.faults if fault.kind in AFTER_LOSS and "degrade" in kinds and chance.random() < 0.4
    ]
    faults = tuple(sorted((*plan.faults, *more), key=lambda fault: fault.at_s))
    return replace(plan, knobs=replace(plan.knobs, coordinator=False, policy="protect"), faults=faults)


def chosen(plan: SeedPlan) -> SeedPlan:
    """The plan, with a pair that is asynchronous by choice if its seed is one of those."""
    if random.Random(f"choice {plan.seed}").randrange(CHOSEN):
        return plan
    lease_s = max(1.0, plan.knobs.lease_s)  # each proof of such a pair is two round trips to the witness, and links may be slow
    return replace(plan, knobs=replace(plan.knobs, policy="performance", lease_s=lease_s))


def watched(plan: SeedPlan) -> SeedPlan:
    """The plan, with an availability monitor if its seed is one of those; what it may do is a matter of the policy too."""
    monitor = random.Random(f"monitor {plan.seed}").choices(("off", "observe", "act"), (10, 1, 2))[0]
    return replace(plan, knobs=replace(plan.knobs, monitor=monitor))


def hurried(plan: SeedPlan, kinds: tuple[str, ...] = tuple(BY_NAME)) -> SeedPlan:
    """The plan, with crashes in the middle of what changes roles or modes, by command or after another crash."""
    chance = random.Random(f"again {plan.seed}")
    more = []
    for fault in plan.faults if "crash" in kinds else ():
        hit, after_s = chance.random(), round(fault.at_s + fault.for_s + chance.expovariate(2.0), 3)
        again = draw_fault(chance, BY_NAME["crash"], after_s)
        if fault.kind in MODES and hit < 0.25:
            more.append(again)
        elif fault.kind == "crash" and hit < 0.12:
            more.append(replace(again, target=fault.target))
    return replace(plan, faults=tuple(sorted((*plan.faults, *more), key=lambda fault: fault.at_s)))


def struck(plan: SeedPlan, kinds: tuple[str, ...] = tuple(BY_NAME)) -> SeedPlan:
    """The plan, with a disaster if its seed is one of those. Nobody is talked into accepting a loss then: with one copy left
    that may be all there is; but for a lost register, which nobody gets past otherwise. With rot the pair stays synchronous,
    for the rotten copy may be needed much later; and nobody lets a site open alone by a WAL that was put back."""
    chance = random.Random(f"disaster {plan.seed}")
    drawn = [kind for kind in DISASTERS if kind.name in kinds]
    if not drawn or (chance.randrange(STRUCK) and any(name in PLAIN for name in kinds)):
        return plan
    kind = chance.choices(drawn, [kind.weight for kind in drawn])[0]
    disaster = draw_fault(chance, kind, round(chance.uniform(0.5, FAULTS_END_S), 3))
    faults = [replace(fault, how="") if fault.kind == "failover" else fault for fault in plan.faults]
    faults.append(disaster)
    knobs = plan.knobs
    if kind.name == "rot":
        knobs = replace(knobs, policy="protect", monitor="observe" if knobs.monitor == "act" else knobs.monitor)
    if kind.name == "rot" or (kind.name == "part-back" and disaster.how == "wal"):
        faults = [fault for fault in faults if fault.kind != "degrade"]
    if "failover" in kinds and chance.random() < 0.5:
        after_s, anew = round(disaster.at_s + chance.expovariate(1.0), 3), kind.name == "coordinator-lost"
        anew = anew or (kind.name == "coordinator-back" and chance.random() < 0.5)
        faults.append(Fault(after_s, "failover", *(("active", 0.0, "accept-data-loss") if anew else ("standby",))))
    if "crash" in kinds and chance.random() < 0.5:  # in the middle of what mends it
        after_s = round(disaster.at_s + disaster.for_s + chance.expovariate(1.0), 3)
        faults.append(draw_fault(chance, BY_NAME["crash"], after_s))
    return replace(plan, knobs=knobs, faults=tuple(sorted(faults, key=lambda fault: fault.at_s)))


def _draw_knobs(chance: random.Random, clients: int) -> Knobs:
    lease_s = chance.choice((0.5, 1.0, 2.0))
    drift = chance.choice((0.0, 0.0, 0.02, 0.04))
    knobs = Knobs(
        policy=chance.choice(("protect", "available")), lease_s=lease_s, noop_interval_s=round(lease_s * 0.3, 3),
        flush_interval_s=chance.choice((0.1, 0.5, 2.0)), degrade_after_s=chance.choice((1.0, 3.0)),
        segment_bytes=chance.choice((4 << 10, 16 << 10)), op_interval_s=round(FAULTS_END_S * clients / 400, 3),
        link_s=chance.choice((0.0005, 0.002, 0.02)), link_jitter=chance.choice((0.1, 1.0, 5.0)),
        loss=chance.choice((0.0, 0.0, 0.005)), duplicate=chance.choice((0.0, 0.0, 0.01)),
        disk_slow=chance.choice((1.0, 10.0)), drift_a=chance.choice((-drift, drift)), drift_b=chance.choice((-drift, drift)),
    )
    proof_s = 4 * knobs.link_s * (1 + knobs.link_jitter)  # of an asynchronous active: two round trips to the coordinator
    return replace(knobs, lease_s=max(lease_s, 1.0)) if lease_s < 2 * proof_s else knobs  # "well above", says the handbook


def _draw_faults(chance: random.Random, kinds: tuple[str, ...]) -> tuple[Fault, ...]:
    drawn = [BY_NAME[name] for name in kinds if name in PLAIN]
    if not drawn:
        return ()
    faults: list[Fault] = []
    for kind in chance.choices(drawn, [kind.weight for kind in drawn], k=chance.randint(2, 7)):
        fault = draw_fault(chance, kind, round(chance.uniform(0.5, FAULTS_END_S), 3))
        faults.append(fault)
        if kind.name in AFTER_LOSS and "failover" in kinds and chance.random() < 0.5:
            after = round(fault.at_s + chance.expovariate(1.0), 3)
            faults.append(draw_fault(chance, BY_NAME["failover"], after))
        if kind.name in IN_CHANGE and "crash" in kinds and chance.random() < 0.3:
            faults.append(draw_fault(chance, BY_NAME["crash"], round(fault.at_s + chance.expovariate(1.0), 3)))
    return tuple(sorted(faults, key=lambda fault: fault.at_s))


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
    for fault in plan.faults:
        line = f"at {fault.at_s} {fault.kind} {fault.target}"
        line += f" for {fault.for_s}" if fault.for_s else ""
        lines.append(line + (f" how {fault.how}" if fault.how else ""))
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
                faults.append(_parse_fault(words))
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


def _parse_fault(words: list[str]) -> Fault:
    """`at SECONDS KIND TARGET [for SECONDS] [how HOW]`"""
    kind = words[2]
    if kind not in BY_NAME:
        raise InvalidInput(f"no fault is called {kind!r}: it is one of {', '.join(BY_NAME)}")
    options = dict(zip(words[4::2], words[5::2], strict=True))
    unknown = set(options) - {"for", "how"}
    if unknown:
        raise InvalidInput(f"{', '.join(sorted(unknown))}: after the target come `for` and `how`")
    return Fault(float(words[1]), kind, words[3], float(options.get("for", 0)), options.get("how", ""))


def without(plan: SeedPlan, faults: frozenset[int]) -> SeedPlan:
    """The plan without the faults of these indices."""
    return replace(plan, faults=tuple(fault for index, fault in enumerate(plan.faults) if index not in faults))
