"""The plan of a run on real processes: its traffic, and every fault and command with its time. A file, or a scenario's name.

What always holds: a plan is plain data, and `parse(text(plan)) == plan`. Its lines are those of the simulator's plans
(chaos/fault_lines.py); its kinds of faults are its own, for what can be done to processes is not what can be done to twins.
"""

from __future__ import annotations

from typing import Any

import msgspec

from chaos.fault_lines import Fault, fault_text, parse_fault
from chaos.harness.disks import DISK_KINDS, PLACES, place_and_rule
from chaos.harness.traffic.workloads import WORKLOADS
from twinlog.errors import InvalidInput

LINKS = ("c>a", "c>b", "a>b", "b>a")  # who calls whom: clients the gateways, the gateways each other
SEVERAL = {"a-b": ("a>b", "b>a"), "c-ab": ("c>a", "c>b")}
LINK_TARGETS = (*LINKS, *SEVERAL)
SITE_TARGETS = ("a", "b", "active", "standby")
_NUMBERS = {"seed": int, "clients": int, "rate": float, "seconds": float}


class Kind(msgspec.Struct, frozen=True):
    """A kind of fault. `lasts`: it needs `for`. `how`: the values that it knows; empty: `figures` numbers, by slashes, and
    `default` without one."""

    name: str
    targets: tuple[str, ...]
    sentence: str
    lasts: bool = True
    how: tuple[str, ...] = ("",)
    figures: int = 0
    default: str = ""


KINDS = (
    Kind("latency", LINK_TARGETS, "each way is longer by MS, or MS/JITTER", figures=2, default="100"),
    Kind("bandwidth", LINK_TARGETS, "each way passes so many KB a second", figures=1, default="16"),
    Kind("slow-close", LINK_TARGETS, "closing takes so many ms", figures=1, default="1000"),
    Kind("slice", LINK_TARGETS, "what is sent arrives in pieces of so many bytes", figures=1, default="64"),
    Kind("reset", LINK_TARGETS, "each connection is reset after so many ms", figures=1, default="0"),
    Kind("black-hole", LINK_TARGETS, "connections stay open, and nothing passes"),
    Kind("one-way", LINK_TARGETS, "nothing passes `up` (to the one who is called), or `down`", how=("up", "down")),
    Kind("down", LINK_TARGETS, "connections are closed and refused"),
    Kind("crash", SITE_TARGETS, "SIGKILL; started again when it is healed", lasts=False),
    Kind("terminate", SITE_TARGETS, "SIGTERM; started again when it is healed", lasts=False),
    Kind("pause", SITE_TARGETS, "SIGSTOP, then SIGCONT"),
    Kind("site-lost", SITE_TARGETS, "killed, and its data and its DFS are empty; started when it is healed", lasts=False),
    Kind("start", ("a", "b"), "the gateway is started", lasts=False),
    Kind("disk-slow", SITE_TARGETS, "each call on files of `how` takes longer: PLACE, or PLACE/MS", how=tuple(PLACES)),
    Kind("disk-fails", SITE_TARGETS, "changes of files of `how` fail: PLACE, or PLACE/ERROR", how=tuple(PLACES)),
    Kind("disk-full", SITE_TARGETS, "files of `how` grow by BYTES and no more: PLACE, or PLACE/BYTES", how=tuple(PLACES)),
    Kind("disk-hangs", SITE_TARGETS, "no call on files of `how` ends before this is healed", how=tuple(PLACES)),
    Kind("sync-fails", SITE_TARGETS, "one sync of files of `how` fails, after COUNT: PLACE, or PLACE/COUNT", how=tuple(PLACES)),
    Kind("failover", SITE_TARGETS, "`twinlog failover --to`", lasts=False),
    Kind("switchover", SITE_TARGETS, "`twinlog switchover --to`", lasts=False),
    Kind("rejoin", SITE_TARGETS, "`twinlog rejoin --wait`", lasts=False),
    Kind("degrade", ("active",), "`twinlog degrade`", lasts=False),
    Kind("resync", ("active",), "`twinlog resync`", lasts=False),
)
BY_NAME = {kind.name: kind for kind in KINDS}


