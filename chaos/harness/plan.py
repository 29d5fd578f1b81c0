"""The plan of a run on real processes: its traffic, and every fault and command with its time. A file, or a scenario's name.

What always holds: a plan is plain data, and `parse(text(plan)) == plan`. Its lines are those of the simulator's plans
(chaos/fault_lines.py); its kinds of faults are its own, for what can be done to processes is not what can be done to twins.
"""

from __future__ import annotations

from math import inf
from typing import Any

import msgspec
from msgspec.structs import replace

from chaos.fault_lines import Fault, fault_text, parse_fault
from chaos.harness.faults.registry import BY_NAME
from chaos.harness.pair.parts import NEEDS, need_of
from chaos.harness.pair.recovery import WITHIN_S
from chaos.harness.traffic.workloads import WORKLOADS
from twinlog.errors import InvalidInput

POLICIES = ("protect", "available")
_NUMBERS = {"seed": int, "clients": int, "rate": float, "seconds": float, "recovery": float, "episode": float}


class HarnessPlan(msgspec.Struct, frozen=True):
    """`rate`: operations a second, by all clients together; `seconds`: the time of one round of the faults; `recovery`: so many
    seconds later the pair must be whole again. `needs`: the parts of a pair without which the plan has no meaning, in words of
    NEEDS (pair/parts.py). `policy`: of both sites. `episode`: each time when so many seconds of a round are over, the pair is
    brought back to health before the next fault; 0: at the end of the round alone."""

    about: str = ""
    seed: int = 0
    workload: str = "registers"
    clients: int = 6
    rate: float = 100.0
    seconds: float = 30.0
    faults: tuple[Fault, ...] = ()
    needs: tuple[str, ...] = ()
    recovery: float = WITHIN_S
    policy: str = POLICIES[0]
    episode: float = 0.0

    def episodes(self) -> list[tuple[float, list[Fault]]]:
        """The seconds of each, and its faults, whose times count from its beginning."""
        length = self.episode or self.seconds
        found: list[tuple[float, list[Fault]]] = []
        while (begin := len(found) * length) < self.seconds:
            to = inf if begin + length >= self.seconds else begin + length
            faults = [replace(each, at_s=round(each.at_s - begin, 3)) for each in self.faults if begin <= each.at_s < to]
            found.append((min(length, self.seconds - begin), faults))
        return found


def text(plan: HarnessPlan) -> str:
    """The plan, one thing a line."""
    lines = [f"# {plan.about}"] if plan.about else []
    lines += [f"needs {' '.join(plan.needs)}"] if plan.needs else []
    lines += [f"policy {plan.policy}"] if plan.policy != POLICIES[0] else []
    lines += [f"seed {plan.seed}", f"workload {plan.workload}", f"clients {plan.clients}"]
    lines += [f"rate {plan.rate:g}", f"seconds {plan.seconds:g}", f"recovery {plan.recovery:g}"]
    lines += [f"episode {plan.episode:g}"] if plan.episode else []
    lines += [fault_text(fault) for fault in plan.faults]
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
                fault = parse_fault(words, BY_NAME)
                faults.append(BY_NAME[fault.kind].checked(fault))
            elif words[0] in ("workload", "policy"):
                found[words[0]] = words[1]
            elif words[0] == "needs":
                found["needs"] = _needs(words[1:])
            elif words[0] in _NUMBERS:
                found[words[0]] = _NUMBERS[words[0]](words[1])
            else:
                raise InvalidInput(f"{words[0]!r} begins no line of a plan")
        except (IndexError, ValueError, KeyError, InvalidInput) as error:
            raise InvalidInput(f"line {number} of the plan, {line.strip()!r}: {error}", line=number) from error
    return sound(HarnessPlan(**found, about=" ".join(about), faults=tuple(faults)))


def _needs(words: list[str]) -> tuple[str, ...]:
    for word in words:
        if word not in NEEDS:
            raise InvalidInput(f"a plan needs one or more of {', '.join(NEEDS)}")
    return tuple(words)


def sound(plan: HarnessPlan) -> HarnessPlan:
    """Returns it. Raises InvalidInput."""
    if plan.workload not in WORKLOADS:
        raise InvalidInput(f"workload {plan.workload!r} is none of {', '.join(WORKLOADS)}")
    if plan.policy not in POLICIES:
        raise InvalidInput(f"policy {plan.policy!r} is none of {', '.join(POLICIES)}")
    if plan.policy == "available" and not {"coordinator", "coordinator-server"} & set(plan.needs):
        raise InvalidInput("policy available is for a pair with a coordinator: say `needs coordinator`")
    if plan.clients < 1 or min(plan.rate, plan.seconds, plan.recovery) <= 0 or plan.episode < 0:
        raise InvalidInput("clients, rate, seconds, recovery and episode of a plan are more than 0")
    late = [fault for fault in plan.faults if not 0 <= fault.at_s <= plan.seconds]
    for fault in plan.faults:
        if (need := need_of(fault.target)) is not None and need not in plan.needs:
            raise InvalidInput(f"{fault_text(fault)!r}: only a pair with {need} has {fault.target}: say `needs {need}`")
    if late:
        raise InvalidInput(f"{fault_text(late[0])!r} does not lie within the {plan.seconds:g} s of the plan")
    return plan
