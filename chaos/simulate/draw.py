"""Draws the plan of a seed, step by step: workload, knobs and faults, then what only a share of the seeds has.

What always holds: drawing uses nothing but the seed; each step has its own stream of chances, so that a new step leaves the
others' as they were. Plans of `plain` keep to one way of writing; only `draw` mixes them and aims.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from msgspec.structs import replace

from chaos.fault_lines import Fault
from chaos.simulate.aims import aimed
from chaos.simulate.plan import (
    BARRIER,
    BY_NAME,
    DISASTERS,
    FALSE_ANSWER,
    FAULTS_END_S,
    LIE,
    OLDER,
    PLAIN,
    REFUSAL,
    SITES,
    STEP,
    Kind,
    Knobs,
    SeedPlan,
    draw_fault,
)
from chaos.workloads import WORKLOADS
from chaos.workloads.mixed import Mixed
from chaos.workloads.schema_changes import SchemaChanges

FOCUSED = tuple(name for name in WORKLOADS if name != Mixed.name)
AFTER_LOSS = ("crash", "pause", "cut", "isolate", "dfs-down")  # an operator may react to these with a failover
IN_CHANGE = ("failover", "switchover")  # in the middle of these a site may crash
MODES = ("rejoin", "degrade", "resync")  # and of these
ALONE = 4  # one plan in so many is of a pair without a coordinator
STRUCK = 5  # one plan in so many has a disaster
CHOSEN = 10  # one plan in so many has the policy performance
REFUSED = 4  # in one plan in so many of those with schema changes a database refuses one
AUDITED = 4  # in one plan in so many barriers are taken
RESTORED = 12  # in one plan in so many without another disaster a part comes back older
DARK = 12  # and in one in so many of the others, while the other site has no power and no DFS
BESIDE = ("crash", "dfs-down")  # what the other site has then
LIED_TO = 3  # in one plan in so many somebody posts forged messages
ANSWERED = 4  # in one plan in so many a site gives false answers
MIXED = 4  # one plan in so many has the mixed workload
REPEATED = 3  # in one plan in so many clients come back to their writes
BY_HTTP = 30  # in one plan in so many half of the requests are bytes on a connection
REAL_ENGINES = ("rocksdb", "rocksdb", "sqlite")
IN_REAL = 60  # so many of so many plans are of sites that keep their rows in these: SQLite takes four times as long
AIMED = 2  # one plan in so many strikes at the steps of a course of its own


def draw(seed: int, kinds: tuple[str, ...] = tuple(BY_NAME)) -> SeedPlan:
    """Returns the plan of `seed`, of faults of `kinds` only; one that aims has in it what its course needs."""
    plan = focused(seed, kinds)
    chance = random.Random(f"mixed {seed}")
    if not chance.randrange(MIXED):
        plan = replace(plan, workload=Mixed.name, knobs=replace(plan.knobs, slow_reads=chance.choice((0.0, 1.0))))
    if STEP.name in kinds and not (random.Random(f"aimed {seed}").randrange(AIMED) and len(kinds) > 1):
        plan = aimed(plan)
    return stored(by_http(repeated(plan)))


def stored(plan: SeedPlan) -> SeedPlan:
    """Returns the plan, with sites that keep their rows in a real engine if its seed is one of those. Not where a database
    refuses a change: only the simulated one does."""
    engine = dict(enumerate(REAL_ENGINES)).get(random.Random(f"engine {plan.seed}").randrange(IN_REAL))
    if engine is None or any(fault.kind == REFUSAL.name for fault in plan.faults):
        return plan
    return replace(plan, knobs=replace(plan.knobs, engine=engine))


def by_http(plan: SeedPlan) -> SeedPlan:
    """Returns the plan, with clients whose requests pass the HTTP protocol if its seed is one of those."""
    if random.Random(f"http {plan.seed}").randrange(BY_HTTP):
        return plan
    return replace(plan, knobs=replace(plan.knobs, http=0.5))


def repeated(plan: SeedPlan) -> SeedPlan:
    """Returns the plan, with clients that come back to their writes if its seed is one of those. Not where a loss may be
    accepted: a write that was given up, and is sent again under its key, has its effect anew."""
    is_chosen = not random.Random(f"repeated {plan.seed}").randrange(REPEATED)
    if not is_chosen or any(fault.how == "accept-data-loss" for fault in plan.faults):
        return plan
    return replace(plan, knobs=replace(plan.knobs, again=0.15))


def focused(seed: int, kinds: tuple[str, ...] = tuple(BY_NAME)) -> SeedPlan:
    """Returns a plan with one way of writing, and with faults at any times."""
    plan = audited(struck(hurried(watched(chosen(plain(seed, kinds))), kinds), kinds), kinds)
    return darkened(restored(answered_falsely(lied_to(refused(plan, kinds), kinds), kinds), kinds), kinds)


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


def darkened(plan: SeedPlan, kinds: tuple[str, ...] = tuple(BY_NAME), one_in: int = DARK) -> SeedPlan:
    """Returns the plan, with a storage or a disk that comes back older at one site while the other one has no power and no DFS,
    if its seed is one of those and has no other disaster. As in `restored`, nobody is talked into a loss, or into opening
    alone."""
    chance = random.Random(f"dark {plan.seed}")
    drawn = [kind for kind in OLDER if kind.name in ("storage-back", "disk-back") and kind.name in kinds]
    names = {fault.kind for fault in plan.faults}
    struck_already = any(kind.name in names for kind in (*DISASTERS, *OLDER))
    if not drawn or struck_already or not set(BESIDE).issubset(kinds) or chance.randrange(one_in):
        return plan
    site, other = chance.choice((SITES, SITES[::-1]))
    back = draw_fault(chance, chance.choice(drawn), round(chance.uniform(0.2, FAULTS_END_S - 1.0), 3))
    faults = [replace(fault, how="") if fault.kind == "failover" else fault for fault in plan.faults if fault.kind != "degrade"]
    faults.append(replace(back, target=site))
    for name in BESIDE:  # before it or behind, and for longer or shorter
        at_s = max(0.0, round(back.at_s + back.for_s + chance.uniform(-1.0, 0.5), 3))
        fault = replace(draw_fault(chance, BY_NAME[name], at_s), target=other)
        faults.append(replace(fault, how="machine") if name == "crash" else fault)
    if "failover" in kinds and chance.random() < 0.3:
        after_s = round(back.at_s + back.for_s + chance.expovariate(1.0), 3)
        faults.append(Fault(after_s, "failover", chance.choice(SITES)))
    return replace(plan, faults=tuple(sorted(faults, key=lambda fault: fault.at_s)))


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
    return _scattered(plan, kinds, LIE, f"lies {plan.seed}", LIED_TO, (2, 10), _behind)


def answered_falsely(plan: SeedPlan, kinds: tuple[str, ...] = tuple(BY_NAME)) -> SeedPlan:
    """Returns the plan, with false answers if its seed is one of those: at any time, and from before each change of roles."""
    def before(chance: random.Random, at_s: float) -> float:
        return max(0.0, at_s - chance.random())

    return _scattered(plan, kinds, FALSE_ANSWER, f"answers {plan.seed}", ANSWERED, (1, 4), before)


def audited(plan: SeedPlan, kinds: tuple[str, ...] = tuple(BY_NAME)) -> SeedPlan:
    """The plan, with barriers if its seed is one of those: at any time, and at each change of roles or modes."""
    return _scattered(plan, kinds, BARRIER, f"barriers {plan.seed}", AUDITED, (1, 4), _behind)


def _behind(chance: random.Random, at_s: float) -> float:
    return at_s + chance.expovariate(2.0)


def _scattered(
    plan: SeedPlan, kinds: tuple[str, ...], kind: Kind, stream: str, one_in: int, count: tuple[int, int],
    near: Callable[[random.Random, float], float],
) -> SeedPlan:
    """Returns the plan of one seed in `one_in` with faults of `kind`: `count` of them at any time, and one `near` each change
    of roles or modes."""
    chance = random.Random(stream)
    if kind.name not in kinds or (chance.randrange(one_in) and len(kinds) > 1):
        return plan
    times = [chance.uniform(0.2, FAULTS_END_S) for _ in range(chance.randint(*count))]
    times += [near(chance, fault.at_s) for fault in plan.faults if fault.kind in (*IN_CHANGE, *MODES)]
    drawn = [draw_fault(chance, kind, round(at_s, 3)) for at_s in times]
    return replace(plan, faults=tuple(sorted((*plan.faults, *drawn), key=lambda fault: fault.at_s)))


def plain(seed: int, kinds: tuple[str, ...] = PLAIN) -> SeedPlan:
    """Returns the plan without a disaster."""
    chance = random.Random(f"plan {seed}")
    clients = chance.randint(3, 8)
    plan = SeedPlan(
        seed=seed, workload=chance.choice(FOCUSED), clients=clients, operations=chance.randint(196, 276),
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