class HarnessPlan(msgspec.Struct, frozen=True):
    """`rate`: operations a second, by all clients together; `seconds`: the time of one round of the faults."""

    about: str = ""
    seed: int = 0
    workload: str = "registers"
    clients: int = 6
    rate: float = 100.0
    seconds: float = 30.0
    faults: tuple[Fault, ...] = ()


def text(plan: HarnessPlan) -> str:
    """The plan, one thing a line."""
    lines = [f"# {plan.about}"] if plan.about else []
    lines += [f"seed {plan.seed}", f"workload {plan.workload}", f"clients {plan.clients}"]
    lines += [f"rate {plan.rate:g}", f"seconds {plan.seconds:g}", *(fault_text(fault) for fault in plan.faults)]
    return "\n".join(lines) + "\n"


def parse(source: str) -> HarnessPlan:
    """Raises InvalidInput that names the line. `#` begins a comment; comments before the first line say what it is about."""
    found: dict[str, Any] = {}
    faults: list[Fault] = []
    about: list[str] = []
    for number, line in enumerate(source.splitlines(), 1):
        told, _, comment = line.partition("#")
        words = told.split()
        if not words:
            if comment and not found and not faults:
                about.append(comment.strip())
            continue
        try:
            if words[0] == "at":
                faults.append(_checked(parse_fault(words, BY_NAME)))
            elif words[0] == "workload":
                found["workload"] = words[1]
            elif words[0] in _NUMBERS:
                found[words[0]] = _NUMBERS[words[0]](words[1])
            else:
                raise InvalidInput(f"{words[0]!r} begins no line of a plan")
        except (IndexError, ValueError, KeyError, InvalidInput) as error:
            raise InvalidInput(f"line {number} of the plan, {line.strip()!r}: {error}", line=number) from error
    return _sound(HarnessPlan(**found, about=" ".join(about), faults=tuple(faults)))


def _sound(plan: HarnessPlan) -> HarnessPlan:
    if plan.workload not in WORKLOADS:
        raise InvalidInput(f"workload {plan.workload!r} is none of {', '.join(WORKLOADS)}")
    if plan.clients < 1 or plan.rate <= 0 or plan.seconds <= 0:
        raise InvalidInput("clients, rate and seconds of a plan are more than 0")
    late = [fault for fault in plan.faults if not 0 <= fault.at_s <= plan.seconds]
    if late:
        raise InvalidInput(f"{fault_text(late[0])!r} does not lie within the {plan.seconds:g} s of the plan")
    return plan


def _checked(fault: Fault) -> Fault:
    kind = BY_NAME[fault.kind]
    if fault.target not in kind.targets:
        raise InvalidInput(f"the target of {kind.name} is one of {', '.join(kind.targets)}")
    if kind.lasts and fault.for_s <= 0:
        raise InvalidInput(f"{kind.name} lasts: say `for` how many seconds")
    if kind.name in DISK_KINDS:
        place_and_rule(fault)
    elif kind.figures:
        figures(fault)
    elif fault.how not in kind.how:
        known = f"`how` of {kind.name} is one of {', '.join(kind.how)}"
        raise InvalidInput(known if any(kind.how) else f"{kind.name} has no `how`")
    return fault


def figures(fault: Fault) -> list[int]:
    """The numbers of its `how`. Raises InvalidInput, ValueError."""
    kind = BY_NAME[fault.kind]
    found = [int(part) for part in (fault.how or kind.default).split("/")]
    if len(found) > kind.figures or min(found) < 0:
        raise InvalidInput(f"`how` of {kind.name} has at most {kind.figures} numbers, none below 0")
    return found
