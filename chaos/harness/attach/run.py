"""A run against a pair that somebody else started: clients write to tables of the run's own, an operator's commands and faults
of links come at their times, and what was recorded is judged.

What always holds: no process is signalled, no file of a site is touched, no loss is accepted; a role change is only asked for
when the plan has commands. However the run is left, no toxic of its own is left, and its tables are dropped or named. A first
signal ends the traffic early and lets the run end in order; a second one cuts that short.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
import time
from collections.abc import Callable, Coroutine, Mapping
from random import Random
from typing import Any

from chaos.checkers.violation import Violation
from chaos.fault_lines import fault_text
from chaos.harness import standing
from chaos.harness.attach.proxies import TheirLinks, TheirServer
from chaos.harness.attach.tables import drop, read_site
from chaos.harness.attach.watch import ClusterWatch
from chaos.harness.epochs import with_epochs
from chaos.harness.faults import commands, links
from chaos.harness.faults.kind import Stage
from chaos.harness.honesty import serving
from chaos.harness.honesty.judge import status_looked_at
from chaos.harness.honesty.known import Known
from chaos.harness.limits import limits_of
from chaos.harness.nemesis import Nemesis
from chaos.harness.pair.asked import SITES, AskedSites
from chaos.harness.pair.commands import Commands
from chaos.harness.pair.health import Health
from chaos.harness.pair.recovery import WITHIN_S, Recovery, describe
from chaos.harness.plan import HarnessPlan
from chaos.harness.promises import OWN, judge
from chaos.harness.run import Run
from chaos.harness.traffic.clients import Traffic
from chaos.harness.traffic.receipts import ask_receipts
from chaos.harness.traffic.workloads import WORKLOADS
from chaos.history.history import Dump, Moment, Recorder
from twinlog import AsyncClient
from twinlog.addresses import resolve_address
from twinlog.cli.status import blockers
from twinlog.errors import ConfigError, InvalidInput, TwinlogError, Unavailable

LINKS_BROKEN = frozenset(kind.name for kind in links.KINDS)
TYPED = frozenset(kind.name for kind in commands.KINDS)
UNSEEN = ("processes", "invariants", "stopping", "reported")  # what needs a gateway's process, or its log
_SENTENCES = {"drained": "once the run's clients are idle, both sites apply all that was committed"}
_UNSEEN = "; it needs a gateway's process or log, and cannot be seen from outside"


class Attachment:
    """`config`: the pair, as `twinlog --config` takes it. `say` takes a line as it happens."""

    def __init__(
        self, plan: HarnessPlan, config: str, server: TheirServer | None, *, keep_tables: bool = False,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.plan, self.config, self.keep_tables, self._say = plan, config, keep_tables, say
        urls = resolve_address(config)
        if tuple(sorted(urls)) != SITES:
            raise InvalidInput(f"{config} names the sites {', '.join(sorted(urls))}: a and b are wanted")
        self.urls = urls
        self._begun_s = time.monotonic()
        self.prefix = f"chaos_{secrets.token_hex(4)}_"
        self.notes: list[str] = []
        self.violations: list[Violation] = []
        self.unfinished: list[str] = []  # what the run could not do, or has left behind
        self.recorder = Recorder()
        self.sites = AskedSites(urls)
        self.links = TheirLinks(server, _links_of(plan, server), self.prefix)
        self.commands = Commands(config, self.now_s, self.note)
        self.watch = ClusterWatch(self.sites, self.now_s, self.recorder.note)
        self.health = Health(self.sites, self.now_s)
        self.nemesis = Nemesis(Stage(self.sites, self.links, self.commands, lambda: self.watch.active), self.now_s, self.note)
        self.workload = WORKLOADS[plan.workload](Random(f"{plan.seed} workload"))
        self._stop, self._hurry = asyncio.Event(), asyncio.Event()

    @property
    def tables(self) -> list[str]:
        return [self.prefix + use.name for use in self.workload.tables]

    def now_s(self) -> float:
        return time.monotonic() - self._begun_s

    def note(self, line: str) -> None:
        noted = f"{self.now_s():8.2f} s  {line}"
        self.notes.append(noted)
        self._say(noted)

    def broken(self, promise: str, checker: str, sentence: str) -> None:
        self.note(f"BROKEN {promise}: {sentence}")
        self.violations.append(Violation(promise, checker, sentence, (), (self.now_s(),)))

    def _left(self, sentence: str) -> None:
        self.note(f"not finished: {sentence}")
        self.unfinished.append(sentence)

    def look(self) -> str:
        """Looks at the pair and at its proxies before anything is changed. The pair in a line. Raises TwinlogError."""
        asked_s = self.now_s()
        answers = self.sites.direct.ask_all("/v1/cluster")
        found = blockers(answers)
        documents = {site: answer for site, answer in answers.items() if isinstance(answer, dict)}
        for site, document in documents.items():
            if document.get("site") != site:
                raise ConfigError(f"{self.urls[site]} is the address of site {document.get('site')}, not of site {site}")
            self.watch.take_in(site, document, asked_s, self.now_s())
        found += [f"site {site} is in the middle of {it}" for site, doc in documents.items() if (it := doc.get("operation"))]
        if found:
            raise Unavailable(f"the pair is not whole, and a run needs one that is: {'; '.join(found)}")
        self.links.open()
        return describe(documents)

    def close(self) -> None:
        self.links.close()
        self.sites.close()

    async def execute(self) -> Run:
        """To the end. An error of the pair, of a link or of the harness ends the run early, and is in `unfinished`."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._signalled)
        traffic = Traffic(
            self.plan, self.workload, self.links.client_urls(self.urls), self.recorder, self.now_s, self.prefix
        )
        watching = asyncio.create_task(self.watch.keep())
        try:
            await self._main(traffic)
        except TwinlogError as error:
            self._left(error.message)
        finally:
            await self._leave()
            await traffic.close()
            if watching.done():
                self._left(f"the sites were not watched to the end: {watching.exception()!r}")
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        history = with_epochs(self.recorder.history(), self.watch.since)
        self.violations += serving.check(self.watch.samples, Known(history))
        own = [(promise, name, _SENTENCES.get(name, text) + _UNSEEN * (name in UNSEEN)) for promise, name, text in OWN]
        looked = [status_looked_at(self.watch.samples)]
        violations, verdicts = await asyncio.to_thread(judge, history, self.workload, self.violations, looked, own, UNSEEN)
        return Run(
            self.plan, 1, "", history, violations, verdicts, self.nemesis.spans, self.watch.samples, (), self.commands.typed,
            self.notes, self.now_s(), f"{self.config}: site a at {self.urls['a']}, site b at {self.urls['b']}; seen by its API"
            f" alone, so that openings and modes are the sites' own word; tables: {', '.join(self.tables)}",
        )

    def _signalled(self) -> None:
        if self._stop.is_set():
            self._hurry.set()
            return
        self._stop.set()
        self.note("the run ends early: its faults are undone, and what happened is judged; a second signal cuts that short")

    async def _unless(self, event: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
        """Returns whether it came to its end before the event. Raises what it raises."""
        task, asked = asyncio.create_task(work), asyncio.create_task(event.wait())
        await asyncio.wait((task, asked), return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return False
        await task
        return True

    # ---- the course of a run
    async def _main(self, traffic: Traffic) -> None:
        self.recorder.note(limits_of(self.plan.faults))
        await traffic.make_tables()
        self.note(f"the tables are there: {', '.join(self.tables)}")
        watching = asyncio.create_task(standing.keep(self.now_s, self.recorder.note, self.note))
        working = asyncio.create_task(traffic.run())
        try:
            if not await self._unless(self._stop, self._plan()):
                self._left("it was ended before its time")
            await self.links.reset()
            self.note("healed" if self.plan.faults else "the time is over")
            await self._unless(self._hurry, self._become_whole())
            traffic.stop()
            await working
        finally:
            for task in (watching, working):
                task.cancel()
            await asyncio.gather(watching, working, return_exceptions=True)
        if self.recorder.history().moment("recovered") is None or not await self._unless(self._hurry, self._settle(traffic)):
            self._left("the rows were not read back from both sites")

    async def _plan(self) -> None:
        end_s = self.now_s() + self.plan.seconds
        await self.nemesis.run(self.plan.faults)
        await asyncio.sleep(max(0.0, end_s - self.now_s()))

    async def _become_whole(self) -> None:
        healed_s = self.now_s()
        if self.commands.typed:
            waits = await Recovery(self.sites, self.commands, self.now_s, self.note).bring_back()
        else:
            waits = await self.health.wait_whole(WITHIN_S)
        if not waits:
            self.recorder.note(Moment("healed", healed_s))
            self.recorder.note(Moment("recovered", self.now_s()))
        elif len(await asyncio.to_thread(self.sites.documents)) == len(SITES):
            self.broken("P10", "stuck", f"{WITHIN_S:.0f} s after all faults no documented command had helped: {waits}.")
        else:  # who stopped it cannot be seen from outside
            self._left(f"the pair is not whole: {waits}")

    async def _settle(self, traffic: Traffic) -> None:
        """Nothing is asked any more: what was unknown has ended, both sites have applied everything, and both are read."""
        self.recorder.note(Moment("recovered", self.now_s()))
        await traffic.read_all()
        waits = await self.health.drain(_not_applied)
        if waits:
            self.broken("P7", "drained", f"The sites did not apply what was committed: {waits}.")
            return
        self.note("both sites have applied everything")
        self.recorder.note(Moment("drained", self.now_s()))
        silent = await ask_receipts(self.sites, self.recorder, self.plan.seed, self.now_s)
        if silent:
            self.broken("P1", "receipts", silent)
            return
        documents = await asyncio.to_thread(self.sites.documents)
        applied = min((document["applied_seq"] for document in documents.values()), default=0)
        dumps = []
        async with AsyncClient(self.urls) as pair:
            for site in SITES:
                tables = await read_site(pair, site, self.prefix, self.workload.tables)
                dumps.append(Dump(site, site == self.watch.active, self.now_s(), applied, tables))
        for line in (*dumps, Moment("ended", self.now_s())):
            self.recorder.note(line)
        self.note("the rows of both sites are read")

    async def _leave(self) -> None:
        """No toxic of this run, and no table of it, or their names."""
        try:
            await self.links.reset()
        except TwinlogError as error:
            self._left(error.message)
        left = self.tables
        if not self.keep_tables and not self._hurry.is_set():
            async with AsyncClient(self.urls) as pair:
                left = await drop(pair, self.prefix, self.workload.tables)
        if not left:
            self.note("the tables of the run are dropped")
        elif self.keep_tables:
            self.note(f"the tables of the run are kept: {', '.join(left)}")
        else:
            self._left(f"tables were not dropped: {', '.join(left)}; `twinlog drop-table` drops them")


def _links_of(plan: HarnessPlan, server: TheirServer | None) -> set[str]:
    """Returns the links that the plan names. Raises InvalidInput for a line that cannot be done to a pair of somebody else."""
    for fault in plan.faults:
        if fault.kind not in LINKS_BROKEN | TYPED:
            raise InvalidInput(
                f"{fault_text(fault)!r}: attach breaks links and types commands; it never touches a process or a file of a pair"
                " that it did not start"
            )
        if fault.kind in LINKS_BROKEN and server is None:
            raise InvalidInput(f"{fault_text(fault)!r} needs a Toxiproxy in the path of that link: --toxiproxy HOST:PORT")
    return {link for fault in plan.faults if fault.kind in LINKS_BROKEN for link in links.links_of(fault)}


def _not_applied(documents: Mapping[str, Mapping[str, Any]], target: int) -> str:
    for site in SITES:
        applied = documents.get(site, {}).get("applied_seq")
        if applied is None or applied < target:
            return f"site {site} has applied {applied} of {target}" if applied is not None else f"site {site} does not answer"
    return ""
