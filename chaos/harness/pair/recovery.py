"""The way back to health: what an operator does who has nothing but the handbook and `twinlog status` and `advise`.

What always holds: only commands are typed that the handbook (docs/operations.md) names, each with whose word it was; none of
them accepts a loss of data; what is done by hand stands in the handbook, too (acts.py); the pair is healthy when `twinlog
status` ends with 0, and whoever waited for that in vain has found a pair that is stuck.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from chaos.harness.pair.acts import Acts
from chaos.harness.pair.asked import OTHER, SITES, AskedSites
from chaos.harness.pair.commands import Commands
from twinlog.errors import TwinlogError

PATIENCE_S = 6.0  # how long the pair may repair itself before a command
WITHIN_S = 120.0
POLL_S = 0.25
WHOLE = ("ACTIVE", "STANDBY")
_TYPED = re.compile(r"`twinlog ((?:failover|switchover|rejoin|degrade|resync|resume|abort)\b[^`]*)`")
_PLACEHOLDER = re.compile(r"(?:^|\s)[A-Z]{3,}(?:\s|$)|[<\[]|--to$")  # what people fill in


class Recovery:
    """`acts`: what people do by hand, at a pair whose files are ours."""

    def __init__(
        self, sites: AskedSites, commands: Commands, now_s: Callable[[], float], note: Callable[[str], None],
        acts: Acts | None = None,
    ) -> None:
        self._sites, self._commands, self._now_s, self._note = sites, commands, now_s, note
        self._tried: dict[str, int] = {}
        self._acts = acts

    async def bring_back(self, within_s: float = WITHIN_S) -> str:
        """Empty when the pair is healthy; else what it says it waits for: it is stuck."""
        end_s, quiet_s = self._now_s() + within_s, self._now_s() + PATIENCE_S
        self._tried.clear()
        while self._now_s() < end_s:
            for site in self._sites.revive():
                self._note(f"the gateway of site {site} is started")
            documents = await self._documents()
            if self._acts is not None:
                self._acts.look(documents)
            if is_whole(documents) and (await self._commands.ask("status")).code == 0:
                if self._acts is None or not await self._acts.mend_unseen(documents):
                    return ""
                quiet_s = self._now_s() + PATIENCE_S
            elif self._now_s() > quiet_s and not any(document.get("operation") for document in documents.values()):
                await self._help(documents)
                quiet_s = self._now_s() + PATIENCE_S
            await asyncio.sleep(POLL_S)
        return describe(await self._documents())

    async def _documents(self) -> dict[str, dict[str, Any]]:
        return await asyncio.to_thread(self._sites.documents)

    async def _help(self, documents: Mapping[str, Mapping[str, Any]]) -> None:
        """One act by hand that the handbook names for what a site says; else one command: that of `advise`, else one that a
        site names, else the handbook's; each twice at most, then the next."""
        if self._acts is not None and await self._acts.help(documents):
            return
        named = [*await self._advised(), *_named(documents), *await self._unfinished(), *_handbook(documents)]
        for words, why in named:
            if self._tried.get(words, 0) < 2:
                self._tried[words] = self._tried.get(words, 0) + 1
                await self._commands.run(*words.split(), why=why)
                return

    async def _advised(self) -> list[tuple[str, str]]:
        said = await self._commands.ask("advise")
        try:
            advice = msgspec.json.decode(said.output[said.output.index("{"):])
        except (ValueError, msgspec.DecodeError):
            return []
        command = str(advice.get("command") or "")
        return [(words, "twinlog advise") for words in _typeable(f"`{command}`")]

    async def _unfinished(self) -> list[tuple[str, str]]:
        """`twinlog resume` of what stopped half-way."""
        found = []
        for site in SITES:
            try:
                listed = await asyncio.to_thread(self._sites.direct.ask, site, "GET", "/v1/operations")
            except TwinlogError:
                continue
            found += [
                (f"resume {each['id']}", "the handbook: an operation stopped half-way") for each in listed["operations"][:1]
                if each.get("resumable") and not each.get("dry_run")
            ]
        return found


def is_whole(documents: Mapping[str, Mapping[str, Any]]) -> bool:
    """Asynchronous by choice is whole."""
    def role(document: Mapping[str, Any]) -> str:
        by_choice = document.get("role") == "DOWNGRADE_ACTIVE" and document.get("policy") == "performance"
        return "ACTIVE" if by_choice else str(document.get("role"))

    roles = sorted(role(document) for document in documents.values())
    return roles == sorted(WHOLE) and not any(document.get("operation") for document in documents.values())


def _typeable(text: str) -> list[str]:
    return [words.strip() for words in _TYPED.findall(text) if not _PLACEHOLDER.search(words) and "--accept" not in words]


def _named(documents: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Returns what the sites' own status says is to be typed."""
    found = []
    for site, document in documents.items():
        serving, troubles = document.get("serving") or {}, document.get("troubles") or []
        told = [serving.get("do"), *(trouble.get("do") for trouble in troubles), document.get("waiting_for")]
        found += [(words, f"the status of site {site}") for text in told if text for words in _typeable(text)]
    return found


def _handbook(documents: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Step 5 and the table of verbs, by role."""
    found = []
    for site, document in documents.items():
        role, peer = document.get("role"), documents.get(OTHER[site], {}).get("role")
        if role in ("FENCED", "CLOSED") and peer in ("ACTIVE", "DOWNGRADE_ACTIVE"):
            found.append((f"rejoin {site} --wait", "the handbook: a site came back and should follow"))
        if role == "DOWNGRADE_ACTIVE" and peer == "STANDBY":
            found.append(("resync", "the handbook: after `degrade`, later `resync`"))
        if role == "STANDBY" and peer not in ("ACTIVE", "DOWNGRADE_ACTIVE"):
            found.append((f"failover --to {site}", "the handbook: the active is lost or cut off"))
    return found


def describe(documents: Mapping[str, Mapping[str, Any]]) -> str:
    """The pair in a line, for people."""
    parts = []
    for site in SITES:
        document = documents.get(site)
        if document is None:
            parts.append(f"{site} does not answer")
            continue
        waits = document.get("waiting_for")
        parts.append(f"{site} is {document.get('role')}, epoch {document.get('epoch')}, {document.get('mode')}"
                     + (f", waits for {waits}" if waits else ""))
    return "; ".join(parts)
