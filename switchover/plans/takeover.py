"""The plans that make a site the active: bootstrap, restart, failover, switchover. Each is a list of named, idempotent steps.

What always holds: a switchover can be aborted until `step_down` begins, every other plan until `claim` begins; the gateway that
will be active executes the plan and keeps its journal; a plan that is resumed begins with a new epoch where the old attempt
left the world, because every step of activation makes sure of the ones before it. Source: protocol.md section 8.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

from remote_log.dfs.retrying import RetryingDfs
from remote_log.fencing.fence import close_by_recovery
from remote_log.fencing.reading import segments_below
from remote_log.replication.messages import DrainReply, ReplicateRequest
from remote_log.writing.left_out import LeftOut
from storage.settings import RUN_TIME, Within
from switchover.activation.activation import Activation
from switchover.activation.ports import ActivationRequest
from switchover.operations.plan import Plan, Step
from switchover.preflight.loss import accepted_loss
from switchover.preflight.preflight import Preflight
from switchover.quarantine import Quarantine
from switchover.register.port import PairState, read_or_known, update
from switchover.register.transitions import abandon_plan
from switchover.roles.table import Event, Role
from switchover.site_control import SiteControl
from twinlog.errors import Fenced, LogGap, PeerError, PlanSuperseded, Refused, TwinlogError, Unavailable

CALL_TIMEOUT_S = 3.0
CATCH_UP_DEADLINE_S = 30.0
CLEANUP_RECOVERY_S = 30.0
POLL_S = 0.01
NEAR_POLL_S = 0.2
STALL_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchoverSettings:
    """Says how close the standby comes, while writes continue, before a switchover stops them for the rest."""

    lag_records_max: Annotated[int, Within(0, 100_000_000), RUN_TIME] = 10_000
    lag_max_s: Annotated[float, Within(0.5, 3600), RUN_TIME] = 10.0  # since it heard the active, whose log up to then it has


class Takeover:
    """One run of a plan that ends with this site as the active. `kind`: bootstrap | restart | failover | switchover.

    `continues`: the plan at the coordinator that this run resumes by itself; it must still have the pair.
    """

    def __init__(
        self, control: SiteControl, kind: str, options: dict[str, Any], preflight: Preflight, settings: SwitchoverSettings,
        continues: str | None = None,
    ) -> None:
        self._control, self._settings = control, settings
        self._preflight = preflight
        self._kind = kind
        self._options = options
        self._continues = continues
        self._activation: Activation | None = None
        self._drained: DrainReply | None = None  # the old active's answer, when this very attempt asked
        self._caught_up = False  # with all that the old active had when it was drained by this very attempt
        self._asked_to_stop = False

    def plan(self) -> Plan:
        early = [Step("begin", self._begin, "take the pair at the coordinator", abortable=True, undo=self._abandon)]
        if self._kind in ("failover", "switchover"):
            early.insert(0, Step("preflight", self._check, "check both sites", abortable=True, dry=True))
        if self._kind == "switchover":
            near = Step("near", self._come_near, "come close behind the active, while writes continue", abortable=True)
            early.insert(1, near)
            early += [
                Step("drain", self._drain, "the active finishes what it admitted", abortable=True, undo=self._undrain),
                Step("catch_up", self._catch_up, "this site applies all of it durably", abortable=True),
                Step("step_down", self._step_down, "the old active stops for good"),
            ]
        late = [
            Step("claim", self._guarded("claim"), "lock every older epoch"),
            Step("fence", self._fence, "close every open segment of older epochs", progress=self._progress),
            Step("replay", self._guarded("replay"), "replay the remote log, make the storage durable", progress=self._progress),
            Step("wait_lease", self._guarded("wait_lease"), "wait until the old active's read lease has expired"),
            Step("open", self._open, "open the new epoch", progress=self._progress),
        ]
        if self._kind in ("failover", "switchover"):
            late += [
                Step("cleanup", self._cleanup, "delete the replayed remote log"),
                Step("verify", self._verify, "an old epoch is rejected, a canary passes the write path"),
            ]
        return Plan(self._kind, [*early, *late])

    async def _check(self) -> dict[str, Any]:
        looked = await self._preflight.look(self._kind, self._options)
        checked, peer = looked.require(), looked.peer
        if peer is not None and peer.register_went_back is not None and accepted_loss(self._options) is not None:
            self._control.parts.coordinator.doubt(f"site {peer.site} says that {peer.register_went_back}", peer.met_epoch)
        return checked

    # ---- the coordinator
    def _unseen(self) -> list[str]:
        """Says what a takeover without a coordinator cannot verify while the other site's DFS does not answer."""
        control = self._control
        if control.parts.coordinator.unseen != control.peer:
            return []
        return [
            f"site {control.peer}'s DFS does not answer: whether {control.peer} was degraded by command meanwhile cannot be "
            "verified; writes it acknowledged asynchronously would be lost"
        ]

    def _lost(self, activation: Activation) -> list[str]:
        """Says what nobody can verify when the pair's value was lost."""
        peer = self._control.peer
        said = [f"whether site {peer} was the active, and what it acknowledged asynchronously: that would be lost"]
        if peer in activation.unseen_dfs:
            said.append(f"site {peer}'s DFS does not answer: what site {self._control.site} wrote there, and what was claimed")
        return said

    async def _request_kind(self) -> str:
        state = await read_or_known(self._control.parts.coordinator)
        if self._kind == "failover" and accepted_loss(self._options) is not None and (state is None or state.active is None):
            return "bootstrap"  # the pair's value was lost: the preflight says whether that is so
        if self._kind == "failover":
            return "restart" if state is not None and state.active == self._control.site else "takeover"
        return self._kind

    async def _need_activation(self) -> Activation:
        if self._activation is None:
            self._activation = self._control.new_activation(
                ActivationRequest(
                    plan_id=self._control.parts.new_id(), kind=await self._request_kind(),
                    reason=str(self._options.get("reason", "")),
                    accept_data_loss=accepted_loss(self._options) is not None, supersede=self._kind == "failover",
                    continues=self._continues,
                )
            )
        return self._activation

    async def _begin(self) -> dict[str, Any]:
        activation = await self._need_activation()
        await activation.begin()
        unverified = self._unseen() if self._kind == "failover" else []
        if self._kind == "failover" and activation.request.kind == "bootstrap":
            unverified += self._lost(activation)
        return {"epoch": activation.epoch, **({"cannot_verify": unverified} if unverified else {})}

    async def _abandon(self) -> None:
        site = self._control.site

        def change(state: PairState | None) -> PairState:
            running = state.switching if state is not None else None
            if state is None or running is None or running.site != site:
                return state or PairState()
            return abandon_plan(state, running.plan_id)

        await update(self._control.parts.coordinator, change)

    # ---- the old active, when it is there
    async def _plan_id(self) -> str:
        activation = await self._need_activation()
        await activation.begin()
        return activation.request.plan_id

    async def _come_near(self) -> dict[str, Any]:
        """A standby that is far behind catches up before writes are stopped, so that they are stopped for the rest only."""
        control, settings = self._control, self._settings
        clock, engine = control.parts.clock, control.parts.engine
        seen, seen_s = engine.applied.seq, clock.monotonic_s()
        while True:
            reply = await control.parts.other_site.status(CALL_TIMEOUT_S)
            behind = max(0, reply.committed_seq - engine.applied.seq)
            now_s, heard_s = clock.monotonic_s(), control.sink.heard_s
            lag_s = None if heard_s is None else now_s - heard_s
            if behind <= settings.lag_records_max and lag_s is not None and lag_s <= settings.lag_max_s:
                return {"records_behind": behind, "active_silent_s": round(lag_s, 1)}
            if engine.applied.seq != seen:
                seen, seen_s = engine.applied.seq, now_s
            elif now_s - seen_s >= STALL_S:
                raise Refused(
                    f"site {control.site} stands {behind:,} records behind, and has applied none for {STALL_S:.0f} s: writes "
                    "were not stopped; see `twinlog status` for why replication stands still"
                )
            await clock.sleep(NEAR_POLL_S)

    async def _drain(self) -> dict[str, Any]:
        control, plan_id = self._control, await self._plan_id()
        self._drained = await control.parts.other_site.drain(plan_id, control.sink.point, CATCH_UP_DEADLINE_S)
        return {"last_seq": self._drained.last_seq}

    async def _undrain(self) -> None:
        parts = self._control.parts
        try:
            state = await parts.coordinator.read()
            running = state.switching if state is not None else None
            plan_id = running.plan_id if running is not None and running.site == parts.site else ""
            await parts.other_site.undrain(plan_id, CALL_TIMEOUT_S)
        except (PeerError, PlanSuperseded, Unavailable):
            return  # it asks the coordinator itself: once the pair is let go it admits writes again, or boots closed

    async def _catch_up(self) -> dict[str, Any]:
        if self._drained is None:
            await self._drain()
        assert self._drained is not None
        control, engine, drained = self._control, self._control.parts.engine, self._drained
        until_s = control.parts.clock.monotonic_s() + CATCH_UP_DEADLINE_S
        while engine.applied.seq < drained.last_seq:
            if control.parts.clock.monotonic_s() >= until_s:
                raise Refused(
                    f"site {control.site} applied {engine.applied.seq} of {drained.last_seq} in {CATCH_UP_DEADLINE_S:.0f} s: "
                    "find out why replication is slow, and try again"
                )
            await control.parts.clock.sleep(POLL_S)
        if engine.applied.epoch != drained.epoch:
            raise Refused(
                f"site {control.site} has applied sequence {engine.applied.seq} of epoch {engine.applied.epoch}, and site "
                f"{control.peer} says that it was drained at {drained.last_seq} of epoch {drained.epoch}: one of the two does "
                "not hold this pair's log; compare both with `twinlog status`"
            )
        self._caught_up = True
        return {"applied_seq": engine.applied.seq, "durable_seq": await engine.flush()}

    async def _step_down(self) -> dict[str, Any]:
        """The peer stops. If nobody knows whether it did, its lease is waited out, as for a dead site."""
        control = self._control
        plan_id = await self._plan_id()
        activation = await self._need_activation()
        self._asked_to_stop = True

        async def ask() -> dict[str, Any]:
            try:
                reply = await control.parts.other_site.step_down(plan_id, self._drained, CALL_TIMEOUT_S)
            except (PeerError, Unavailable) as error:
                if activation.follows_async and not self._caught_up:
                    await self._abandon()
                    raise self._may_know_more(error) from error
                return {"confirmed": False, "why": error.message}
            activation.old_has_stopped(reply.durable_seq)
            return {"confirmed": True, "durable_seq": reply.durable_seq}

        detail: dict[str, Any] = await self._guard(ask)
        return detail

    def _may_know_more(self, error: TwinlogError) -> Refused:
        """Refuses a resumed switchover: the pair may have continued without it since the old active was drained."""
        peer = self._control.peer
        return Refused(
            f"site {peer} acknowledged asynchronously, and cannot be asked now what it holds ({error.message}): bring it back "
            f"and resume, or make it the active with `failover --to {peer}`, or see the loss manifest and force a failover"
        )

    async def _late_activation(self) -> Activation:
        """Past the old active's end. An attempt that was taken up again behind that step asks it once more."""
        if self._kind == "switchover" and not self._asked_to_stop:
            await self._step_down()
        return await self._need_activation()

    # ---- activation
    def _guarded(self, name: str) -> Callable[[], Awaitable[dict[str, Any]]]:
        async def run() -> dict[str, Any]:
            activation = await self._late_activation()
            await self._guard(getattr(activation, name))
            return {"epoch": activation.epoch, **activation.replayed}

        return run

    async def _fence(self) -> dict[str, Any]:
        done = await self._guarded("fence")()
        activation = await self._need_activation()
        if activation.fenced_at is not None:
            self._control.on_fenced(activation.epoch, activation.fenced_at)
        return done

    def _progress(self) -> dict[str, Any]:
        return {} if self._activation is None else self._activation.progress.document()

    async def _guard(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Run a step of activation in role SWITCHING; a failure closes the site."""
        control = self._control
        await control.halt(f"{self._kind} to {control.site}")
        if control.role is Role.FENCED:
            control.event(Event.REJOIN_STARTED)
        if control.role is not Role.SWITCHING:
            control.event(Event.PLAN_STARTED)
        try:
            await control.sink.settle()
            return await work()
        except LogGap:
            self._give_up()
            if self._kind == "restart":  # no other attempt would do better: who is to take over must not find a plan here
                with suppress(TwinlogError):
                    await self._abandon()
            raise
        except Exception:
            self._give_up()
            raise

    def _give_up(self) -> None:
        """The site is closed, and the next attempt begins from the first step."""
        self._control.event(Event.PLAN_FAILED)
        self._activation = None

    async def _open(self) -> dict[str, Any]:
        activation = await self._late_activation()

        async def open_and_install() -> dict[str, Any]:
            opened = await activation.open()
            await self._control.install(opened)
            return {
                "epoch": opened.epoch, "mode": opened.mode, "replayed_frames": opened.replayed_frames,
                "copied_frames": opened.copied_frames,
            }

        detail: dict[str, Any] = await self._guard(open_and_install)
        return detail

    async def _cleanup(self) -> dict[str, Any]:
        """Deletes the remote log of older epochs on the own DFS: what it held is durable here, in the log or in quarantine."""
        control, parts = self._control, self._control.parts
        dfs, layout, deleted = RetryingDfs(parts.own_dfs, parts.clock), parts.layout, 0
        quarantine = Quarantine(parts.site, parts.files, parts.engine)
        left_out = LeftOut(dfs, layout, quarantine, parts.remote_keys)
        for path in await segments_below(dfs, layout, control.epoch):
            await close_by_recovery(dfs, path, parts.clock, CLEANUP_RECOVERY_S)
            await left_out.look_anyhow(path)
        await left_out.keep()
        for entry in await dfs.list(layout.folder):
            epoch = layout.parse_epoch(entry.name) if entry.is_folder else None
            if epoch is not None and epoch < control.epoch:
                await dfs.delete(layout.epoch_folder(epoch))
                deleted += 1
        return {"deleted_epochs": deleted, **({"left_out": quarantine.left_out} if quarantine.left_out else {})}

    async def _verify(self) -> dict[str, Any]:
        """A zombie's frame must be rejected here; a canary must pass the whole write path."""
        control = self._control
        rejected = False
        try:
            await control.sink.replicate(ReplicateRequest(control.epoch - 1, control.sink.point, b""))
        except Fenced:
            rejected = True
        if not rejected:
            raise Refused("a frame of an older epoch was not rejected: this site must not serve; stop it and report this")
        return {"zombie_rejected": True, "canary_seq": await control.canary()}
