"""One run: the pair is started, clients work, faults come and go, all is healed, and what was recorded is judged.

What always holds: a run is a function of its plan, and its trace (what happened, when) is the same to the byte wherever it
runs; after every run the pair must have become healthy again by itself, or by what the handbook asks of an operator.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NoReturn, get_args

import msgspec
import structlog

from chaos.checkers import check_all
from chaos.checkers.violation import Violation
from chaos.history.history import Call, History, Moment, Operation, Recorder
from chaos.history.lines import BarrierLine
from chaos.simulate.actors.again import Again
from chaos.simulate.actors.client import PATIENCE, SimClient
from chaos.simulate.actors.monitor import SimMonitor
from chaos.simulate.actors.nemesis import Nemesis
from chaos.simulate.actors.operator import Operator
from chaos.simulate.inside import left_inside
from chaos.simulate.limits import RECOVERY_S, limits_of
from chaos.simulate.looks.decisions import Decisions
from chaos.simulate.looks.dfs_calls import DfsCalls
from chaos.simulate.looks.health import said_at_rest
from chaos.simulate.looks.held import Hold, held
from chaos.simulate.looks.marks import Marks
from chaos.simulate.looks.messages import Messages
from chaos.simulate.looks.openers import Openers
from chaos.simulate.looks.plans import Plans
from chaos.simulate.looks.proofs import Proofs
from chaos.simulate.looks.risk import shown_at_rest
from chaos.simulate.observe import Observer, RegisterNotes, needless
from chaos.simulate.plan import FAULTS_END_S, SITES, STEP, SeedPlan
from chaos.simulate.twins.loop import Stuck, VirtualLoop
from chaos.simulate.twins.process import Process
from chaos.simulate.twins.steps import Steps
from chaos.simulate.world import OTHER, World, until
from chaos.workloads import WORKLOADS
from chaos.workloads.workload import Workload, creations
from gateway.service.documents import BarrierDocument, EngineName
from storage.invariants import watched
from twinlog.errors import TwinlogError

START_S = 60.0
DRAIN_S = 30.0
HELD_S = 30.0  # a request has ended by its deadline; what it holds goes when the log says what became of it
HELD_POLL_S = 0.07  # in step with none of the sites' rounds
CLIENTS_END_S = FAULTS_END_S + 5.0  # a pair that is down holds them up
STEPS_MAX = 3_000_000
IN_MEMORY = (Path("/dev/shm"),)  # files of engines are there, if it is: no disk is waited for
ENGINES = get_args(EngineName)
WHOLE = {"sync": "ACTIVE", "async": "DOWNGRADE_ACTIVE"}  # mode that is wanted -> the active's role then


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a run. `trace`: lines for people; `trace_hash`: of everything that happened."""

    plan: SeedPlan
    history: History
    violations: tuple[Violation, ...]
    trace: tuple[str, ...]
    trace_hash: str
    virtual_s: float
    operations: int
    faults: int


