"""Commands of an operator, as a plan has them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from chaos.fault_lines import Fault
from chaos.harness.faults.kind import NO_ACTIVE, SITE_TARGETS, Kind, Stage
from twinlog.errors import InvalidInput

VERBS = ("failover", "switchover", "rejoin", "degrade", "resync")


@dataclass
class Command:
    """A command of an operator. Its refusal is no failure of the run: the report shows it."""

    stage: Stage
    verb: str
    target: str
    killed_after_s: float | None = None

    async def why_not(self) -> str:
        return "" if self.stage.site(self.target) is not None else NO_ACTIVE

    async def inject(self) -> str:
        site = str(self.stage.site(self.target))
        if self.verb == "rejoin":  # which an operator types at a site that is there
            await asyncio.to_thread(self.stage.sites.wait_for_answer, site)
        words = {"failover": ["--to", site], "switchover": ["--to", site], "rejoin": [site, "--wait"]}.get(self.verb, [])
        return (await self.stage.commands.run(self.verb, *words, killed_after_s=self.killed_after_s)).told

    async def heal(self) -> str:
        """There is nothing to undo: the pair is brought to health by further commands."""
        return ""


def _effect(fault: Fault, stage: Stage) -> Command:
    return Command(stage, fault.kind, fault.target)


def verb_and_s(fault: Fault) -> tuple[str, float]:
    """Reads `how VERB/MS`. Raises InvalidInput, ValueError."""
    verb, _, figure = fault.how.partition("/")
    if verb not in VERBS or not figure or float(figure) <= 0:
        raise InvalidInput(f"`how` of {fault.kind} is one of {', '.join(VERBS)}, and behind a slash how many ms it lives")
    return verb, float(figure) / 1000


def _killed(fault: Fault, stage: Stage) -> Command:
    verb, after_s = verb_and_s(fault)
    return Command(stage, verb, fault.target, after_s)


KINDS = (
    Kind("failover", SITE_TARGETS, "`twinlog failover --to`", _effect, lasts=False),
    Kind("switchover", SITE_TARGETS, "`twinlog switchover --to`", _effect, lasts=False),
    Kind("rejoin", SITE_TARGETS, "`twinlog rejoin --wait`", _effect, lasts=False),
    Kind("degrade", ("active",), "`twinlog degrade`", _effect, lasts=False),
    Kind("resync", ("active",), "`twinlog resync`", _effect, lasts=False),
    Kind("crash-operator", SITE_TARGETS, "a command of the operator gets SIGKILL so many ms after it began: VERB/MS", _killed,
         lasts=False, how=("switchover/1000", "failover/1000"), check=verb_and_s),
)
