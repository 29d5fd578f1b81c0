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
from chaos.fault_lines import Fault
from chaos.harness import resources, standing
from chaos.harness.epochs import with_epochs
from chaos.harness.faults.changed import TREE_OF, begin_with
from chaos.harness.faults.files import Attached, BrokenFiles, PoweredFiles, environ_of
from chaos.harness.faults.kind import Stage
from chaos.harness.faults.registry import need_clocks, need_steps, need_the_library, need_the_record
from chaos.harness.honesty import serving
from chaos.harness.honesty.judge import judged
from chaos.harness.limits import START_S, limits_of
from chaos.harness.nemesis import Nemesis, Span
from chaos.harness.pair.acts import Acts
from chaos.harness.pair.commands import Commands, Typed
from chaos.harness.pair.files.stored import read_site, without_marks
from chaos.harness.pair.health import Health
from chaos.harness.pair.links import Links
from chaos.harness.pair.monitors import Monitors
from chaos.harness.pair.parts import PLAIN, Parts
from chaos.harness.pair.recovery import Recovery
from chaos.harness.pair.samples import Sample, Sampler
from chaos.harness.pair.sites import SITES, RealSites
from chaos.harness.pair.two_registers import watch_of
from chaos.harness.plan import HarnessPlan
from chaos.harness.promises import Verdict, judge
from chaos.harness.steps.table import TrapTable
from chaos.harness.traffic.clients import Traffic
from chaos.harness.traffic.receipts import ask_receipts
from chaos.harness.traffic.workloads import WORKLOADS
from chaos.history.history import History, Moment, Recorder
from chaos.servers.toxiproxy import Toxiproxy
from storage.invariants import InvariantBroken
from twinlog.errors import TwinlogError, Unavailable

REST_S = 20.0  # until what is idle has been closed
REST_POLL_S = 0.5


@dataclass(frozen=True)
class Run:
    """A run, when it is over. `pair`: which one it was; `parts`: of what it was made, None for a pair of somebody else."""

    plan: HarnessPlan
    rounds: int
    bug: str
    history: History
    violations: Sequence[Violation]
    verdicts: Sequence[Verdict]
    spans: Sequence[Span]
    samples: Sequence[Sample]
    rest: Sequence[Sequence[Sample]]
    typed: Sequence[Typed]
    notes: Sequence[str]
    lasted_s: float
    pair: str
    parts: Parts | None = None


