"""The look at each value of the register as it is decided: whether the protocol leads there, and whether what it says is so.

What always holds: the rules are those of protocol.md sections 5 and 6, and none asks the product's own (transitions.py); what
is so is read from bytes, storages and journals at this very moment. Values of two lines that are brought together follow
rules of their own, and are not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain

from chaos.simulate.copies import Segments, frames_of, reached_there
from chaos.simulate.plan import SITES
from chaos.simulate.world import DRIFT_MARGIN, OTHER, PAIR, World
from remote_log.layout import RemoteLayout, SegmentName
from storage.prefix import needs_base
from switchover.operations.document import Operation
from switchover.register.port import PairState, Switching
from switchover.rejoin import ASYNC_EPOCH

ROUNDING_S = 1e-6
Said = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Given:
    """An epoch that the register gave to a plan. A register that went back gives one again."""

    plan_id: str
    at_s: float


class Decisions:
    """`given`: by epoch and site, to its newest plan. `broken` takes a sentence for each value that must not be."""

    def __init__(self, world: World, broken: Said) -> None:
        self._world, self._broken, self._layout = world, broken, RemoteLayout(PAIR)
        self._numbers = {0}
        self._async: set[int] = set()  # epochs that were degraded
        self._read: Segments = {}
        # of each DFS and epoch: when the newest append that succeeded was asked for, by the clock of that site
        self._appends: dict[str, dict[int, float]] = {site: {} for site in SITES}
        self.given: dict[tuple[int, str], Given] = {}
        self.renewed_s: list[float] = []
        self.synced_s: dict[int, float] = {}  # of each epoch: when it was last declared synchronous again
        for site in SITES:
            world.machines[site].dfs.landed = partial(self._landed, site)

    def _landed(self, site: str, path: str, asked_s: float) -> None:
        name, world = self._layout.parse(path), self._world
        if isinstance(name, SegmentName):
            clock = world.machines[site].clock
            shown_s = clock.monotonic_s() - (world.loop.now_s - asked_s) * clock.rate
            last = self._appends[site]
            last[name.epoch] = max(last.get(name.epoch, shown_s), shown_s)

    def decided(self, before: PairState | None, value: PairState, author: str) -> None:
        """A value was decided at the register by a gateway of `author`; `before`: what stood in the same place."""
        if value.state_id - 1 not in self._numbers:
            self._broken(f"The register's value {value.state_id} follows none that was ever decided.")
        self._numbers.add(value.state_id)
        plan = value.switching
        if plan is not None:
            given = self.given.get((plan.epoch, plan.site))
            if given is None or given.plan_id != plan.plan_id:
                self.given[plan.epoch, plan.site] = Given(plan.plan_id, self._world.loop.now_s)
        old = before or PairState()
        if value.lease_beats != old.lease_beats:
            self.renewed_s.append(self._world.loop.now_s)
        if value.state_id != old.state_id + 1 or value.home_forced != old.home_forced:
            return
        for sentence in chain(
            self._plan_lost(old, value, author), self._begun(old, value), self._opened(old, value), self._mode(old, value)
        ):
            self._broken(sentence)

    def _plan_lost(self, old: PairState, value: PairState, author: str) -> Iterator[str]:
        """A plan loses the pair by its own site, or to another plan; and with one register in one place by nobody else."""
        plan = old.switching
        if plan is None or value.switching is not None or value.opened_by == plan.plan_id or value.home is not None:
            return
        if author != plan.site:
            yield f"The plan of site {plan.site} for epoch {plan.epoch} lost the pair by site {author}, which has none."

    def _begun(self, old: PairState, value: PairState) -> Iterator[str]:
        plan = value.switching
        if plan is None or (old.switching is not None and old.switching.plan_id == plan.plan_id):
            return
        running = self._running(plan.site)
        gives_up = plan.kind == "takeover" and old.mode == "async" and old.active not in (None, plan.site)
        if gives_up and running is not None and running.options.get("accept_data_loss") is None:
            yield f"Site {plan.site} begins to take over from the asynchronous {old.active}, and nobody accepted a loss."

    def _opened(self, old: PairState, value: PairState) -> Iterator[str]:
        plan, site = old.switching, value.active
        if plan is None or site is None or value.opened_by != plan.plan_id:
            return
        end, has_stopped = self._stopped(site) if plan.kind == "switchover" else (-1, False)
        if plan.kind in ("takeover", "switchover") and old.mode == "sync" and not has_stopped:
            yield from self._waited(plan, value)
        by_choice = self._world.plan.knobs.policy == "performance"
        is_apart = plan.kind == "switchover" and (old.mode, value.mode) == ("sync", "async") and not by_choice
        if is_apart and value.async_since_seq is not None and end >= value.async_since_seq:
            yield f"Site {site} opens asynchronously, and site {OTHER[site]} stopped with all of it on its disk."
        if plan.kind == "restart" and value.mode == "sync":
            yield from self._copied_again(site, value.epoch)

    def _waited(self, plan: Switching, value: PairState) -> Iterator[str]:
        """Since the last append that succeeded in an older epoch, a lease and its margin have passed by the opener's clock."""
        appends = [at_s for epoch, at_s in self._appends[plan.site].items() if epoch < value.epoch]
        lease_s = self._world.plan.knobs.lease_s * (1 + DRIFT_MARGIN)
        waited_s = self._world.machines[plan.site].clock.monotonic_s() - max(appends, default=-lease_s)
        if waited_s < lease_s - ROUNDING_S:
            yield (f"Site {plan.site} opens epoch {value.epoch} {waited_s:.4f} s after an append of the old active, which may "
                   f"serve for {lease_s:.4f} s from then on.")

    def _copied_again(self, site: str, epoch: int) -> Iterator[str]:
        """A restart copies what the remote log lacks. Where that is damaged nobody knows what it has."""
        there = self._world.machines[OTHER[site]]
        if there.is_rotten()[1]:
            return
        held: dict[tuple[int, int], str] = {}
        for path in sorted(there.dfs.files):
            name = self._layout.parse(path)
            if isinstance(name, SegmentName) and name.epoch <= epoch:
                for frame in frames_of(self._read, OTHER[site], path, there.dfs.files[path].data):
                    first = held.setdefault(frame.position, path)
                    if name.epoch == epoch and self._layout.parse(first).epoch < epoch:  # type: ignore[union-attr]
                        yield f"Site {site} copied frame {frame.position} to {path}, and {first} has it."
                        return

    def _mode(self, old: PairState, value: PairState) -> Iterator[str]:
        site = value.active
        if site is None or (value.epoch, value.active) != (old.epoch, old.active) or value.opened_by != old.opened_by:
            return
        world = self._world
        if (old.mode, value.mode) == ("async", "async") and old.beat is not None and value.switching == old.switching:
            told = None if value.beat is None else value.beat.committed_seq
            if value.async_since_seq == old.async_since_seq and (told is None or told < old.beat.committed_seq):
                yield f"Site {site} has reported {old.beat.committed_seq} to the register, which knows of {told} behind that."
        if (old.mode, value.mode) == ("sync", "async"):
            if value.beat is not None:
                yield f"Site {site} degrades epoch {value.epoch}, and the register keeps a word of before."
            is_first = value.epoch not in self._async and value.home is None  # a later one may find the note of an earlier one
            self._async.add(value.epoch)
            if is_first and int(world.machines[site].engine.meta(ASYNC_EPOCH) or b"0") == value.epoch:
                yield f"Site {site} noted epoch {value.epoch} as asynchronous before the register did."
        if (old.mode, value.mode) == ("async", "sync"):
            self.synced_s[value.epoch] = world.loop.now_s
            yield from self._resynced(site, value.epoch)

    def _resynced(self, site: str, epoch: int) -> Iterator[str]:
        """The other site has everything, without this one."""
        life, there = self._world.alive(site), self._world.machines[OTHER[site]]
        opened = life.site.active_epoch if life is not None and life.site is not None else None
        if opened is None or opened.epoch != epoch or there.hollow or there.is_rotten()[1] or there.restored is not None:
            return
        if needs_base(there.engine):
            yield f"Site {site} declares sync, and site {OTHER[site]} needs base data."
        elif (reached := reached_there(self._world, self._read, OTHER[site], self._layout)) < opened.core.committed:
            yield f"Site {site} declares sync with {opened.core.committed} committed, and site {OTHER[site]} reaches {reached}."

    def _running(self, site: str) -> Operation | None:
        """Returns the operation that its journal calls running."""
        running = [one for one in self._world.machines[site].journal.all() if one.state == "running" and not one.dry_run]
        return running[-1] if running else None

    def _stopped(self, site: str) -> tuple[int, bool]:
        """Returns how far the old active's storage was durable when it stopped, and whether it may have said so: an attempt
        that was resumed asks once more, and no journal has its answer."""
        running = self._running(site)
        if running is None or running.attempt > 1:
            return -1, True
        details = [step.detail for step in running.steps if step.name == "step_down" and step.detail is not None]
        has_stopped = any(detail.get("confirmed") for detail in details)
        return (int(details[-1].get("durable_seq", -1)) if has_stopped else -1), has_stopped
