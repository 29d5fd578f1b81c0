"""Does to the world what the plan's faults say, at their times, and undoes it afterwards.

What always holds: each kind of fault of plan.py has exactly one deed here; "active" and "standby" mean the site of that
role at the moment of the fault; when `heal_all` has run no fault is left and every site has a process that runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from chaos.fault_lines import Fault
from chaos.simulate.actors.disasters import Disasters
from chaos.simulate.actors.liar import Liar
from chaos.simulate.actors.operator import Operator
from chaos.simulate.plan import SITES
from chaos.simulate.twins.dfs import DfsFault
from chaos.simulate.twins.process import Process
from chaos.simulate.twins.steps import Trap
from chaos.simulate.world import OTHER, World

Undo = Callable[[], None]
COMMANDS = ("failover", "switchover", "rejoin", "degrade", "resync", "abort", "resume", "barrier")
Landed = {"none": "nothing", "part": "part", "all": "all"}
DONE = {"none": 0.0, "part": None, "flipped": 1.0, "all": 1.0}
SLOW_LINK_S, SLOW = 0.3, 50.0
DOWN_S = 0.3  # how long a site is down at least when its crash is to be mended at once


class Nemesis:
    """`note` gets each deed, for the trace."""

    def __init__(self, world: World, operator: Operator, note: Callable[[str], None]) -> None:
        self._world, self._operator, self._note = world, operator, note
        self._chance = world.stream("nemesis")
        liar = Liar(world, note)
        self._deeds: dict[str, Callable[[str, Fault], Undo | None]] = {
            "crash": self._crash, "pause": self._pause, "cut": self._cut, "isolate": self._isolate,
            "slow-link": self._slow_link, "fail-sync": self._fail_sync, "hang-disk": self._hang_disk,
            "slow-disk": self._slow_disk, "full-disk": self._full_disk, "fail-append": self._fail_append,
            "hang-dfs": self._hang_dfs, "dfs-down": self._dfs_down, "crash-dfs": self._crash_dfs,
            "slow-recovery": self._slow_recovery,
            "stuck-recovery": self._stuck_recovery, "witness-down": self._witness_down,
            "jump": self._jump, "engine-fails": self._engine_fails,
            "refuse-change": self._refuse_change, "at-step": self._at_step,
            "lie": liar.lie, "false-answer": liar.answer_falsely, **dict.fromkeys(COMMANDS, self._command),
            **Disasters(world, note, self._boot).deeds(),
        }

    async def run(self, faults: tuple[Fault, ...]) -> None:
        """All faults, each at its time, and their ends."""
        loop = asyncio.get_running_loop()
        begin_s = loop.time()
        ends = []
        for fault in faults:
            await asyncio.sleep(max(0.0, begin_s + fault.at_s - loop.time()))
            undo = self._do(fault)
            if undo is not None:
                ends.append(loop.create_task(self._undo(fault, undo)))
        for end in ends:
            await end

    def _do(self, fault: Fault) -> Undo | None:
        target = self._world.find(fault.target)
        if target is None:
            self._note(f"{fault.kind} {fault.target}: there is none")
            return None
        self._note(f"{fault.kind} {target} {fault.how}")
        return self._deeds[fault.kind](target, fault)

    async def _undo(self, fault: Fault, undo: Undo) -> None:
        await asyncio.sleep(fault.for_s)
        self._note(f"{fault.kind} {fault.target} ends")
        undo()

    def heal_all(self) -> None:
        """No fault is left."""
        world = self._world
        world.network.heal()
        world.set_links(well=True)
        world.register.down = False
        for steps in world.steps.values():
            steps.clear()
        for site in SITES:
            here = world.machines[site]
            here.disk.heal()
            here.dfs.heal()
            here.engine.repair()
            self._boot(site)
            life = world.lives[site]
            if life.process.paused:
                world.loop.go_on(life.process)

    # ---- processes
    def _crash(self, site: str, fault: Fault) -> Undo:
        self._world.kill(site, machine=fault.how == "machine")
        return partial(self._boot, site)

    def _boot(self, site: str) -> None:
        if self._world.lives[site].process.killed:
            self._world.boot(site)

    def _pause(self, site: str, fault: Fault) -> Undo | None:
        process = self._world.lives[site].process
        if process.killed or process.paused:
            return None
        self._world.loop.pause(process)
        return partial(self._world.loop.go_on, process)

    def _at_step(self, site: str, fault: Fault) -> Undo:
        """Sets a trap at a step; what it does there ends after the fault's time, or when all is healed."""
        deed, nth, point = fault.how.split(":")
        traps = {
            "crash": partial(self._strike_down, fault.for_s, False),
            "machine": partial(self._strike_down, fault.for_s, True),
            "pause": partial(self._strike_still, fault.for_s), "cut": partial(self._strike_apart, fault.for_s),
        }
        delay_s = fault.for_s if deed == "late" else 0.0
        trap = Trap(point, int(nth), traps.get(deed), delay_s, deed == "fail")
        for name in SITES if site == "any" else (site,):
            self._world.steps[name].arm(trap)
        return lambda: None

    def _strike_down(self, for_s: float, machine: bool, process: Process) -> None:
        site = next((name for name, life in self._world.lives.items() if life.process is process), None)
        if site is not None:
            self._world.kill(site, machine=machine)
            self._world.loop.outside(for_s, self._boot, site)

    def _strike_still(self, for_s: float, process: Process) -> None:
        self._world.loop.pause(process)
        self._world.loop.outside(for_s, self._world.loop.go_on, process)

    def _strike_apart(self, for_s: float, process: Process) -> None:
        self._world.loop.outside(for_s, self._cut_ways([("a", "b"), ("b", "a")], "silent"))

    # ---- network
    def _cut(self, target: str, fault: Fault) -> Undo:
        how: Any = self._chance.choice(("silent", "refused"))
        ways = [(target[0], target[2])] if target[1] == ">" else [(target[0], target[2]), (target[2], target[0])]
        return self._cut_ways(ways, how)

    def _cut_ways(self, ways: list[tuple[str, str]], how: Any) -> Undo:
        network = self._world.network
        for src, dst in ways:
            network.cut(src, dst, how)

        def heal() -> None:
            for src, dst in ways:
                network.heal(src, dst)

        return heal

    def _isolate(self, site: str, fault: Fault) -> Undo:
        """From the other site and the witness, and from the clients or not."""
        others = [OTHER[site], "w", *("c" if fault.how == "from-all" else "")]
        how: Any = self._chance.choice(("silent", "refused"))
        ways = [way for other in others for way in ((site, other), (other, site))]
        return self._cut_ways(ways, how)

    def _slow_link(self, target: str, fault: Fault) -> Undo:
        for link in self._world.network.between(target[0], target[2]):
            link.jitter_s += SLOW_LINK_S
        return self._world.set_links

    # ---- disk and storage
    def _fail_sync(self, site: str, fault: Fault) -> None:
        landed: Any = Landed[fault.how]
        self._world.machines[site].disk.fail_syncs(1, landed)

    def _hang_disk(self, site: str, fault: Fault) -> Undo:
        self._world.machines[site].disk.hang()
        return partial(self._heal_disk, site)

    def _slow_disk(self, site: str, fault: Fault) -> Undo:
        self._world.machines[site].disk.slow = SLOW
        return partial(self._heal_disk, site)

    def _full_disk(self, site: str, fault: Fault) -> Undo:
        self._world.machines[site].disk.full = True
        return partial(self._heal_disk, site)

    def _heal_disk(self, site: str) -> None:
        self._world.machines[site].disk.heal()
        self._world.machines[site].disk.slow = self._world.plan.knobs.disk_slow

    def _refuse_change(self, site: str, fault: Fault) -> None:
        self._world.machines[site].engine.refuse_next_change()

    def _engine_fails(self, site: str, fault: Fault) -> Undo:
        engine = self._world.machines[site].engine
        engine.break_down("the disk is full")
        return engine.repair

    # ---- DFS and witness
    def _fail_append(self, site: str, fault: Fault) -> None:
        self._world.machines[site].dfs.arm("append", DfsFault(done=DONE[fault.how], flips=fault.how == "flipped"))

    def _hang_dfs(self, site: str, fault: Fault) -> Undo:
        self._world.machines[site].dfs.hang()
        return self._world.machines[site].dfs.heal

    def _dfs_down(self, site: str, fault: Fault) -> Undo:
        self._world.machines[site].dfs.down = True
        return self._world.machines[site].dfs.heal

    def _crash_dfs(self, site: str, fault: Fault) -> Undo:
        self._world.machines[site].dfs.arm("append", DfsFault(crashes=True))
        return self._world.machines[site].dfs.heal

    def _slow_recovery(self, site: str, fault: Fault) -> Undo:
        self._world.machines[site].dfs.recovery_s = (2.0, 2.0)
        return self._world.machines[site].dfs.heal

    def _stuck_recovery(self, site: str, fault: Fault) -> Undo:
        self._world.machines[site].dfs.stick_recovery()
        return self._world.machines[site].dfs.heal

    def _witness_down(self, _: str, fault: Fault) -> Undo:
        self._world.register.down = True

        def up() -> None:
            self._world.register.down = False

        return up

    def _jump(self, site: str, fault: Fault) -> None:
        self._world.machines[site].clock.jump(float(fault.how) * 1000)

    # ---- people
    def _command(self, site: str, fault: Fault) -> None:
        target = OTHER[site] if fault.kind == "rejoin" and self._world.find("active") == site else site
        self._operator.command(fault.kind, target, accept_data_loss=fault.how == "accept-data-loss")
