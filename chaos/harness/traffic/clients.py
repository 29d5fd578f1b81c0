"""The clients of a run: those that follow the active, and some stubborn ones for each site.

What always holds: everything that they ask and hear is recorded; one operation of a client ends before its next one begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from random import Random

from chaos.harness.plan import HarnessPlan
from chaos.harness.traffic.client import ROAMING, RealClient
from chaos.history.history import Ack, Call, History, Operation, Outcome, Recorder
from chaos.workloads.workload import Workload, creations
from twinlog.errors import Unavailable
from twinlog.flow import Patience
from twinlog.wire.tls import Tls

STUBBORN = "stubborn-"  # begins the names of clients with one address: what they hear says nothing of the service
MAKER, READER = "maker", "reader"  # of the tables at the beginning, of everything at the end
STUBBORN_CLIENTS = 4  # of each site; every second one only reads, so that a site that is stopped has reads to answer
LOOK_DRAWS = 50
STUBBORN_PAUSE_S = 0.5
STUBBORN_MORE_S = 3.0  # than the longest pause


class Traffic:
    """`prefix` begins the names of all tables at the sites; the history has them without it. `tls`, `token`: as of a Client."""

    def __init__(
        self, plan: HarnessPlan, workload: Workload, urls: Mapping[str, str], recorder: Recorder, now_s: Callable[[], float],
        prefix: str = "", tls: Tls | None = None, token: str | None = None,
    ) -> None:
        self._tls, self._token = tls, token
        self._plan, self._workload, self._recorder, self._now_s, self._prefix = plan, workload, recorder, now_s, prefix
        self._urls = urls
        self._pause_s = plan.clients / plan.rate
        paused = [fault.for_s for fault in plan.faults if fault.kind == "pause"]
        self._stubborn = _patient(max(paused, default=0.0) + STUBBORN_MORE_S)
        self._ended = asyncio.Event()
        self.acknowledged: tuple[int, Ack] | None = None  # the newest one, with its call
        self._clients: list[RealClient] = []

    def _client(self, name: str, urls: Mapping[str, str], patience: Patience) -> RealClient:
        chance = Random(f"{self._plan.seed} {name}")
        client = RealClient(name, urls, patience, chance, self._prefix, self._tls, self._token)
        self._clients.append(client)
        return client

    async def make_tables(self) -> None:
        """Raises Unavailable when one cannot be made."""
        maker = self._client(MAKER, self._urls, ROAMING)
        for use, operation in zip(self._workload.tables, creations(self._workload), strict=True):
            self._recorder.note(use)
            outcome = await self._ask(maker, MAKER, operation)
            if outcome.result != "ok":
                raise Unavailable(f"table {use.name} cannot be made: {outcome.result} {outcome.error}")

    async def run(self) -> None:
        """Until `stop`, and until what was asked by then has ended."""
        async with asyncio.TaskGroup() as group:
            for number in range(self._plan.clients):
                name = f"client{number}"
                group.create_task(self._use(self._client(name, self._urls, ROAMING), name, self._pause_s))
            for site, url in self._urls.items():
                for number in range(STUBBORN_CLIENTS):
                    name, looks = f"{STUBBORN}{site}{number}", number % 2 == 0
                    client = self._client(name, {site: url}, self._stubborn)
                    group.create_task(self._use(client, name, STUBBORN_PAUSE_S, looks_only=looks))

    def stop(self) -> None:
        self._ended.set()

    async def read_all(self) -> None:
        """Every table as clients see it now."""
        reader = self._client(READER, self._urls, ROAMING)
        for use in self._workload.tables:
            await self._ask(reader, READER, Operation("scan", use.name))

    async def close(self) -> None:
        for client in self._clients:
            await client.close()

    async def _use(self, client: RealClient, name: str, pause_s: float, *, looks_only: bool = False) -> None:
        chance = Random(f"{self._plan.seed} pauses {name}")
        while not self._ended.is_set():
            operation = self._look(name) if looks_only else self._workload.next(name)
            outcome = await self._ask(client, name, operation)
            self._workload.learn(name, operation, outcome)
            await asyncio.sleep(chance.expovariate(1 / pause_s))

    def _look(self, name: str) -> Operation:
        """Returns the next operation that changes nothing, if one comes soon: what is drawn before it is never asked."""
        for _ in range(LOOK_DRAWS):
            operation = self._workload.next(name)
            if operation.kind in ("read", "scan"):
                break
        return operation

    async def _ask(self, client: RealClient, name: str, operation: Operation) -> Outcome:
        now_s = self._now_s()
        deadline_s = None if operation.kind == "scan" else now_s + client.patience.deadline_s  # a scan has one for each page
        call = self._recorder.begin(name, operation, now_s, deadline_s)
        outcome = await client.execute(operation)
        self._recorder.end(call, outcome, self._now_s())
        if outcome.ack is not None:
            self.acknowledged = call, outcome.ack
        return outcome


def _patient(wait_s: float) -> Patience:
    """The patience of a client that waits for a site through its longest pause."""
    return Patience(wait_s, attempt_timeout_s=wait_s, probe_timeout_s=wait_s, retry_first_s=0.5, retry_max_s=1.0)


def served(history: History) -> list[Call]:
    """The calls of clients that follow the active, without the harness's own at the beginning and at the end."""
    return [
        call for call in history.calls
        if call.outcome is not None and not call.process.startswith(STUBBORN) and call.process not in (MAKER, READER)
    ]
