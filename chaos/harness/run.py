"""One run on real processes: the pair is started behind its links, clients work, faults come and go, the pair is brought back
to health, everything is read, and what was recorded is judged.

What always holds: whatever was started is stopped when the run is left, however it is left; times are seconds of one monotonic
clock since the run began; an error of the harness itself is raised and is no verdict on the pair.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random

from chaos.checkers.violation import Violation
from chaos.clock_faults.control import ClockFaults
from chaos.disk_faults.control import DiskFaults
from chaos.harness import status
from chaos.harness.epochs import with_epochs
from chaos.harness.faults.files import BrokenFiles
from chaos.harness.faults.kind import Stage
from chaos.harness.faults.links import CUTTING, LINGERING, links_of
from chaos.harness.faults.registry import need_clocks, need_steps, need_the_library
from chaos.harness.nemesis import Nemesis, Span
from chaos.harness.pair.commands import Commands, Typed
from chaos.harness.pair.health import Health
from chaos.harness.pair.links import Links
from chaos.harness.pair.recovery import WITHIN_S, Recovery
from chaos.harness.pair.register import RegisterWatch
from chaos.harness.pair.samples import Sample, Sampler
from chaos.harness.pair.sites import SITES, RealSites
from chaos.harness.pair.stored import read_site, without_marks
from chaos.harness.plan import HarnessPlan
from chaos.harness.promises import Verdict, judge
from chaos.harness.status import Said
from chaos.harness.steps.table import TrapTable
from chaos.harness.traffic.clients import Traffic
from chaos.harness.traffic.workloads import WORKLOADS
from chaos.history.history import History, Limits, Moment, Recorder
from chaos.history.lines import ReceiptLine
from chaos.servers.toxiproxy import Toxiproxy
from gateway.service.receipts import encode_receipt
from storage.invariants import InvariantBroken
from twinlog.errors import TwinlogError, Unavailable

START_S = 60.0
ANSWER_SLACK_S = 2.0  # this machine is shared, and so is the loop of the clients
TRAVEL_S = 1.0  # an answer's way through the proxy and that loop, when nothing is done to its link
MODE_SLACK_S = 4.0
RECEIPTS_MAX = 1000
STOPPING = ("pause", "pause-at", "wait-at")


def with_libraries(*attached: DiskFaults | ClockFaults) -> dict[str, str]:
    """The environment of a process between which and libc all of them stand."""
    found = [dict(each.environ()) for each in attached]
    libraries = ":".join(each["LD_PRELOAD"] for each in found)
    return {**{name: value for each in found for name, value in each.items()}, **({"LD_PRELOAD": libraries} if found else {})}


@dataclass(frozen=True)
class Run:
    """A run, when it is over."""

    plan: HarnessPlan
    rounds: int
    bug: str
    history: History
    violations: Sequence[Violation]
    verdicts: Sequence[Verdict]
    spans: Sequence[Span]
    samples: Sequence[Sample]
    typed: Sequence[Typed]
    notes: Sequence[str]
    lasted_s: float


class Harness:
    """`folder`: a new one, for the pair and its logs. `say` takes a line as it happens."""

    def __init__(
        self, plan: HarnessPlan, folder: Path, *, rounds: int = 1, bug: str = "", say: Callable[[str], None] = lambda line: None
    ) -> None:
        self.plan, self.rounds, self.bug, self._say = plan, rounds, bug, say
        self._begun_s = time.monotonic()
        self.notes: list[str] = []
        self.violations: list[Violation] = []
        self.recorder = Recorder()
        faulty = need_the_library(plan.faults)
        self.files = BrokenFiles(folder, DiskFaults(folder / "disk-faults")) if faulty else None
        traps = {site: TrapTable(folder / f"traps-{site}", new=True) for site in SITES} if need_steps(plan.faults) else {}
        self.clocks = {site: ClockFaults(folder / f"clocks-{site}") for site in SITES} if need_clocks(plan.faults) else {}
        self.sites = RealSites(folder, bug, {site: with_libraries(*self._attached(site)) for site in SITES}, traps)
        self.server = Toxiproxy(folder / "toxiproxy")
        self.links = Links(self.server, self.sites.upstream, self.sites.links)
        self.register = RegisterWatch(folder / "coordinator.db", self.now_s, self.recorder.note)
        self.commands = Commands(self.sites.operator_config, self.now_s, self.note)
        self.sampler = Sampler(self.sites, self.now_s)
        self.recovery = Recovery(self.sites, self.commands, self.now_s, self.note)
        self.health = Health(self.sites, self.now_s)
        self.nemesis = Nemesis(
            Stage(self.sites, self.links, self.commands, lambda: self.register.active, self.files, self.clocks), self.now_s,
            self.note,
        )
        self.workload = WORKLOADS[plan.workload](Random(f"{plan.seed} workload"))
        self.traffic = Traffic(plan, self.workload, self.sites.client_urls, self.recorder, self.now_s)

    def now_s(self) -> float:
        return time.monotonic() - self._begun_s

    def note(self, line: str) -> None:
        told = f"{self.now_s():8.2f} s  {line}"
        self.notes.append(told)
        self._say(told)

    def _attached(self, site: str) -> list[DiskFaults | ClockFaults]:
        """Returns what stands between the gateway of this site and libc."""
        clocks = [self.clocks[site]] if self.clocks else []
        return [*([self.files.faults] if self.files else []), *clocks]

    def broken(self, promise: str, checker: str, sentence: str) -> None:
        self.note(f"BROKEN {promise}: {sentence}")
        self.violations.append(Violation(promise, checker, sentence, (), (self.now_s(),)))

    async def execute(self) -> Run:
        """To the end. Raises TwinlogError when the harness itself cannot continue."""
        with ExitStack() as around:
            around.callback(self.server.stop)
            self.server.start()
            self.sites.configure()
            around.enter_context(self.links.opened())
            around.callback(self.sites.end)
            self.register.start()
            around.callback(self.register.stop)
            await self._main()
        history = with_epochs(self.recorder.history())
        said = (
            Said(each.site, each.at_s, each.epoch) for each in self.sampler.samples if each.serves and each.epoch is not None
        )
        self.violations += status.check(said, history.opened)
        violations, verdicts = await asyncio.to_thread(judge, history, self.workload, self.violations)
        return Run(
            self.plan, self.rounds, self.bug, history, violations, verdicts, self.nemesis.spans, self.sampler.samples,
            self.commands.typed, self.notes, self.now_s(),
        )

    # ---- the course of a run
    async def _main(self) -> None:
        self.recorder.note(self._limits())
        for site in SITES:
            self.sites.start(site)
        if not await self.health.wait_whole(START_S):
            raise Unavailable(f"the pair did not start in {START_S:.0f} s; see {self.sites.folder}/*/site.log")
        for site in SITES:
            if not all(faults.is_attached(self.sites.pid(site) or 0) for faults in self._attached(site)):
                raise Unavailable(f"a gateway runs without its library; see {self.sites.folder}/{site}/site.log")
        self.note("the pair is open, behind its links")
        await self.traffic.make_tables()
        sampling = asyncio.create_task(self.sampler.keep())
        working = asyncio.create_task(self.traffic.run())
        try:
            for number in range(self.rounds):
                if not await self._round(number):
                    break
            self.traffic.stop()
            await working
            if not self.violations:
                await self._settle()
        finally:
            for task in (sampling, working):
                task.cancel()
            await asyncio.gather(sampling, working, return_exceptions=True)
            await self.traffic.close()
        self._check_processes()
        if self.register.error:
            raise Unavailable(f"the register could not be watched to the end: {self.register.error}")

    async def _round(self, number: int) -> bool:
        """One time through the faults, and back to health. False: it is stuck."""
        end_s = self.now_s() + self.plan.seconds
        if self.rounds > 1:
            self.note(f"round {number + 1} of {self.rounds}")
        await self.nemesis.run(self.plan.faults)
        await asyncio.sleep(max(0.0, end_s - self.now_s()))
        await self.nemesis.heal_all()
        self.note("healed")
        self.recorder.note(Moment("healed", self.now_s()))
        stuck = await self.recovery.bring_back()
        if stuck:
            self.broken("P10", "stuck", f"{WITHIN_S:.0f} s after all faults no documented command had helped: {stuck}.")
            return False
        self.note("recovered")
        self.recorder.note(Moment("recovered", self.now_s()))
        return True

    async def _settle(self) -> None:
        """Nothing is asked any more: what was unknown has ended, both sites become equal, and everything is read."""
        self.recorder.note(Moment("recovered", self.now_s()))
        await self.traffic.read_all()
        waits = await self.health.drain()
        if waits:
            self.broken("P7", "drained", f"The idle pair did not drain: {waits}.")
            return
        self.note("drained")
        self.recorder.note(Moment("drained", self.now_s()))
        await self._ask_receipts()
        active = str(self.register.active)
        for site in (active, *(each for each in SITES if each != active)):
            if not await asyncio.to_thread(self.sites.terminate, site):
                self.broken("I8", "stopping", f"The gateway of site {site} did not heed SIGTERM.")
        stored = [await read_site(site, self.sites.data_dir(site), site == active, self.now_s()) for site in SITES]
        frames = next(each.frames for each in stored if each.site == active)
        for line in (
            *without_marks((each.dump for each in stored), frames), *(each.log() for each in stored),
            *(each for one in stored for each in one.quarantines), Moment("ended", self.now_s()),
        ):
            self.recorder.note(line)
        self.note("both storages and both logs are read")

    async def _ask_receipts(self) -> None:
        """Asks both sites what became of some acknowledged writes, now that nothing is under way."""
        acknowledged = [
            (call.id, call.outcome.ack) for call in self.recorder.history().calls
            if call.outcome is not None and call.outcome.ack is not None
        ]
        chosen = Random(f"{self.plan.seed} receipts").sample(acknowledged, min(RECEIPTS_MAX, len(acknowledged)))
        for call_id, ack in chosen:
            receipt = encode_receipt(0, ack.epoch, ack.seq, ack.mode)
            for site in SITES:
                try:
                    said = await asyncio.to_thread(self.sites.direct.ask, site, "GET", f"/v1/receipts/{receipt}")
                except TwinlogError as error:
                    self.broken("P1", "receipts", f"Site {site} does not answer about a receipt: {error.message}")
                    return
                self.recorder.note(ReceiptLine(call_id, site, said["outcome"], self.now_s(), last=True))

    def _check_processes(self) -> None:
        for site, code in self.sites.died():
            self.broken("internal", "processes", f"The gateway of site {site} ended by itself, with exit code {code}.")
        for told in self.files.broken if self.files else ():
            self.broken("P1", "processes", told)
        for site in SITES:
            for told in self.sites.unforeseen(site):
                checker = "invariants" if InvariantBroken.__name__ in told else "processes"
                self.broken("internal", checker, f"Site {site} met an error that it does not know: {told}")

    def _limits(self) -> Limits:
        onto_clients = [
            fault.for_s for fault in self.plan.faults
            if fault.kind in LINGERING and any(link.startswith("c") for link in links_of(fault))
        ]
        stopped = [fault.for_s for fault in self.plan.faults if fault.kind in (*STOPPING, *CUTTING)]
        return Limits(
            answer_slack_s=ANSWER_SLACK_S, recovery_s=WITHIN_S, travel_slack_s=TRAVEL_S + max(onto_clients, default=0.0),
            mode_slack_s=MODE_SLACK_S + max(stopped, default=0.0),
        )
