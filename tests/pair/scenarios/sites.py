"""The commands of the scenarios about sites (scenario.py): processes, faults, role changes, what one site sends the other.

A site that does not run answers `down`; an error is answered as its code.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from gateway.service.http_settings import HttpSettings
from gateway.site.serving_facts import site_condition
from remote_log.replication.messages import (
    FOLLOW,
    PROTOCOL,
    REPLICATE,
    FollowRequest,
    LogPoint,
    Position,
    ReplicateRequest,
    addressed,
    decode_reply,
    pack_history,
)
from storage.clock import SystemClock
from storage.engines.settings import EngineSettings
from storage.failpoints import Failpoints
from switchover.monitor.findings import Thresholds
from switchover.monitor.views import SiteView
from switchover.monitor.watcher import Watcher
from switchover.operations.document import OperationDocument
from tests.armed_failpoints import Crash
from tests.pair.pair import OTHER, Pair, Running
from tests.pair.scenarios.scenario import Command, outcome
from twinlog.errors import PeerError, TwinlogError

TABLE = {"name": "t", "columns": [{"name": "k", "type": "string"}, {"name": "v", "type": "string"}], "primary_key": ["k"]}
SETTLED = ("ACTIVE", "DOWNGRADE_ACTIVE", "STANDBY")
REQUEST_DEADLINE_S = 3.0


class ScriptedFailpoints(Failpoints):
    """Dies where the scenario says, and remembers when each point was last reached (monotonic seconds)."""

    def __init__(self) -> None:
        self.deadly: str | None = None
        self.reached_s: dict[str, float] = {}

    def hit(self, name: str) -> None:
        self.reached_s[name] = time.monotonic()
        if name == self.deadly:
            self.deadly = None
            raise Crash(name)


def options(words: list[str], *names: str) -> dict[str, str]:
    """Trailing pairs such as `within 0.3 as w1`; a word that is not among `names` is an error."""
    pairs = dict(zip(words[::2], words[1::2], strict=True))
    unknown = set(pairs) - set(names)
    if unknown:
        raise ValueError(f"no option {unknown.pop()!r} here; there are {', '.join(names)}")
    return pairs


class Down(TwinlogError):
    code = "down"


def _lands(word: str) -> bool:
    """Returns whether the bytes of an append that fails are written all the same."""
    return {"lost": False, "landing": True}[word]


def _end(operation: OperationDocument) -> str:
    return operation.state if operation.error is None else f"{operation.state} {operation.error.code}"


class Looking:
    """SiteProbe without a way to act: a monitor beside both sites, which reaches those that run."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair

    def _at(self, site: str) -> Running:
        if site not in self._pair.running:
            raise PeerError(f"site {site} does not answer")
        return self._pair.running[site]

    async def alive(self, site: str) -> None:
        self._at(site)

    async def view(self, site: str) -> SiteView:
        return await self._at(site).operations.view()

    async def checks(self, site: str) -> Mapping[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(await self._at(site).operations.checks("failover"))
        return found

    async def order(self, site: str, kind: str, to: str | None, options: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        raise AssertionError("it only looks")


class SiteCommands:
    """Every method `do_xyz` is the command `xyz` (`_` for `-`): it takes the words behind it and gives the answer."""

    def __init__(self, root: Path) -> None:
        self.pair = Pair(
            root, settings={site: {"http": HttpSettings(request_deadline_s=REQUEST_DEADLINE_S)} for site in OTHER},
            failpoints={site: ScriptedFailpoints() for site in OTHER},
        )
        self._sent: dict[str, asyncio.Task[str]] = {}
        self._running: list[asyncio.Task[Any]] = []  # what was begun and may go on
        self._made = False
        thresholds = Thresholds(look_after_s=0, resync_after_s=0, degrade_after_s=0.5, failover_after_s=0.5, silence_max_s=2)
        self._watcher = Watcher(("a", "b"), Looking(self.pair), SystemClock(), thresholds, act=False, report=lambda *_: None)
        self.commands: dict[str, Command] = {
            name.removeprefix("do_").replace("_", "-"): getattr(self, name) for name in dir(self) if name.startswith("do_")
        }

    async def close(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self.pair.stop_all()

    def state(self) -> str:
        """The pair in one line, for a failure."""
        return "; ".join(
            f"{name}: {r.site.role} epoch {r.site.epoch} {r.site.mode} applied {r.site.parts.engine.applied.seq}"
            + (f", waits for {r.site.waiting_for}" if r.site.waiting_for else "")
            for name, r in sorted(self.pair.running.items())
        )

    def _at(self, site: str) -> Running:
        if site not in OTHER:
            raise ValueError(f"there is no site {site!r}")
        if site not in self.pair.running:
            raise Down(f"site {site} does not run")
        return self.pair.running[site]

    # ---- processes
    async def do_start(self, words: list[str]) -> str:
        """start SITE...: their roles once they have settled. The first start of a pair also makes table t."""
        for site in words:
            await self.pair.start(site)
        if not self._made:
            self._made = True
            await self.pair.until(lambda: self.pair.role("a") == "ACTIVE")
            await self.pair.running["a"].service.tables.create(TABLE)
            if "b" in words:
                await self.pair.until(lambda: self._at("b").site.catalog.find("t") is not None)
        await self.pair.until(lambda: all(self._is_settled(site) for site in words))
        return " ".join(self.pair.role(site) for site in words)

    def _is_settled(self, site: str) -> bool:
        return self.pair.role(site) in SETTLED and self.pair.running[site].operations.running_id is None

    async def do_boot(self, words: list[str]) -> str:
        """boot SITE: start it, whatever becomes of it."""
        await self.pair.start(words[0])
        return "booted"

    async def do_stop(self, words: list[str]) -> str:
        """stop SITE...: in good order, everything flushed and closed."""
        for site in words:
            await self.pair.stop(site)
        return "down"

    async def do_crash(self, words: list[str]) -> str:
        """crash SITE...: what was not flushed is lost, nothing is closed."""
        for site in words:
            await self.pair.crash(site)
        return "down"

    async def do_again(self, words: list[str]) -> str:
        """again SITE stays|restarts: its role, the same process or after a crash and a start with the same faults."""
        site, what = words
        if {"stays": False, "restarts": True}[what]:
            down = self.pair.faults[site].remote_down
            await self.do_crash([site])
            self.pair.faults[site].remote_down = down
            await self.do_start([site])
        return str(self._at(site).site.role)

    async def do_wipe(self, words: list[str]) -> str:
        """wipe SITE: a new disk for a site that does not run; its DFS is another machine's."""
        assert words[0] not in self.pair.running
        for left in (self.pair.root / words[0]).iterdir():
            if left.name != "dfs":
                shutil.rmtree(left) if left.is_dir() else left.unlink()
        return "empty"

    async def do_lose(self, words: list[str]) -> str:
        """lose SITE everything|dfs: its machine and its DFS are lost for good, or its DFS alone, and built anew, empty."""
        site, what = words
        everything = {"everything": True, "dfs": False}[what]
        assert not (everything and site in self.pair.running)
        folder = self.pair.root / site
        lost = folder if everything else folder / "dfs"
        lost.rename(self.pair.root / f"lost-{len(list(self.pair.root.iterdir()))}")
        (folder / "dfs").mkdir(parents=True)
        return "lost"

    async def do_own_dfs(self, words: list[str]) -> str:
        """own-dfs SITE down|up: between a site and the DFS beside it."""
        self.pair.own_faults[words[0]].remote_down = {"down": True, "up": False}[words[1]]
        return "done"

    async def do_wipe_dfs(self, words: list[str]) -> str:
        """wipe-dfs SITE everything|claims|segments|last-segment: the DFS beside it loses that, whoever runs."""
        if words[1] == "last-segment":
            last = max((self.pair.root / words[0] / "dfs").glob("*/*/[0-9]*/[0-9]*"))
            for path in last.parent.glob(f"*{last.name}*"):  # with the marks that the directory keeps beside it
                path.unlink()
            return last.parent.name.lstrip("0")
        for folder in (self.pair.root / words[0] / "dfs").glob("*/*/*"):
            if words[1] in ("everything", "claims" if folder.name == "claims" else "segments"):
                shutil.rmtree(folder)
        return "empty"

    async def do_role(self, words: list[str]) -> str:
        return str(self._at(words[0]).site.role)

    async def do_mode(self, words: list[str]) -> str:
        return self._at(words[0]).site.mode

    async def do_waits_for(self, words: list[str]) -> str:
        """waits-for SITE TEXT...: `yes` when what it says that it waits for has this text in it, else all of it."""
        waiting = self._at(words[0]).site.waiting_for or "nothing"
        return "yes" if " ".join(words[1:]) in waiting else waiting

    async def do_troubles(self, words: list[str]) -> str:
        """troubles SITE: what keeps it from being whole, as it says itself, or `none`."""
        return ", ".join(one.about for one in site_condition(self._at(words[0]).site).troubles) or "none"

    async def do_stored(self, words: list[str]) -> str:
        """stored SITE: `all` when the active knows that this site has stored everything that is committed."""
        epoch = self._at(OTHER[words[0]]).site.active_epoch
        durable = None if epoch is None else epoch.shipper.view.durable_seq
        return "all" if epoch is not None and durable is not None and durable >= epoch.core.committed else f"up to {durable}"

    async def do_told(self, words: list[str]) -> str:
        """told SITE: `yes` when the register says that the asynchronous active has committed all that it has now."""
        site = self._at(words[0]).site
        state = await site.parts.coordinator.read()
        committed = site.serving.for_reads().core.committed
        return "yes" if state is not None and state.beat is not None and state.beat.committed_seq >= committed else "no"

    async def do_base_rows(self, words: list[str]) -> str:
        """base-rows SITE: how many rows of base data it has sent in its open epoch."""
        return str(self._at(words[0]).site.serving.for_reads().shipper.base_rows_sent)

    # ---- faults
    async def do_remote_log(self, words: list[str]) -> str:
        """remote-log SITE down|up|hangs|flows|fails N lost|landing: between it and the other site's DFS."""
        site, what, *rest = words
        faults = self.pair.faults[site]
        match what:
            case "down" | "up":
                faults.remote_down = what == "down"
            case "hangs":
                faults.hold_remote.clear()
            case "flows":
                faults.hold_remote.set()
            case "fails":
                faults.fail_remote, faults.remote_lands = int(rest[0]), _lands(rest[1])
            case _:
                raise ValueError(f"a remote log cannot be {what!r}")
        return "done"

    async def do_local_log(self, words: list[str]) -> str:
        """local-log SITE works | fails N lost|landing."""
        site, what, *rest = words
        faults = self.pair.faults[site]
        match what:
            case "works":
                faults.fail_local = 0
            case "fails":
                faults.fail_local, faults.local_lands = int(rest[0]), _lands(rest[1])
            case _:
                raise ValueError(f"a local log cannot be {what!r}")
        return "done"

    async def do_storage(self, words: list[str]) -> str:
        """storage SITE breaks|mends: the database finds its folder gone, and can make nothing durable."""
        folder = self.pair.root / words[0] / "engine"
        away = folder.with_name("engine.away")
        match words[1]:
            case "breaks":
                folder.rename(away)
            case "mends":
                shutil.rmtree(folder, ignore_errors=True)  # attempts to write into it may have left an empty one
                away.rename(folder)
            case _:
                raise ValueError(f"a storage cannot do {words[1]!r}")
        return "done"

    async def do_link(self, words: list[str]) -> str:
        """link down|up: calls from one gateway to the other, shipping among them."""
        self.pair.cut = {"down": True, "up": False}[words[0]]
        return "done"

    async def do_coordinator(self, words: list[str]) -> str:
        """coordinator SITE down|up: for that site. coordinator none: before the first start, the pair has none at all.
        coordinator lost: it answers, and has no record of the pair; without one, both DFSs have lost the register.
        coordinator saved: a backup of its database is made; coordinator restored: from that backup.
        coordinator file deleted|damaged|back: under the processes that have it open."""
        if words == ["lost"]:
            await self.pair.lose_register()
            return "lost"
        if words in (["saved"], ["restored"]):
            await self.pair.back_up_register(restore=words == ["restored"])
            return words[0]
        if words[0] == "file":
            self.pair.coordinator_file(words[1])
            return words[1]
        if words == ["none"]:
            assert not self.pair.running
            self.pair.has_coordinator = False
            return "none"
        assert self.pair.has_coordinator
        self.pair.faults[words[0]].coordinator_down = {"down": True, "up": False}[words[1]]
        return "done"

    async def do_disk(self, words: list[str]) -> str:
        """disk SITE saved: a copy of its files, away. disk SITE restored PART...: these from the copy, while it is down."""
        site, what, *parts = words
        self.pair.copy_disk(site, parts, restore={"saved": False, "restored": True}[what])
        return what

    async def do_dfs(self, words: list[str]) -> str:
        """dfs SITE saved: a copy of the DFS beside it, away. dfs SITE restored: from that copy."""
        self.pair.copy_dfs(words[0], restore={"saved": False, "restored": True}[words[1]])
        return words[1]

    async def do_clock(self, words: list[str]) -> str:
        """clock SITE SECONDS: how far its wall clock is ahead from its next start on."""
        self.pair.clock_ahead_s[words[0]] = float(words[1])
        return "done"

    async def do_flushes_never(self, words: list[str]) -> str:
        """flushes-never SITE: from its next start on its storage becomes durable by command only."""
        self.pair.settings[words[0]]["engine"] = EngineSettings(flush_interval_s=3600.0)
        return "done"

    async def do_flushes_again(self, words: list[str]) -> str:
        """flushes-again SITE: from its next start on as usual."""
        del self.pair.settings[words[0]]["engine"]
        return "done"

    async def do_dies(self, words: list[str]) -> str:
        """dies SITE POINT: the work of that site that next reaches the failpoint is never heard of again."""
        points = self.pair.failpoints[words[0]]
        assert isinstance(points, ScriptedFailpoints)
        points.deadly = words[1]
        return "armed"

    async def do_died(self, words: list[str]) -> str:
        """died SITE: `yes` once its work has reached the point where it was to die."""
        points = self.pair.failpoints[words[0]]
        assert isinstance(points, ScriptedFailpoints)
        return "yes" if points.deadly is None else "no"

    # ---- role changes
    async def _operate(self, kind: str, words: list[str], to: str | None, **given: Any) -> str:
        self._at(words[0])
        return _end(await self.pair.operate(words[0], kind, to, **given))

    async def do_failover(self, words: list[str]) -> str:
        """failover SITE [accepting-data-loss]: how the operation ended, and the code of its error; or why it was not begun."""
        if words[1:] not in ([], ["accepting-data-loss"]):
            raise ValueError(f"a failover knows no {' '.join(words[1:])!r}")
        self._at(words[0])
        if words[1:]:
            return _end(await self.pair.force_failover(words[0]))
        return await self._operate("failover", words, words[0])

    async def do_cannot_verify(self, words: list[str]) -> str:
        """cannot-verify SITE TEXT...: `yes` when a dry run of a failover to it names this as unknown."""
        site, *text = words
        ended = await self._at(site).operations.start("failover", site, {}, True, "test")
        unknown = [check["seen"] for check in ended.steps[0].detail["not_ok"] if check["status"] == "unknown"]
        return "yes" if any(" ".join(text) in seen for seen in unknown) else "no"

    async def do_advised(self, words: list[str]) -> str:
        """advised COMMAND...: `yes` when `twinlog advise`, run at every look, names this command now, else its advice."""
        advice = await self._watcher.round()
        if advice.holds_in_s == 0 and advice.command == " ".join(words):
            return "yes"
        return f"{advice.command} ({advice.reason}), holds in {advice.holds_in_s}"

    async def do_switchover(self, words: list[str]) -> str:
        self._at(words[0])
        return await self._operate("switchover", words, words[0])

    async def do_rejoin(self, words: list[str]) -> str:
        """rejoin SITE [accepting COUNT|unknown|shown]: by command; with the loss that the operator accepts, or is shown."""
        site, *rest = words
        given = options(rest, "accepting").get("accepting")
        if given == "shown":
            ended = await self._at(site).operations.all()
            shown = [one.error.fields["at_risk"] for one in ended if one.error is not None and one.error.code == "diverged"]
            given = str(shown[0])
        accepted = {} if given is None else {"accept_data_loss": int(given) if given.isdecimal() else given}
        return await self._operate("rejoin", words, site, **accepted)

    async def do_merge(self, words: list[str]) -> str:
        """merge SITE [putting-absent]: a rejoin that sends its quarantined rows to the active."""
        if words[1:] not in ([], ["putting-absent"]):
            raise ValueError(f"a merge knows no {' '.join(words[1:])!r}")
        self._at(words[0])
        return await self._operate("rejoin", words, words[0], merge=True, put_absent=bool(words[1:]))

    async def do_degrade(self, words: list[str]) -> str:
        self._at(words[0])
        return await self._operate("degrade", words, None)

    async def do_resync(self, words: list[str]) -> str:
        self._at(words[0])
        return await self._operate("resync", words, None)

    async def do_abort(self, words: list[str]) -> str:
        """abort SITE: its last operation."""
        operations = self._at(words[0]).operations
        return str((await operations.abort((await operations.all())[0].id)).state)

    async def do_resume(self, words: list[str]) -> str:
        """resume SITE: its last operation, from where it stopped."""
        operations = self._at(words[0]).operations
        taken = await operations.resume((await operations.all())[0].id)
        async for document in operations.follow(taken.id):
            taken = document
        return str(taken.state)

    async def do_operation(self, words: list[str]) -> str:
        """operation SITE KIND: how its last one of this kind stands, and the code of its error."""
        return _end(await self._last(*words))

    async def do_taken_up(self, words: list[str]) -> str:
        """taken-up SITE KIND: who resumed or aborted its last one of this kind, in order, or `nobody`."""
        operation = await self._last(*words)
        told = reversed(await self._at(words[0]).operations._executor.history())
        again = [one.actor for one in told if one.operation == operation.id and one.event in ("resumed", "abort asked")]
        return ", ".join(again) or "nobody"

    async def _last(self, site: str, kind: str) -> OperationDocument:
        return next(one for one in await self._at(site).operations.all() if one.kind == kind)

    # ---- what the other site sends
    async def do_ship(self, words: list[str]) -> str:
        """ship SITE current|old: frames of its peer, as the replicator of that epoch would send them."""
        target = self._at(words[0])
        sender = self._at(OTHER[words[0]]).site
        epoch = target.site.sink.followed_epoch - (1 if words[1] == "old" else 0)
        frames = await sender.parts.wal.read_all()
        asked = FollowRequest(epoch, sender.site, pack_history(sender.parts.engine.applied.epochs))
        pair = sender.parts.wal.pair
        answered = await target.peer_api.call_bytes(FOLLOW, msgspec.msgpack.encode(addressed(asked, pair, PROTOCOL)))
        state = decode_reply(Position, FOLLOW, answered).state
        last = frames[-3:]  # the target is past them, and does not apply them a second time
        after = LogPoint(last[0].previous, last[0].epoch) if last else target.site.sink.point
        sent = ReplicateRequest(epoch, after, b"".join(frame.data for frame in last))
        await target.peer_api.call_bytes(REPLICATE, msgspec.msgpack.encode(addressed(sent, pair, PROTOCOL)))
        return f"{state}, accepted"

    # ---- several things at once
    async def do_send(self, words: list[str]) -> str:
        """send NAME COMMAND...: begin it, and go on."""
        name, command, *rest = words
        self._sent[name] = asyncio.ensure_future(outcome(self.commands[command](rest)))
        self._running.append(self._sent[name])
        return "sent"

    async def do_waits(self, words: list[str]) -> str:
        """waits NAME: `yes` as long as there is no answer to it."""
        return "no" if self._sent[words[0]].done() else "yes"

    async def do_answer(self, words: list[str]) -> str:
        return await asyncio.shield(self._sent[words[0]])
