"""The observer of a simulated run: openings, modes, positions, remote logs, and at the end everything that is stored.

What always holds: it looks and never touches; a look during the run costs no virtual time and no randomness, so that
observing more or less changes no run.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

from chaos.history.history import (
    Apart,
    Dump,
    GivenUp,
    ModeRecorded,
    Moment,
    Opened,
    PositionLine,
    Recorder,
    RemoteLogLine,
    SiteLog,
)
from chaos.history.lines import Kept, StaleLook
from chaos.history.stored import logged, quarantined, tables_of
from chaos.simulate.copies import Segments, copies
from chaos.simulate.inside import EndedEpochs, KeptSegments, left_resync, wrong_inside
from chaos.simulate.looks.health import wrong_health
from chaos.simulate.looks.messages import Messages
from chaos.simulate.looks.risk import risk_look
from chaos.simulate.looks.waits import circles
from chaos.simulate.plan import SITES
from chaos.simulate.twins.loop import VirtualLoop
from chaos.simulate.twins.watch import Decided, Watch
from chaos.simulate.world import OTHER, World
from gateway.site.site import Site
from remote_log.replication.shipper import PeerView
from remote_log.writing.writer import SegmentInfo
from storage.log.chain import standing
from switchover.quarantine import QUARANTINE
from switchover.register.port import PairState

SAMPLE_S = 1.0


class RegisterNotes:
    """Records the register's values as `watch` reports them."""

    def __init__(self, loop: VirtualLoop, recorder: Recorder, watch: Watch, look: Decided) -> None:
        """`look` gets each value, too."""
        self._loop, self._recorder, self._look = loop, recorder, look
        self._opened: set[tuple[int, str | None]] = set()
        watch.decided, watch.forced, watch.met, watch.forgotten = self._decided, self._forced, self._met, self._forgotten

    def _decided(self, before: PairState | None, value: PairState, author: str) -> None:
        """Records a decided value. Without a coordinator a line may hear of an opening elsewhere together with its own next
        decision."""
        self._look(before, value, author)
        opened = value.active is not None and (before is None or before.epoch != value.epoch)
        if opened or (before is not None and before.mode != value.mode):
            self._recorder.note(ModeRecorded(value.epoch, value.mode, self._loop.now_s))
        if opened and (value.epoch, value.opened_by) not in self._opened:
            self._opened.add((value.epoch, value.opened_by))
            self._recorder.note(Opened(str(value.active), value.epoch, self._loop.now_s, value.mode))
            if before is not None and before.mode == "async" and before.active not in (None, value.active) and _forced(before):
                self._recorder.note(GivenUp(before.epoch, self._loop.now_s))

    def _forced(self, site: str) -> None:
        self._recorder.note(Apart(site, self._loop.now_s))

    def _met(self) -> None:
        self._recorder.note(Moment("met", self._loop.now_s))

    def _forgotten(self) -> None:
        self._recorder.note(Moment("forgotten", self._loop.now_s))


def _forced(before: PairState) -> bool:
    """The plan that opens is a takeover: from an asynchronous active that is one that accepts a loss."""
    return before.switching is not None and before.switching.kind == "takeover"


def needless(begun: Sequence[SegmentInfo], durable_seq: int) -> tuple[str, ...]:
    """Returns the paths of those of a writer's segments that nobody needs while the peer holds `durable_seq`.

    The newest, and the newest that has a frame, are always needed (trimmer.py).
    """
    written = [segment.path for segment in begun if segment.last_seq >= segment.first_seq]
    return tuple(
        segment.path for segment in begun[:-1] if segment.path not in written[-1:] and segment.last_seq <= durable_seq
    )


