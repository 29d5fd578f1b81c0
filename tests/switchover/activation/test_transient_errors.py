"""Changes of roles while calls of a (simulated) DFS fail: they do not stop for single ones, and stop in time for all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from chaos.simulate.plan import parse
from chaos.simulate.twins.dfs import DfsFault
from chaos.simulate.twins.loop import VirtualLoop
from chaos.simulate.world import World, until
from remote_log.dfs.retrying import RETRY_FOR_S
from tests.chaos.simulate.on_virtual_loop import run
from tests.pair.pair_rig import TABLE

ASKED = ("list", "read", "is_closed", "recover_lease", "create_file", "delete")
NOT_DONE = DfsFault(done=0.0)
DONE_BUT_UNSAID = DfsFault(done=1.0)


Faulty = Callable[[str], DfsFault | None]


class Rig:
    """Site a is the active, b is to be; `faults` are of the DFS beside `at`, as of the command."""

    def __init__(self) -> None:
        self.loop = VirtualLoop()
        self.world = World(parse("seed 1\n"), self.loop)
        self.failed: Counter[str] = Counter()
        self.took_s = 0.0

    def run(self, kind: str, at: str, faults: Faulty) -> dict[str, Any]:
        """The operation at its end. A failover begins with the death of a."""
        return run(self.loop, self._change(kind, at, faults))

    async def _change(self, kind: str, at: str, faults: Faulty) -> dict[str, Any]:
        world = self.world
        for name in "ab":
            world.boot(name)
        assert await until(lambda: self._role("a") == "ACTIVE" and self._role("b") == "STANDBY", 60.0)
        active, standby = world.alive("a"), world.alive("b")
        assert active is not None
        assert active.service is not None
        assert standby is not None
        assert standby.operations is not None
        await active.process.spawn(active.service.tables.create(TABLE))
        if kind == "failover":
            world.kill("a", machine=True)
        operations = standby.operations

        async def operate() -> dict[str, Any]:
            document = await operations.start(kind, "b", {}, False, "test")
            world.machines[at].dfs.next_fault = faults  # type: ignore[method-assign]
            begun_s = self.loop.now_s
            seen = [document async for document in operations.follow(document.id)]
            self.took_s = self.loop.now_s - begun_s
            return seen[-1]

        try:
            return await standby.process.spawn(operate())
        finally:
            for name in "ab":
                world.kill(name, machine=False)

    def _role(self, name: str) -> str:
        life = self.world.alive(name)
        return str(life.site.role) if life is not None and life.site is not None else "down"


def every_second(failed: Counter[str], operations: tuple[str, ...], fault: DfsFault) -> Faulty:
    """The first, the third, ... of each kind of call fails; `failed` counts them."""
    calls = Counter[str]()

    def faults(operation: str) -> DfsFault | None:
        calls[operation] += operation in operations
        if calls[operation] % 2 == 0:
            return None
        failed[operation] += 1
        return fault

    return faults


BOTH = pytest.mark.parametrize("fault", [NOT_DONE, DONE_BUT_UNSAID], ids=["not done", "done, but the answer is lost"])


@BOTH
def test_a_takeover_goes_on_when_every_second_call_fails(fault: DfsFault) -> None:
    """Each of its questions, from the first listing of the claims to the last deletion, meets a failure before its answer."""
    rig, failed = Rig(), Counter[str]()
    ended = rig.run("failover", "b", every_second(failed, ASKED, fault))
    assert ended.state == "succeeded", ended
    assert set(failed) == set(ASKED)


@BOTH
def test_a_switchover_goes_on_when_its_new_remote_log_is_hard_to_begin(fault: DfsFault) -> None:
    """The claim at the other site's DFS, the first segment there, and what goes into it before the opening."""
    rig, failed = Rig(), Counter[str]()
    second = every_second(failed, ("create_file",), fault)

    def and_the_first(operation: str) -> DfsFault | None:
        """A new segment takes several calls in a row: it would never be begun if every second of them failed."""
        if operation not in ("list", "create", "append"):
            return second(operation)
        failed[operation] += 1
        return fault if failed[operation] == 1 else None

    ended = rig.run("switchover", "a", and_the_first)
    assert ended.state == "succeeded", ended
    assert set(failed) == {"list", "create_file", "create", "append"}


def test_a_dfs_that_fails_for_good_is_named_in_time() -> None:
    """And the pair is as it was: the active may go on, the command may be given again."""
    rig = Rig()
    ended = rig.run("failover", "b", lambda operation: NOT_DONE if operation in ASKED else None)
    assert (ended.state, ended.abortable) == ("failed", True), ended
    assert ended.error.code == "dfs-error"
    assert RETRY_FOR_S <= rig.took_s < RETRY_FOR_S + 2
    state = rig.world.watch.remembered
    assert state is not None
    assert state.switching is None