class Run:
    """`home`: an empty folder, for the files of real engines; without one they are in a temporary one, which is removed, and
    whose name begins with `prefix`."""

    def __init__(self, plan: SeedPlan, home: Path | None = None, prefix: str = "twinlog-simulate-") -> None:
        self.plan = plan
        self._made = None if home is not None or plan.knobs.engine == "simulated" else TemporaryDirectory(
            prefix=prefix, dir=next(filter(Path.is_dir, IN_MEMORY), None), ignore_cleanup_errors=True)
        self._mode = "async" if plan.knobs.policy == "performance" else "sync"
        self.loop = VirtualLoop()  # type: ignore[abstract]  # what is not there nobody may call
        self.recorder = Recorder()
        self.world = World(plan, self.loop, Path(self._made.name) if self._made is not None else home)
        if any(fault.kind == STEP.name for fault in plan.faults):
            self.world.steps = {site: Steps(self.note) for site in SITES}
        decisions = Decisions(self.world, self._once("P2", "decisions"))
        Plans(self.world, decisions, self._once("P10", "plans"))
        DfsCalls(self.world, decisions, self._once("P2", "dfs_calls"))
        Marks(self.world, decisions, self._once("P8", "marks"))
        Proofs(self.world, self._once("P2", "proofs"))
        messages = Messages(self.world, self._once("P4", "messages"))
        RegisterNotes(self.loop, self.recorder, self.world.watch, decisions.decided)
        waits = self._once("P3", "waits")
        self.observer = Observer(
            self.world, self.recorder, partial(self.broken, "internal", checker="inside"), waits, messages)
        Openers(self.world, partial(self.broken, "P2", checker="openers"))
        self.world.before_kill = self.observer.look
        self.world.heard = self.recorder.note
        self.world.before_wipe = self.observer.last_look
        self.operator = Operator(self.world, self.note, self._taken)
        self.nemesis = Nemesis(self.world, self.operator, self.note)
        self.monitor = SimMonitor(self.world, self.note)
        self.workload: Workload = WORKLOADS[plan.workload](self.world.stream("workload"))
        self.trace: list[str] = []
        self.violations: list[Violation] = []
        self._begun_s = 0.0
        self._again: list[Again] = []

    def note(self, what: str) -> None:
        self.trace.append(f"{self.loop.now_s:10.4f} {what}")

    def _taken(self, taken: BarrierDocument) -> None:
        if taken.engine not in ENGINES:
            self.broken("barriers", f"Barrier {taken.name} names an engine {taken.engine!r}, and there is none such.")
        self.recorder.note(BarrierLine(taken.name, taken.epoch, taken.seq, self.loop.now_s))

    def broken(self, promise: str, sentence: str, checker: str = "liveness") -> None:
        self.violations.append(Violation(promise, checker, sentence, (), (self.loop.now_s,)))

    def _once(self, promise: str, checker: str) -> Callable[[str], None]:
        """Returns what takes a sentence of a look, each one once."""
        said: set[str] = set()

        def say(sentence: str) -> None:
            if sentence not in said:
                said.add(sentence)
                self.broken(promise, sentence, checker)

        return say

    def execute(self) -> Result:
        """To the end, whatever happens."""
        try:
            return self._execute()
        finally:
            self.world.end()
            if self._made is not None:
                self._made.cleanup()

    def _execute(self) -> Result:
        internal: list[str] = []
        with quiet(internal), watched() as broken:
            try:
                self.loop.run(self._main(), steps_max=STEPS_MAX)
            except Stuck as error:
                self.broken("liveness", f"The run got stuck: {error}")
            except TwinlogError as error:
                self.broken("internal", f"What is stored cannot be read as a whole: {error}", "stored")
            for invariant in broken:
                self.broken("internal", f"An invariant is broken: {invariant}", "invariants")
            for untaken in self.loop.errors:
                self.broken("internal", f"Nobody took an exception: {untaken!r}", "errors")
            met = [*internal, *self._internal_steps()]  # before what still waits is closed, which complains
            self.loop.let_go()
            for told in met:
                self.broken("internal", f"The product met an error that it does not know: {told}", "errors")
            history = self.recorder.history()
            judged = [*self.violations, *check_all(history), *self.workload.judge(history)]
        return Result(
            self.plan, history, tuple(judged), tuple(self.trace), self._hash(history), self.loop.now_s,
            len(history.calls), len(self.plan.faults),
        )

    def _internal_steps(self) -> list[str]:
        """Steps of role changes that ended in such an error: the journals name it, and no log does."""
        return [
            f"{operation.kind}: {operation.error.message}" for site in SITES
            for operation in self.world.machines[site].journal.all()
            if operation.error is not None and operation.error.code == "internal"
        ]

    def _hash(self, history: History) -> str:
        digest, encode = hashlib.blake2b(digest_size=16), msgspec.msgpack.Encoder().encode
        digest.update(repr(self.loop.now_s).encode())
        digest.update("".join(self.trace).encode())
        digest.update(b"".join([encode(recorded) for recorded in history.lines()]))
        return digest.hexdigest()

    # ---- the course of a run
    async def _main(self) -> None:
        self.recorder.note(limits_of(self.plan))
        for use in self.workload.tables:
            self.recorder.note(use)
        for site in SITES:
            self.world.boot(site)
        sampling = self.loop.create_task(self.observer.sample())
        if not await until(self.is_healthy, START_S):
            self.broken("liveness", f"The pair did not start in {START_S} s: {self.describe()}")
            return
        await self._tables()
        if self._mode == "async":
            await self._drained()  # a table that only a lost site had leaves no name for the rows in its quarantine
        self._begun_s = self.loop.now_s
        watching = self.loop.create_task(self.monitor.keep()) if self.plan.knobs.monitor != "off" else None
        users = [self._spawn(f"client{number}", number) for number in range(self.plan.clients)]
        await self.nemesis.run(self.plan.faults)
        for user in users:
            await user
        await self.operator.idle()
        await self._recover()
        if watching is not None:
            watching.cancel()
            self.monitor.stop()
        sampling.cancel()

    def _spawn(self, name: str, number: int) -> asyncio.Task[None]:
        return Process(name).spawn(self._use(name, number))

    async def _tables(self) -> None:
        client = SimClient(self.world, "maker", self.world.stream("maker"))
        for operation in creations(self.workload):
            await self._ask(client, "maker", operation)

    async def _use(self, name: str, number: int) -> None:
        """Runs one client."""
        chance = self.world.stream(name)
        client = SimClient(self.world, name, chance)
        again = Again(self.world, self.recorder, client, name)
        self._again.append(again)
        for asked in range(number, self.plan.operations, self.plan.clients):
            await asyncio.sleep(chance.expovariate(1 / self.plan.knobs.op_interval_s))
            if self.loop.now_s > self._begun_s + CLIENTS_END_S:
                return
            operation = self.workload.next(name)
            if asked not in self.plan.skipped:
                again.keep(await self._ask(client, name, operation, learn=True))
                await again.come_back()
                await again.ask_another()

    async def _ask(self, client: SimClient, name: str, operation: Operation, *, learn: bool = False) -> Call:
        now_s = self.loop.now_s
        deadline_s = None if operation.kind == "scan" else now_s + PATIENCE.deadline_s  # a scan has one for each page
        call = self.recorder.begin(name, operation, now_s, deadline_s)
        outcome = await client.execute(operation)
        ended = self.recorder.end(call, outcome, self.loop.now_s)
        if learn:
            self.workload.learn(name, operation, outcome)
        return ended

    # ---- the end of a run
    async def _recover(self) -> None:
        self.nemesis.heal_all()
        self.note("healed")
        self.recorder.note(Moment("healed", self.loop.now_s))
        if not await self.operator.on_call(self.is_healthy, RECOVERY_S):
            self.broken("liveness", f"The pair did not become healthy in {RECOVERY_S} s after all faults: {self.describe()}")
            return
        self.note("recovered")
        self.recorder.note(Moment("recovered", self.loop.now_s))
        await self._read_all()
        last = await self._last_barrier()
        if not await until(lambda: not self._without(last), DRAIN_S, 0.05):  # its rows are there before it is kept
            self.broken("barriers", f"Site {' and '.join(self._without(last))} of a healthy pair does not hold barrier {last}.")
        if not await self._drained():
            self.broken("liveness", f"The sites did not become equal and durable in {DRAIN_S} s: {self.describe()}")
            return
        self.recorder.note(Moment("drained", self.loop.now_s))
        for again in self._again:
            again.ask_last()
        left = set(self._left())

        def is_nothing_left() -> bool:
            left.intersection_update(self._left())
            return not left

        await until(is_nothing_left, HELD_S, 0.05)
        for sentence in sorted(left):
            self.broken("internal", sentence, "inside")
        await self._check_released()
        for site in SITES:
            self.loop.pause(self.world.lives[site].process)  # nothing moves while everything is read
        await self.observer.final(str(self.world.find("active")))
        self.recorder.note(Moment("ended", self.loop.now_s))

    async def _last_barrier(self) -> str:
        """Its name, if barriers are taken in this run: both sites must hold this one."""
        if all(fault.kind != "barrier" for fault in self.plan.faults):
            return ""
        await self._drained()  # a site that is still to be filled meets no barrier
        self.operator.command("barrier", str(self.world.find("active")))
        await self.operator.idle()
        barriers = self.recorder.history().barriers
        if not barriers:
            self.broken("barriers", "A healthy pair takes no barrier.")
        return barriers[-1].name if barriers else ""

    def _without(self, barrier: str) -> list[str]:
        """The sites that do not hold it."""
        return [
            site for site in SITES
            if barrier not in ("", *(kept.name for kept in self.world.machines[site].engine.kept_snapshots()))
        ]

    async def _read_all(self) -> None:
        """Every table as clients see it now: what was unknown is settled."""
        client = SimClient(self.world, "reader", self.world.stream("reader"))
        for use in self.workload.tables:
            await self._ask(client, "reader", Operation("scan", use.name))

    def is_healthy(self) -> bool:
        """One active in the mode that the policy wants, with a proof of late that it is not fenced, the other one its standby
        that holds everything, and no plan under way. No database refuses what its site has yet to apply."""
        state = self.world.watch.value
        if any(self.world.machines[site].engine.has_refusal_ahead for site in SITES):
            return False
        if state is None or state.active is None or state.switching is not None or state.mode != self._mode:
            return False
        one, other = self.world.alive(state.active), self.world.alive(OTHER[state.active])
        if one is None or other is None or one.site is None or other.site is None:
            return False
        if one.site.role != WHOLE[self._mode] or other.site.role != "STANDBY" or other.site.sink.needs_base:
            return False
        busy = [life.operations is not None and life.operations.running_id for life in (one, other)]
        return not any(busy) and self.operator.has_proof(one.site) and other.site.takeover_blocker() is None

    async def _check_released(self) -> None:
        """Things that are held at one look after the other have leaked: nothing is under way that lasts so long."""
        leaked = self._held()

        def is_nothing_left() -> bool:
            there = self._held()
            for hold in [hold for hold in leaked if hold not in there]:
                del leaked[hold]
            return not leaked

        await until(is_nothing_left, HELD_S, HELD_POLL_S)
        for what in sorted(set(leaked.values())):
            self.broken("I8", f"Nothing is under way, and {what} is still held.", "held")
        await self._drained()

    def _held(self) -> dict[Hold, str]:
        found: dict[Hold, str] = {}
        for site in SITES:
            if (life := self.world.alive(site)) is not None:
                found |= held(life, self.world.open_by(site, life.process))
        return found

    def _left(self) -> list[str]:
        lives = [self.world.alive(site) for site in SITES]
        sites = [life.site for life in lives if life is not None and life.site is not None]
        return [found for site in sites for found in (*left_inside(site), *shown_at_rest(site), *said_at_rest(site))]

    async def _drained(self) -> bool:
        target = max(self.world.machines[site].engine.applied.seq for site in SITES)
        return await until(lambda: self._is_drained(target), DRAIN_S, 0.05)

    def _is_drained(self, target: int) -> bool:
        """All that clients wrote is durable at both sites, and the remote log, if there is one, holds nothing needless."""
        active = self.world.find("active")
        one = self.world.alive(active) if active is not None else None
        epoch = one.site.active_epoch if one is not None and one.site is not None else None
        if epoch is None or (epoch.remote is None and self._mode == "sync"):
            return False
        engines = [self.world.machines[site].engine for site in SITES]
        durable = all(engine.durable_seq >= target for engine in engines)
        equal = engines[0].applied.seq == engines[1].applied.seq  # an idle active still writes noops
        begun = [segment for segment in epoch.remote.segments if segment.begun] if epoch.remote else []  # one is made ahead
        return durable and equal and not needless(begun, self.world.machines[OTHER[str(active)]].engine.durable_seq)

    def describe(self) -> str:
        """The sites in a line, for people."""
        parts = []
        for name in SITES:
            life = self.world.alive(name)
            if life is None or life.site is None:
                parts.append(f"{name}: down")
                continue
            site = life.site
            remote = site.active_epoch.remote if site.active_epoch is not None else None
            segments = f", {len(remote.segments)} remote segments" if remote is not None else ""
            parts.append(f"{name}: {site.role} epoch {site.epoch} {site.mode}{segments}, waits for {site.waiting_for}")
        state = self.world.watch.value
        return "; ".join(parts) + f"; register: {state.reason if state is not None else 'no value'}; " + ", ".join(
            f"{site} applied {engine.applied.seq} durable {engine.durable_seq}"
            for site in SITES for engine in [self.world.machines[site].engine]
        )