class Harness:
    """`folder`: a new one, for the pair and its logs. `say` takes a line as it happens."""

    def __init__(
        self, plan: HarnessPlan, folder: Path, *, parts: Parts = PLAIN, rounds: int = 1, bug: str = "",
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.plan, self.rounds, self.bug, self._say = plan, rounds, bug, say
        self._begun_s = time.monotonic()
        self.notes: list[str] = []
        self.violations: list[Violation] = []
        self.rest: list[Sequence[Sample]] = []  # looks at the idle pair, at the beginning and at the end
        self.recorder = Recorder()
        faulty = need_the_library(plan.faults)
        self.files = BrokenFiles(folder, DiskFaults(folder / "disk-faults")) if faulty else None
        self.powered = PoweredFiles(folder, plan.seed) if need_the_record(plan.faults) else None
        traps = {site: TrapTable(folder / f"traps-{site}", new=True) for site in SITES} if need_steps(plan.faults) else {}
        self.clocks = {site: ClockFaults(folder / f"clocks-{site}") for site in SITES} if need_clocks(plan.faults) else {}
        environs = {site: environ_of(*self._attached(site)) for site in SITES}
        self.sites = RealSites(folder, bug, environs, parts, self._before_kill, traps, plan.policy)
        self.monitors = Monitors(folder, self.sites.operator_config)
        self.server = Toxiproxy(folder / "toxiproxy")
        self.links = Links(self.server, self.sites.upstream, self.sites.links)
        self.register = watch_of(self.sites, self.now_s, self.recorder.note)
        self.commands = Commands(self.sites.operator_config, self.now_s, self.note)
        self.recovery = Recovery(
            self.sites, self.commands, self.now_s, self.note, Acts(self.sites, self.commands, self.note)
        )
        self.health = Health(self.sites, self.now_s)
        stage = Stage(
            self.sites, self.links, self.commands, lambda: self.register.active, self.files, self.powered, self.clocks,
            plan.seed, lambda: self.register.value is not None and self.register.value.mode == "sync",
            self.monitors, self.server,
        )
        self.nemesis = Nemesis(stage, self.now_s, self._happened)
        self.workload = WORKLOADS[plan.workload](Random(f"{plan.seed} workload"))
        known = self.sites.credentials
        self.traffic = Traffic(
            plan, self.workload, self.sites.client_urls, self.recorder, self.now_s,
            tls=None if known is None else known.tls, token=None if known is None else known.of_clients,
        )
        self.sampler = Sampler(self.sites, self.now_s, lambda: self.traffic.acknowledged, self.recorder.note)

    def now_s(self) -> float:
        return time.monotonic() - self._begun_s

    def note(self, line: str) -> None:
        told = f"{self.now_s():8.2f} s  {line}"
        self.notes.append(told)
        self._say(told)

    def _happened(self, line: str) -> None:
        """A fault begins or ends."""
        self.sampler.look_soon()
        self.note(line)

    def _attached(self, site: str) -> list[Attached]:
        """Returns what stands between the gateway of this site and libc, in the order in which calls pass it."""
        found: list[Attached] = [self.files.faults] if self.files else []
        found += [self.powered.losses.processes] if self.powered else []
        return [*found, *([self.clocks[site]] if self.clocks else [])]

    def broken(self, promise: str, checker: str, sentence: str) -> None:
        self.note(f"BROKEN {promise}: {sentence}")
        self.violations.append(Violation(promise, checker, sentence, (), (self.now_s(),)))

    async def execute(self) -> Run:
        """To the end. Raises TwinlogError when the harness itself cannot continue."""
        with ExitStack() as around:
            around.callback(self.server.stop)
            if self.powered:
                around.callback(self.powered.losses.close)
            around.callback(self.sites.end)
            around.callback(self.monitors.end)
            self.server.start()
            await asyncio.to_thread(self.sites.servers.start)
            self.sites.configure()
            begin_with(self.plan.faults, self.sites)
            around.enter_context(self.links.opened())
            self.register.start()
            around.callback(self.register.stop)
            await self._main()
        return await asyncio.to_thread(self._judged)

    def _judged(self) -> Run:
        history, lies, looked = judged(
            with_epochs(self.recorder.history()), self.sampler.samples, self.rest, self.nemesis.spans, self.commands.accepted
        )
        violations, verdicts = judge(history, self.workload, [*self.violations, *lies], looked)
        return Run(
            self.plan, self.rounds, self.bug, history, violations, verdicts, self.nemesis.spans, self.sampler.samples,
            self.rest, self.commands.typed, self.notes, self.now_s(), self.sites.parts.told, self.sites.parts,
        )

    def _before_kill(self, pid: int) -> None:
        if self.powered:
            self.powered.losses.processes.cut(pid)

    # ---- the course of a run
    async def _main(self) -> None:
        self.recorder.note(limits_of(self.plan.faults, self.plan.recovery))
        for site in SITES:
            self.sites.start(site)
        if waits := await self.health.wait_whole(START_S, self.sites.ended):
            in_s, logs = f"{START_S:.0f} s", f"{self.sites.folder}/*/site.log"
            raise Unavailable(f"the pair did not start, for which it has {in_s}: {waits}; see {logs}")
        for site in SITES:
            if not all(faults.is_attached(self.sites.pid(site) or 0) for faults in self._attached(site)):
                raise Unavailable(f"a gateway runs without its library; see {self.sites.folder}/{site}/site.log")
        self.note("the pair is open, behind its links")
        self.rest.append(await self._looks())
        await self.traffic.make_tables()
        sampling = asyncio.create_task(self.sampler.keep())
        watching = asyncio.create_task(standing.keep(self.now_s, self.recorder.note, self.note))
        working = asyncio.create_task(self.traffic.run())
        try:
            for number in range(self.rounds):
                if self.rounds > 1:
                    self.note(f"round {number + 1} of {self.rounds}")
                if not await self._round():
                    break
            self.traffic.stop()
            await working
            if not self.violations:
                await self._settle()
        finally:
            for task in (sampling, watching, working):
                task.cancel()
            await asyncio.gather(sampling, watching, working, return_exceptions=True)
            await self.traffic.close()
        self._check_processes()
        if self.register.error:
            raise Unavailable(f"the register could not be watched to the end: {self.register.error}")

    async def _round(self) -> bool:
        """One time through the faults, and back to health after each episode. False: it is stuck."""
        for seconds, faults in self.plan.episodes():
            if not await self._episode(seconds, faults):
                return False
        return True

    async def _episode(self, seconds: float, faults: Sequence[Fault]) -> bool:
        end_s = self.now_s() + seconds
        await self.nemesis.run(faults)
        await asyncio.sleep(max(0.0, end_s - self.now_s()))
        await self.nemesis.heal_all()
        self.note("healed")
        self.recorder.note(Moment("healed", self.now_s()))
        stuck = await self.recovery.bring_back(self.plan.recovery)
        if stuck:
            self.broken("P10", "stuck", f"{self.plan.recovery:g} s after all faults no documented command had helped: {stuck}.")
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
        silent = await ask_receipts(self.sites, self.recorder, self.plan.seed, self.now_s)
        if silent:
            self.broken("P1", "receipts", silent)
        await self.traffic.close()
        await self._come_to_rest()
        active = str(self.register.active)
        for site in (active, *(each for each in SITES if each != active)):
            if not await asyncio.to_thread(self.sites.terminate, site):
                self.broken("I8", "stopping", f"The gateway of site {site} did not heed SIGTERM.")
        try:
            stored = [await read_site(site, self.sites, site == active, self.now_s()) for site in SITES]
        except TwinlogError as error:
            self.broken("I7", "reported", f"No site said that what it stores cannot be read: {error.message}")
            return
        frames = next(each.frames for each in stored if each.site == active)
        for line in (
            *without_marks((each.dump for each in stored), frames), *(each.log() for each in stored),
            *(each for one in stored for each in one.quarantines), Moment("ended", self.now_s()),
        ):
            self.recorder.note(line)
        self.note("both storages and both logs are read")

    async def _come_to_rest(self) -> None:
        """Nobody is connected any more: both gateways come to hold no more than at the beginning, and to name no trouble. Who
        waits for the one need not be without the other again: an active writes a beat now and then, and lags for a moment."""
        self.sites.direct.close()  # from here on the harness keeps no connection either
        end_s = self.now_s() + REST_S
        first = [] if any(fault.kind == TREE_OF and fault.at_s == 0 for fault in self.plan.faults) else self.rest[0]
        looks = await self._looks()
        said = serving.at_rest(looks)
        while (resources.excess(first, looks) or said) and self.now_s() < end_s:
            await asyncio.sleep(REST_POLL_S)
            looks = await self._looks()
            said = said and serving.at_rest(looks)
        self.rest.append(looks)
        for told in resources.excess(first, looks):
            self.broken("I6", resources.NAME, f"At rest {told}.")
        for told in said:
            self.broken("P8", serving.AT_REST, told)

    async def _looks(self) -> list[Sample]:
        """Looks at both sites while nobody asks anything."""
        return [await asyncio.to_thread(self.sampler.look, site, disks=True) for site in SITES]

    def _check_processes(self) -> None:
        for site, code in self.sites.died():
            self.broken("internal", "processes", f"The gateway of site {site} ended by itself, with exit code {code}.")
        for told in self.monitors.orders():
            self.note(f"by a monitor: {told}")
        for told in self.monitors.died:
            self.broken("internal", "processes", told)
        for told in self.sites.spoiled.unreported:
            self.broken("I7", "reported", told)
        for told in self.sites.credentials.broken if self.sites.credentials is not None else ():
            self.broken("internal", "credentials", told)
        for told in self.sites.mute:
            self.broken("internal", "processes", told)
        for told in self.files.broken if self.files else ():
            self.broken("P1", "processes", told)
        for site in SITES:
            for told in self.sites.unforeseen(site):
                checker = "invariants" if InvariantBroken.__name__ in told else "processes"
                self.broken("internal", checker, f"Site {site} met an error that it does not know: {told}")
