"""The register's part of an opening: the last look at its value, and the compare-and-set that is decided on that look.

What always holds, of a pair without a coordinator (a register in one place sees all, or does not answer):
- an old active that was degraded by command out of this site's sight keeps the pair, unless a loss was accepted;
- what is opened is the very epoch that was claimed, also when the plan began on two registers with two epochs;
- once both registers are in sight before the opening, the old active's lease is waited out from then on: an opening that was
  decided blind is not confirmed any more when its compare-and-set sees both (P2).
Source: protocol.md section 5, docs/decisions/2026-11-21-a-register-on-two-dfs.md ("What it costs").
"""

from __future__ import annotations

from dataclasses import dataclass

from storage.clock import Clock
from switchover.register.port import ATTEMPTS_MAX, Coordinator, Mode, PairState, update
from switchover.register.transitions import abandon_plan, open_plan
from twinlog.errors import PlanSuperseded


@dataclass(slots=True)
class Opening:
    """The opening of one plan. `begun`: the value that it began with, and whether both registers were seen then.
    `lease_wait_s`: how long an old active may continue with what it has seen; None: there is none, or it has stopped.
    `bars_async`: the plan follows a synchronous epoch, and nobody has accepted a loss."""

    coordinator: Coordinator
    clock: Clock
    plan_id: str
    epoch: int
    begun: tuple[PairState, bool] | None
    lease_wait_s: float | None
    bars_async: bool
    seen: PairState | None = None  # by the last look
    blind: bool = False  # the last look left a register unseen, and with it what the old active goes by

    async def value(self, mode: Mode, end: int) -> PairState:
        """Returns what the opening would set, by a last look. `end`: where the log of the epoch before ends. Raises
        PlanSuperseded when the plan has lost the pair, or when the old active was degraded and can continue now."""
        self.seen = await self._look()
        value = open_plan(self.seen, self.plan_id, mode, end)
        if value.epoch != self.epoch:  # it began twice: there without an answer, then here, by command
            raise PlanSuperseded(
                f"the register has this plan with epoch {value.epoch}, but {self.epoch} was claimed: repeat the command",
                plan_id=self.plan_id,
            )
        return value

    async def _look(self) -> PairState | None:
        """Returns the value, once a lease has passed in which it stayed the same: an old active that was degraded meanwhile by
        command, because this site's copy did not reach its register, may serve from then on."""
        waited_on: PairState | None = None
        for _ in range(ATTEMPTS_MAX):
            now = await self._read()
            if self.lease_wait_s is None or now is None or now.home is None or now == waited_on or self.begun == (now, True):
                return now
            known = self.begun is None or self.begun[0] != now  # by the old active, which sees this site's register
            self.blind = self.coordinator.unseen is not None and not known
            if self.blind:
                return now
            await self.clock.sleep(self.lease_wait_s)
            waited_on = now
        raise PlanSuperseded(f"the register changed in {ATTEMPTS_MAX} waits: see who else is at work", plan_id=self.plan_id)

    async def _read(self) -> PairState | None:
        now = await self.coordinator.read()
        if now is not None and now.mode == "async" and self.bars_async:
            await update(self.coordinator, lambda state: abandon_plan(state, self.plan_id))
            raise PlanSuperseded(
                "the old active was degraded by command while this plan ran, and may have acknowledged writes that this site "
                "lacks: it can serve again now; if it is lost, repeat the failover, which shows the loss manifest",
                plan_id=self.plan_id,
            )
        return now

    async def open(self, value: PairState, mode: Mode, end: int) -> None:
        """Sets what `value` returned. PlanSuperseded: as there, or the value changed twice."""
        try:
            await self.coordinator.compare_and_set(self.seen, value, blind=self.blind)
        except PlanSuperseded:  # the old active's register is in sight now, or something else has changed
            value = await self.value(mode, end)
            await self.coordinator.compare_and_set(self.seen, value, blind=self.blind)
