"""The look at what a site's journal gets: that its plans run as the protocol allows, and that what they say is so.

What always holds: each entry is judged in the very step in which it is written, by the protocol (sections 5 and 8) and by what
is so in the world; what a plan says to people counts as much as what it does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from typing import Any

from chaos.simulate.looks.decisions import Decisions
from chaos.simulate.plan import SITES
from chaos.simulate.twins.coordinator import PLACE as WITNESS
from chaos.simulate.twins.journal import MemoryJournal
from chaos.simulate.world import DRIFT_MARGIN, OTHER, World
from gateway.site.operations import OPERATOR, VALID_S
from switchover.operations.document import HistoryEntry, Operation, document

HELD_UP_S = 5.0  # a journal or another command may hold up what an entry tells of
SINCE_S = 20.0  # longer than any plan waits for a DFS
DAY_MS = 24 * 3600 * 1000
DRY_RUNS = 10  # that are kept, of the last day (protocol of the journal)
SILENT_DFS = re.compile(r"site (\w)'s DFS does not answer")
WAITED = re.compile(r" in (\d+) s\b")
NOBODY = re.compile(r"\bNone\b(?! of)")
OTHERS_DFS = re.compile(r"the DFS of site (\w)")


class Plans:
    """`broken` takes a sentence for each entry that must not be."""

    def __init__(self, world: World, decisions: Decisions, broken: Callable[[str], None]) -> None:
        self._world, self._decisions, self._broken = world, decisions, broken
        self._dry: dict[str, tuple[MemoryJournal, dict[str, int]]] = {}
        for site in SITES:
            world.machines[site].journal.told = partial(self._told, site)

    def _told(self, site: str, journal: MemoryJournal, operation: Operation, entry: HistoryEntry) -> None:
        known = {one.id for one in journal.all()}
        life = self._world.alive(site)
        running = life.operations.running_id if life is not None and life.operations is not None else None
        for sentence in chain(
            self._way(site, operation, entry, known, running), self._forgotten(site, journal, operation, known),
            self._step(site, operation, entry), self._words(operation, entry), self._loss(site, operation, entry),
        ):
            self._broken(f"Operation {operation.id} ({operation.kind}) at site {site} {sentence}.")

    # ---- how it runs
    def _way(
        self, site: str, operation: Operation, entry: HistoryEntry, known: Iterable[str], running: str | None
    ) -> Iterator[str]:
        if operation.id not in known and (running == operation.id or entry.event != "started"):
            yield "began before its journal had it"
        if operation.state == "running" and running not in (None, operation.id):
            yield f"runs beside {running}"
        barred = [step.name for step in operation.steps if not step.abortable and step.state != "pending"]
        if operation.aborting and barred:
            yield f"is given up behind {barred[0]}, behind which it is only completed"
        if document(operation).never_began and any(step.started_ms is not None for step in operation.steps[1:]):
            yield "is shown as one that never began"
        if entry.event == "resumed" and entry.actor == OPERATOR and operation.expires_ms is not None:
            left_s = (operation.expires_ms - self._world.machines[site].clock.wall_ms()) / 1000
            if left_s < VALID_S - HELD_UP_S:
                yield f"was resumed by a command of now, and expires in {left_s:.0f} s"

    def _forgotten(self, site: str, journal: MemoryJournal, operation: Operation, known: Iterable[str]) -> Iterator[str]:
        """Dry runs are forgotten after a day, or behind newer ones."""
        before, dry = self._dry.get(site, (journal, dict[str, int]()))
        if before is not journal:
            dry = {}
        newest = [one for one, _ in sorted(dry.items(), key=lambda each: each[1])][-DRY_RUNS + 1 :]
        for one in newest:
            if one not in known and operation.created_ms - dry[one] < DAY_MS:
                yield f"found that the dry run {one} of today was forgotten"
        if operation.dry_run:
            dry[operation.id] = operation.created_ms
        self._dry[site] = journal, {one: made_ms for one, made_ms in dry.items() if one in known or one == operation.id}

    # ---- what its steps did
    def _step(self, site: str, operation: Operation, entry: HistoryEntry) -> Iterator[str]:
        detail = entry.detail or {}
        has_begun = entry.event == "step done" and entry.step == "begin" and not operation.dry_run
        if has_begun and (detail.get("epoch", 0), site) not in self._decisions.given:
            yield f"has begun with epoch {detail.get('epoch')}, which the register never gave to its site"
        if entry.event == "step failed" and entry.step == "begin":
            yield from self._refused(site, operation, detail)
        if entry.event == "step failed" and entry.step == "verify" and "no shipped frames" in detail.get("message", ""):
            yield "found that an older epoch is not rejected as one"

    def _refused(self, site: str, operation: Operation, error: Mapping[str, Any]) -> Iterator[str]:
        if error.get("code") != "refused":
            return
        fields = error.get("fields", {})
        if fields.get("plan_id") and fields.get("site") == site:
            yield "was refused for an unfinished plan of its own site"
        if operation.kind == "switchover" and "async_since_seq" in fields:
            yield "was refused for a loss, and a switchover has none"

    # ---- what it says
    def _words(self, operation: Operation, entry: HistoryEntry) -> Iterator[str]:
        site, detail = operation.to or "", entry.detail or {}
        for text in _texts(detail):
            if NOBODY.search(text):
                yield f"speaks of None to people: {text}"
            for whose in SILENT_DFS.findall(text) if entry.event == "step done" else ():
                if self._answered_all(OTHER[whose], whose):
                    yield f"says that site {whose}'s DFS does not answer, and every call was answered"
        step = next((step for step in operation.steps if step.name == entry.step), None)
        if entry.event == "step failed" and step is not None and step.started_ms is not None:
            said_s = max(map(int, WAITED.findall(str(detail.get("message", "")))), default=0)
            took_s = ((step.finished_ms or 0) - step.started_ms) / 1000
            if took_s < said_s * (1 - DRIFT_MARGIN):  # a deadline is not always counted by the site's own clock
                yield f"says that it waited for {said_s} s, and gave up after {took_s:.1f} s"
        if entry.event in ("step done", "step failed") and entry.step == "preflight" and site in OTHER:
            yield from _of_remote_log(operation.kind, site, detail)

    def _answered_all(self, asking: str, whose: str) -> bool:
        """Every call of a site got an answer of that DFS of late, in time. Where calls are refused at steps nobody knows."""
        world = self._world
        missed_s = world.machines[whose].dfs.missed_s.get(asking), world.network.missed_s.get((asking, whose))
        last_s = max([world.lives[asking].process.resumed_s, *(at_s for at_s in missed_s if at_s is not None)])
        return not world.steps and world.loop.now_s - last_s > SINCE_S

    def _loss(self, site: str, operation: Operation, entry: HistoryEntry) -> Iterator[str]:
        """The loss that a failover shows, beside what is here and what the register knows of the active."""
        detail = entry.detail or {}
        shown = detail.get("manifest") or detail.get("fields", {}).get("manifest")
        if entry.step != "preflight" or not isinstance(shown, Mapping) or entry.event not in ("step done", "step failed"):
            return
        applied, now_s = self._world.machines[site].engine.applied, self._world.loop.now_s
        since = shown["asynchronous_since_seq"] or 0
        count, told = shown["records_at_risk"], shown["active_committed_seq"]
        if applied.epoch != shown["epoch"] and shown["this_site_holds_seq"] > since:
            yield f"counts up to {shown['this_site_holds_seq']} as held, in epoch {applied.epoch} and not {shown['epoch']}"
        if count is None:
            return
        if told is not None and count > max(0, told - since):
            yield f"counts {count} records as lost, and both sites hold up to {since} of {told}"
        lease_s = self._world.plan.knobs.lease_s
        beats = [at_s for at_s in self._decisions.renewed_s if now_s - at_s < lease_s / 2]
        missed_s = self._world.network.missed_s.get((site, WITNESS), -SINCE_S)
        if len(beats) > 1 and now_s - missed_s > lease_s + HELD_UP_S:  # else it may know the register by an older look
            yield f"counts {count} records as lost, and the active continues to acknowledge"


def _of_remote_log(kind: str, to: str, detail: Mapping[str, Any]) -> Iterator[str]:
    """The site that is to be active writes the remote log on the other one's DFS; only a switchover cannot do without."""
    checks = [*detail.get("not_ok", ()), *detail.get("fields", {}).get("checks", ())]
    for check in checks:
        if check["id"] == "remote-log.writable" and check["status"] in ("failed", "warning"):
            if (check["status"] == "failed") != (kind == "switchover"):
                yield f"finds that its remote log cannot be written, which is a {check['status']} check"
            where = to if kind == "rejoin" else OTHER[to]
            if any(named != where for named in OTHERS_DFS.findall(check["fix"])):
                yield f"says of its remote log: {check['fix']}, and it goes to the DFS of site {where}"


def _texts(detail: object) -> Iterator[str]:
    if isinstance(detail, str):
        yield detail
    elif isinstance(detail, Mapping):
        for each in detail.values():
            yield from _texts(each)
    elif isinstance(detail, list | tuple):
        for each in detail:
            yield from _texts(each)
