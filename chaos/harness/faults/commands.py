"""Commands of an operator, as a plan has them, and the handbook's rotation of secrets, which no client notices."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from chaos.fault_lines import Fault
from chaos.harness.faults.kind import NO_ACTIVE, SITE_TARGETS, Kind, OnSite, Stage
from chaos.harness.pair.credentials import CLIENTS
from twinlog.errors import InvalidInput, TwinlogError

_MAY = {"abort": "abortable", "resume": "resumable"}  # what a document says of what may be commanded next
VERBS = ("failover", "switchover", "rejoin", "degrade", "resync")
WITH_LOSS = "accept-data-loss"


@dataclass
class Command:
    """A command of an operator. Its refusal is no failure of the run: the report shows it."""

    stage: Stage
    verb: str
    target: str
    how: str = ""
    killed_after_s: float | None = None

    async def why_not(self) -> str:
        return "" if self.stage.site(self.target) is not None else NO_ACTIVE

    async def inject(self) -> str:
        site = str(self.stage.site(self.target))
        if self.verb == "rejoin":  # which an operator types at a site that is there
            await asyncio.to_thread(self.stage.asked.wait_for_answer, site)
        if self.how == WITH_LOSS:
            return (await self.stage.commands.fail_over_with_loss(site)).told
        words = {"failover": ["--to", site], "switchover": ["--to", site], "rejoin": [site, "--wait"]}.get(self.verb, [])
        return (await self.stage.commands.run(self.verb, *words, killed_after_s=self.killed_after_s)).told

    async def heal(self) -> str:
        """There is nothing to undo: the pair is brought to health by further commands."""
        return ""


@dataclass
class OnOperation:
    """`twinlog abort` or `twinlog resume` of the newest operation at a site, if that is possible when the time has come."""

    stage: Stage
    verb: str
    target: str
    found: str = ""

    async def why_not(self) -> str:
        site = self.stage.site(self.target)
        if site is None:
            return NO_ACTIVE
        try:
            listed = await asyncio.to_thread(self.stage.asked.direct.ask, site, "GET", "/v1/operations")
        except TwinlogError as error:
            return error.message
        newest = next((each for each in listed["operations"] if not each["dry_run"]), None)
        if newest is None or not newest[_MAY[self.verb]]:
            return f"site {site} has no operation to {self.verb}"
        self.found = newest["id"]
        return ""

    async def inject(self) -> str:
        return (await self.stage.commands.run(self.verb, self.found)).told

    async def heal(self) -> str:
        """There is nothing to undo."""
        return ""


def _on_operation(fault: Fault, stage: Stage) -> OnOperation:
    return OnOperation(stage, fault.kind, fault.target)


def _effect(fault: Fault, stage: Stage) -> Command:
    return Command(stage, fault.kind, fault.target, fault.how)


def verb_and_s(fault: Fault) -> tuple[str, float]:
    """Reads `how VERB/MS`. Raises InvalidInput, ValueError."""
    verb, _, figure = fault.how.partition("/")
    if verb not in VERBS or not figure or float(figure) <= 0:
        raise InvalidInput(f"`how` of {fault.kind} is one of {', '.join(VERBS)}, and behind a slash how many ms it lives")
    return verb, float(figure) / 1000


def _killed(fault: Fault, stage: Stage) -> Command:
    verb, after_s = verb_and_s(fault)
    return Command(stage, verb, fault.target, killed_after_s=after_s)


PLAIN = "the pair has no certificates and tokens (--secured)"


@dataclass
class NewCertificate(OnSite):
    async def why_not(self) -> str:
        return await super().why_not() if self.stage.sites.credentials is not None else PLAIN

    async def inject(self) -> str:
        sites, credentials = self.stage.sites, self.stage.sites.credentials
        assert credentials is not None
        return await asyncio.to_thread(credentials.renew, self.choose(), sites.urls[self.chosen])

    async def heal(self) -> str:
        """There is nothing to undo."""
        return ""


@dataclass
class NewToken:
    fault: Fault
    stage: Stage

    async def why_not(self) -> str:
        return "" if self.stage.sites.credentials is not None else PLAIN

    async def inject(self) -> str:
        sites, credentials = self.stage.sites, self.stage.sites.credentials
        assert credentials is not None
        return await asyncio.to_thread(credentials.change_token, sites.urls)

    async def heal(self) -> str:
        """There is nothing to undo."""
        return ""


KINDS = (
    Kind("failover", SITE_TARGETS, f"`twinlog failover --to`; `{WITH_LOSS}`: the loss that it shows is accepted, by its count",
         _effect, lasts=False, how=("", WITH_LOSS)),
    Kind("switchover", SITE_TARGETS, "`twinlog switchover --to`", _effect, lasts=False),
    Kind("rejoin", SITE_TARGETS, "`twinlog rejoin --wait`", _effect, lasts=False),
    Kind("degrade", ("active",), "`twinlog degrade`", _effect, lasts=False),
    Kind("resync", ("active",), "`twinlog resync`", _effect, lasts=False),
    Kind("abort", SITE_TARGETS, "`twinlog abort` of the newest operation at that site", _on_operation, lasts=False),
    Kind("resume", SITE_TARGETS, "`twinlog resume` of the newest operation at that site", _on_operation, lasts=False),
    Kind("crash-operator", SITE_TARGETS, "a command of the operator gets SIGKILL so many ms after it began: VERB/MS", _killed,
         lasts=False, how=("switchover/1000", "failover/1000"), check=verb_and_s),
)
SECRETS = (  # of a pair whose files are ours
    Kind(
        "certificate-renewed", SITE_TARGETS, "the site gets a new certificate and key; it runs, and shows them soon",
        lambda fault, stage: NewCertificate(stage, fault), lasts=False,
    ),
    Kind(
        "token-revoked", (CLIENTS,), "the clients get a new token, and the old one is revoked; both sites are up",
        NewToken, lasts=False,
    ),
)
