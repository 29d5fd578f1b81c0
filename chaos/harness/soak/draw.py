"""Draws a plan from a seed: courses of events one after the other, faults at their steps, and faults of links, disks, servers,
clocks and limits across them.

What always holds: one seed and number give one plan for a pair of these parts; a fault at a step is of a step that belongs to
what happens then, at the site that takes it; a site is lost with its data only as the first event of an episode, while the pair
is whole, for what an asynchronous active alone acknowledged would be lost with it, and rightly so. In a long leg no fault ends
a gateway: what a process keeps of each role change and of each request, it has kept at the end.
"""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from chaos.fault_lines import Fault
from chaos.harness.faults import clocks, disks, limits, steps
from chaos.harness.faults.files import PLACES
from chaos.harness.faults.kind import SITE_TARGETS
from chaos.harness.faults.registry import BY_NAME
from chaos.harness.pair.parts import Parts, need_of
from chaos.harness.plan import HarnessPlan
from chaos.harness.traffic.workloads import WORKLOADS
from chaos.simulate.aims import calls_of, points
from chaos.workloads.registers import Documents

SECONDS = 150.0  # of an episode
EPISODES, LONG_EPISODES = 2, 8  # of a leg
LONG_EVERY = 8  # legs one is long
CLIENTS = 96
PAUSE_S = 0.01  # of a client, behind each answer
QUIET_S = 25.0  # before the end, in which nothing new begins
FIRST_S = 4.0
SITE_LOST_SHARE = 0.3
AIMED_SHARE = 0.4  # of the role changes
_OF_LINKS = ("latency", "bandwidth", "slow-close", "slice", "reset", "black-hole", "one-way", "down")
_HOW = {"latency": ("20/10", "100/50", "400"), "bandwidth": ("8", "64"), "slice": ("20", "200"), "reset": ("0", "50", "500")}
_AT_STEPS = frozenset(kind.name for kind in steps.KINDS)
_FIGURES = {
    "disk-slow": ("5", "50", "500"), "disk-fails": ("EIO", "EROFS", "ENOSPC"), "disk-full": ("0", "100000"),
    "sync-fails": ("0", "10", "100"),
}


def drawn(seed: int, number: int, parts: Parts) -> HarnessPlan:
    """The plan of leg `number` of a soak, for a pair of these parts."""
    random = Random(f"{seed} leg {number}")
    is_long = number % LONG_EVERY == 0
    episodes, episode = (LONG_EPISODES, _long_episode) if is_long else (EPISODES, _episode)
    faults = [
        replace(fault, at_s=round(fault.at_s + at * SECONDS, 1)) for at in range(episodes) for fault in episode(random, parts)
    ]
    needs = tuple(sorted({need for fault in faults if (need := need_of(fault.target)) is not None}))
    about = f"leg {number} of the soak of seed {seed}{', without the end of a gateway' if is_long else ''}"
    workload = random.choice(sorted(set(WORKLOADS) - {Documents.name}))  # whose histories are large
    return HarnessPlan(
        about, number, workload, CLIENTS, CLIENTS / PAUSE_S, episodes * SECONDS, tuple(faults), needs, episode=SECONDS,
    )


def _episode(random: Random, parts: Parts) -> list[Fault]:
    faults: list[Fault] = []
    at_s = FIRST_S
    if random.random() < SITE_LOST_SHARE:
        faults += _site_lost(random, at_s)
        at_s += 40.0
    while at_s < SECONDS - QUIET_S:
        faults += random.choice((_active_lost, _active_stopped, _standby_away, _switched, _killed, _power_lost))(random, at_s)
        at_s += random.uniform(12.0, 30.0)
    faults += [_of_a_link(random, parts) for _ in range(random.randint(2, 6))]
    faults += [_of_a_disk(random, parts) for _ in range(random.randint(1, 4))]
    faults += [_of_a_site(random) for _ in range(random.randint(1, 3))]
    faults += [_at_a_step(random, "write", random.choice(SITE_TARGETS), _any_time(random)) for _ in range(random.randint(1, 3))]
    faults += [_of_a_server(random, parts) for _ in range(random.randint(1, 4) if parts.servers else 0)]
    return sorted(faults, key=lambda fault: fault.at_s)


def _long_episode(random: Random, parts: Parts) -> list[Fault]:
    """Role changes and bad links, and no end of a process."""
    faults: list[Fault] = []
    at_s = FIRST_S
    while at_s < SECONDS - QUIET_S:
        faults += random.choice((_active_stopped, _cut_off, _switched))(random, at_s)
        at_s += random.uniform(12.0, 30.0)
    faults += [_of_a_link(random, parts) for _ in range(random.randint(2, 6))]
    return sorted((fault for fault in faults if fault.kind not in _AT_STEPS), key=lambda fault: fault.at_s)


def _any_time(random: Random) -> float:
    return random.uniform(2.0, SECONDS - QUIET_S)


def _at(at_s: float, kind: str, target: str, for_s: float = 0.0, how: str = "") -> Fault:
    return Fault(round(min(at_s, SECONDS - 1), 1), kind, target, round(for_s, 1), how)