def collect() -> None:
    """Let the tasks of killed processes go. Their `finally` blocks run now, to no effect, and may complain."""
    with quiet([]):
        gc.collect()


@contextmanager
def quiet(internal: list[str]) -> Iterator[None]:
    """No log line, and no word about the tasks of processes that were killed: they end with the run. What the product logs
    with a traceback it had not foreseen, and survived: that goes to `internal`."""
    def keep(_: object, __: str, event: MutableMapping[str, Any]) -> NoReturn:
        lines = str(event.get("traceback") or "").strip().splitlines()
        if lines and not lines[-1].startswith("twinlog.errors."):
            internal.append(f"{event.get('event')}: {' | '.join(line.strip() for line in lines[-3:])}")
        raise structlog.DropEvent

    def keep_of_server(record: logging.LogRecord) -> bool:
        """uvicorn's word of an exception that left the application: the client saw at most a broken connection."""
        if record.exc_info:
            internal.append(f"{record.getMessage()}: {record.exc_info[1]!r}")
        return False

    server_log = logging.getLogger("uvicorn.error")
    server_log.addFilter(keep_of_server)
    logging_before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR), processors=[keep])
    hook: Any = sys.unraisablehook
    sys.unraisablehook = lambda _: None
    collecting = gc.isenabled()
    gc.disable()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            yield
        finally:
            structlog.configure(**logging_before)
            server_log.removeFilter(keep_of_server)
            sys.unraisablehook = hook
            if collecting:
                gc.enable()