class Observer:
    def __init__(
        self, world: World, recorder: Recorder, broken: Callable[[str], None], waits: Callable[[str], None], messages: Messages
    ) -> None:
        """`broken` takes a sentence, once, for each thing that is wrong inside a site; `waits` for requests in a circle."""
        self._world, self._recorder, self._broken, self._messages = world, recorder, broken, messages
        self._waits = waits
        self._wrong: set[str] = set()
        self._writers = {name: KeptSegments() for name in SITES}
        self._ended = {name: EndedEpochs() for name in SITES}
        self._kept: set[tuple[str, str, int, int]] = set()
        self._read: Segments = {}

    async def sample(self) -> None:
        """Takes samples as long as the run lasts."""
        while True:
            await asyncio.sleep(SAMPLE_S)
            self.look()

    def look(self) -> None:
        for name in SITES:
            life = self._world.alive(name)
            if life is not None and life.site is not None:
                self.look_at(name, life.site)
            self._look_at_kept(name)

    def _look_at_kept(self, name: str) -> None:
        engine = self._world.machines[name].engine
        for kept in engine.kept_snapshots():
            seen = name, kept.name, kept.epoch, kept.seq
            if seen not in self._kept:
                self._kept.add(seen)
                self._recorder.note(Kept(*seen, engine.digest_of_kept(kept.name), self._world.loop.now_s))

    def look_at(self, name: str, site: Site) -> None:
        """A site in the middle of a takeover is not looked at: it holds what is about to be committed anew."""
        now_s, engine = self._world.loop.now_s, self._world.machines[name].engine
        epoch, remote = site.active_epoch, site.active_epoch.remote if site.active_epoch is not None else None
        operations = self._world.lives[name].operations
        running = operations.running_id if operations is not None else None
        journaled = {one.id: one.kind for one in self._world.machines[name].journal.all()} if running is not None else {}
        wrong = [*wrong_inside(site, running, journaled), *self._writers[name].lost(name, remote)]
        process = self._world.lives[name].process
        process.forget_ended()  # two looks go through its tasks
        wrong += self._messages.look(name, site)
        there = self._world.machines[OTHER[name]]
        wrong += self._ended[name].alive_still(site, there.dfs, there.is_rotten()[1])
        wrong += left_resync(process, journaled.get(running or ""))
        for sentence in [*wrong, *wrong_health(self._world, name, site)]:
            if sentence not in self._wrong:
                self._wrong.add(sentence)
                self._broken(sentence)
        for sentence in circles(process):
            self._waits(sentence)
        if site.role != "SWITCHING":
            committed = epoch.core.committed if epoch is not None else 0
            applied = engine.applied
            self._recorder.note(PositionLine(name, applied.epoch, now_s, committed, applied.seq, engine.durable_seq))
        if (vouched_s := site.vouched_s()) is not None and site.serving.reads_stale:
            self._recorder.note(StaleLook(name, engine.applied.epoch, engine.applied.seq, site.age_s(vouched_s), now_s))
        if (seen := copies(self._world, self._read, name, site)) is not None:
            self._recorder.note(seen)
        if (risk := risk_look(self._world, self._read, name, site)) is not None:
            self._recorder.note(risk)
        if epoch is not None and epoch.remote is not None:
            segments = [segment for segment in epoch.remote.segments if segment.begun]  # the next one is made beforehand
            durable = (epoch.shipper.view.durable_seq or 0) if self._can_trim(name, epoch.shipper.view) else -1
            size = sum(segment.bytes for segment in segments)
            self._recorder.note(RemoteLogLine(name, epoch.epoch, now_s, size, needless(segments, durable)))

    def _can_trim(self, name: str, view: PeerView) -> bool:
        """Nothing that was done to the world keeps it from deleting what it knows to be needless."""
        world, there = self._world, self._world.machines[OTHER[name]].dfs
        cut = any(link.cut is not None for link in world.network.between(name, OTHER[name]))
        return view.state == "following" and not cut and there.is_well() and not world.lives[name].process.paused

    def last_look(self, name: str) -> None:
        """The disk of a site is about to go. What was in quarantine there had been reported: nobody lost that unawares."""
        self._quarantines(name)

    # ---- at the end
    async def final(self, active: str) -> None:
        """Both storages, both logs, all quarantines. Nothing may be under way."""
        self.look()
        for name in SITES:
            life = self._world.alive(name)
            if life is None or life.site is None:
                continue
            wal = await life.site.parts.wal.read_all()
            frames = logged(standing(wal)) if wal else ()
            self._recorder.note(SiteLog(name, name == active, frames))
            self._recorder.note(await self._dump(name, name == active))
            self._quarantines(name)

    async def _dump(self, name: str, active: bool) -> Dump:
        engine = self._world.machines[name].engine
        tables = await tables_of(engine)
        return Dump(name, active, self._world.loop.now_s, engine.applied.seq, tables)

    def _quarantines(self, name: str) -> None:
        engine, disk = self._world.machines[name].engine, self._world.machines[name].disk
        for path, stored in sorted(disk.stored.items()):
            if path.startswith(QUARANTINE + "/") and path.endswith(".json"):
                manifest: dict[str, Any] = json.loads(bytes(stored.data))
                self._recorder.note(quarantined(name, manifest, engine.applied.schemas(), self._world.loop.now_s))