def _of_a_link(random: Random, parts: Parts) -> Fault:
    kind = random.choice(_OF_LINKS)
    how = random.choice(_HOW.get(kind, BY_NAME[kind].how))
    return _at(_any_time(random), kind, random.choice(parts.link_targets), random.uniform(0.5, 12.0), how)


def _of_a_disk(random: Random, parts: Parts) -> Fault:
    kind, place = random.choice(disks.KINDS).name, random.choice(sorted(set(PLACES) - parts.no_files))
    figure = random.choice(_FIGURES.get(kind, ("",)))
    how = f"{place}/{figure}" if figure else place
    return _at(_any_time(random), kind, random.choice(SITE_TARGETS), random.uniform(0.5, 10.0), how)


def _of_a_server(random: Random, parts: Parts) -> Fault:
    kind, server = random.choice(("crash", "terminate", "pause")), random.choice(parts.servers)
    return _at(_any_time(random), kind, server, random.uniform(0.5, 15.0))


def _of_a_site(random: Random) -> Fault:
    """Returns a fault of the clocks, or of what the machine gives."""
    kind = random.choice((*clocks.KINDS, *limits.KINDS))
    target, for_s = random.choice(SITE_TARGETS), random.uniform(0.5, 5.0)
    return _at(_any_time(random), kind.name, target, for_s, random.choice(kind.how))


def _at_a_step(random: Random, course: str, target: str, at_s: float) -> Fault:
    """At a step of a role change, or of the way of a write, in whatever way can be done to that step."""
    kind = random.choice(steps.KINDS)
    how = random.choice([point for point in (*points(course), *calls_of(course)) if point in kind.how])
    return _at(at_s, kind.name, target, random.uniform(2.0, 6.0), how)


def _aimed(random: Random, course: str, target: str, at_s: float) -> list[Fault]:
    """At times a step of the role change that begins at `at_s`, and that `target` makes, is struck."""
    return [_at_a_step(random, course, target, at_s - 0.3)] if random.random() < AIMED_SHARE else []


def _active_lost(random: Random, at_s: float) -> list[Fault]:
    """The active is killed, the other site takes over, and the old one comes back."""
    away_s, lost_s = random.uniform(3.0, 8.0), random.uniform(0.2, 2.0)
    faults = [_at(at_s, "crash", "active", away_s), _at(at_s + lost_s, "failover", "standby")]
    return faults + _aimed(random, "failover", "standby", at_s + lost_s)


def _active_stopped(random: Random, at_s: float) -> list[Fault]:
    stopped_s, lost_s = random.uniform(2.0, 9.0), random.uniform(0.2, 1.8)
    faults = [_at(at_s, "pause", "active", stopped_s), _at(at_s + lost_s, "failover", "standby")]
    return faults + _aimed(random, "failover", "standby", at_s + lost_s)


def _standby_away(random: Random, at_s: float) -> list[Fault]:
    """The pair is degraded by command while the standby is away, and resynced by command."""
    away_s, degraded_s = random.uniform(4.0, 8.0), random.uniform(0.5, 3.0)
    faults = [
        _at(at_s, "terminate", "standby", away_s), _at(at_s + degraded_s, "degrade", "active"),
        _at(at_s + away_s + 6.0, "resync", "active"),
    ]
    course, of_s = random.choice((("degrade", degraded_s), ("resync", away_s + 6.0)))
    return faults + _aimed(random, course, "active", at_s + of_s)


def _cut_off(random: Random, at_s: float) -> list[Fault]:
    """The active does not reach the other site, and is degraded and resynced by command."""
    away_s, degraded_s = random.uniform(4.0, 8.0), random.uniform(0.5, 3.0)
    return [
        *(_at(at_s, "black-hole", link, away_s) for link in ("a>b", "b>a")), _at(at_s + degraded_s, "degrade", "active"),
        _at(at_s + away_s + 6.0, "resync", "active"),
    ]


def _switched(random: Random, at_s: float) -> list[Fault]:
    """At times the operator's command dies."""
    if random.random() < 0.3:
        return [_at(at_s, "crash-operator", "standby", how=f"switchover/{random.randint(600, 3000)}")]
    return [_at(at_s, "switchover", "standby"), *_aimed(random, "switchover", "standby", at_s)]


def _killed(random: Random, at_s: float) -> list[Fault]:
    """Whoever it is, with nobody to help; at times both."""
    both = random.random() < 0.4
    targets = ("a", "b") if both else (random.choice(("active", "standby")),)
    return [_at(at_s + random.uniform(0.0, 1.0), "crash", target, random.uniform(0.2, 5.0)) for target in targets]


def _power_lost(random: Random, at_s: float) -> list[Fault]:
    """A site loses power, at times both: nobody helps, or the other site takes over."""
    target = random.choice(("active", "standby", "both"))
    faults = [_at(at_s, "power-loss", target, random.uniform(0.5, 6.0), random.choice(("", "lost")))]
    if target == "active" and random.random() < 0.5:
        faults.append(_at(at_s + random.uniform(0.2, 2.0), "failover", "standby"))
    return faults


def _site_lost(random: Random, at_s: float) -> list[Fault]:
    return [_at(at_s, "site-lost", "active", random.uniform(6.0, 12.0)), _at(at_s + 1.0, "failover", "standby")]
