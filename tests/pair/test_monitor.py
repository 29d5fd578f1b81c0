"""The availability monitor over a real pair: what a view shows, what the product itself refuses, one action for two."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.epoch.modes import PINNED
from switchover.monitor.findings import AdviceKind, Thresholds
from switchover.monitor.judgement import Advice
from switchover.monitor.views import SiteView
from switchover.monitor.watcher import Watcher
from switchover.operations.document import OperationDocument
from switchover.preflight.preflight import STATUS_TIMEOUT_S
from tests.pair.pair import Pair
from tests.pair.pair_rig import caught_up, epoch, open_pair, put, site
from twinlog.errors import InvalidInput, PeerError, Refused

SETTINGS = Thresholds(interval_s=1, failover_after_s=3, degrade_after_s=3, gap_max_s=2, quiet_after_action_s=50)


class PairProbe:
    """SiteProbe, by calls of functions. The answers to the next `lost` orders do not arrive."""

    def __init__(self, pair: Pair, who: str = "monitor w") -> None:
        self._pair, self._who = pair, who
        self.lost = 0

    def _at(self, name: str) -> Any:
        if name not in self._pair.running:
            raise PeerError(f"site {name} refuses connections", sent=False)
        return self._pair.running[name].service.operations

    async def alive(self, name: str) -> None:
        self._at(name)

    async def view(self, name: str) -> SiteView:
        seen: SiteView = await self._at(name).view()
        return seen

    async def checks(self, name: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = msgspec.to_builtins(await self._at(name).checks("failover"))
        return found

    async def order(self, name: str, kind: str, to: str | None, options: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        started = await self._at(name).start(kind, to, dict(options), False, self._who, key)
        document: Mapping[str, Any] = msgspec.to_builtins(started)
        if self.lost:
            self.lost -= 1
            raise PeerError("the connection broke before the answer", sent=True)
        return document


class Rounds:
    """Clock: a second passes in each round, and none while somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic_s(self) -> float:
        self.now_s += 1.0
        return self.now_s

    def wall_ms(self) -> int:
        raise AssertionError("a monitor reads no wall clock")

    async def sleep(self, duration_s: float) -> None:
        """At once."""


def watcher(probe: PairProbe, *, act: bool = True) -> tuple[Watcher, list[tuple[Advice, str]]]:
    told: list[tuple[Advice, str]] = []
    watching = Watcher(
        ("a", "b"), probe, Rounds(), SETTINGS, act=act, report=lambda advice, became: told.append((advice, became))
    )
    return watching, told


def available(pair: Pair) -> None:
    """As the policy would be from the start; nothing degrades by itself here."""
    for name in pair.running:
        object.__setattr__(site(pair, name).settings, "policy", "available")


async def rounds(watching: Watcher, times: int = 8) -> list[Advice]:
    return [await watching.round() for _ in range(times)]


async def asked(pair: Pair, name: str, kind: str) -> list[OperationDocument]:
    return [one for one in await pair.running[name].service.operations.all() if one.kind == kind]


async def test_a_view_shows_the_site_the_other_one_and_what_it_reaches(tmp_path: Path) -> None:
    async with open_pair(tmp_path) as pair:
        a, b = [await pair.running[name].service.operations.view() for name in "ab"]
        assert (a.own.role, a.own.resyncs, b.own.role, b.own.resyncs) == ("ACTIVE", True, "STANDBY", None)
        assert (a.peer.role, b.peer.role) == ("STANDBY", "ACTIVE")
        assert a.register == b.register
        assert (a.changes, b.changes) == ([], []), "what a site begins by itself is nobody's action"
        await put(pair, "a", 1, "x")
        later = await pair.running["b"].service.operations.view()
        assert later.own.remote_log_mark != b.own.remote_log_mark, "an append changes it"
        pair.cut = True
        alone = await pair.running["b"].service.operations.view()
        assert (alone.peer, alone.peer_error) == (None, "site a does not answer")
        await pair.crash("a")
        marks = {(await pair.running["b"].service.operations.view()).own.remote_log_mark for _ in range(3)}
        assert len(marks) == 1, "a dead site appends nothing"


async def test_a_lost_active_is_taken_over_from_once_by_two_monitors(tmp_path: Path) -> None:
    async with open_pair(tmp_path) as pair:
        available(pair)
        await put(pair, "a", 1, "x")
        first, second = PairProbe(pair), PairProbe(pair, "monitor c")
        one, told = watcher(first)
        other, _ = watcher(second)
        assert {advice.kind for advice in await rounds(one, 5)} == {AdviceKind.NOTHING}
        await pair.crash("a")
        first.lost = 1  # it is asked again, under the same key
        acted = [advice for advice in await rounds(one) + await rounds(other) if advice.act]
        assert [(advice.kind, advice.site) for advice in acted] == [(AdviceKind.FAILOVER, "b")]
        assert any("asked for" in became for _, became in told)
        assert [(done.actor, done.options["automatic"]) for done in await asked(pair, "b", "failover")] == [
            ("monitor w", True)
        ]
        await pair.until(lambda: pair.role("b") == "DOWNGRADE_ACTIVE" and pair.running["b"].operations.running_id is None)
        assert (await asked(pair, "b", "failover"))[0].state == "succeeded"


async def test_it_only_says_so_when_it_observes_and_under_another_policy(tmp_path: Path) -> None:
    async with open_pair(tmp_path) as pair:
        watching, _ = watcher(PairProbe(pair))
        await pair.crash("a")
        advice = (await rounds(watching))[-1]
        assert (advice.kind, advice.act) == (AdviceKind.FAILOVER, False)
        assert "operator" in advice.acts_not, "the policy is protect"
        available(pair)
        advice = (await rounds(watcher(PairProbe(pair), act=False)[0]))[-1]
        assert (advice.kind, advice.act) == (AdviceKind.FAILOVER, False)
        assert "observes" in advice.acts_not
        assert await asked(pair, "b", "failover") == []


async def test_the_site_itself_refuses_a_monitor_while_the_other_one_serves(tmp_path: Path) -> None:
    """The active came back between the look and the action: an operator may take over from it, a monitor may not."""
    async with open_pair(tmp_path) as pair:
        with pytest.raises(Refused, match="an operator's to decide"):
            await pair.operate("b", "failover", "b", automatic=True)
        available(pair)
        document = await pair.operate("b", "failover", "b", automatic=True)
        assert (document.state, document.never_began) == ("failed", True)
        assert "never takes over from a site that serves" in document.error.message
        found = (await pair.running["b"].operations.checks("failover")).checks
        (half_way,) = [check for check in found if check.id == "journal.unfinished"]
        assert half_way.status == "ok", "what was refused changed nothing"
        assert (pair.role("a"), pair.role("b")) == ("ACTIVE", "STANDBY")


async def test_a_monitors_degrade_goes_back_by_itself(tmp_path: Path) -> None:
    async with open_pair(tmp_path, resync_after_s=0.2) as pair:
        with pytest.raises(Refused, match="an operator's to decide"):
            await pair.operate("a", "degrade", None, automatic=True)
        available(pair)
        assert (await pair.operate("a", "degrade", None, automatic=True)).state == "succeeded"
        assert site(pair, "a").parts.engine.meta(PINNED) is None
        assert epoch(pair, "a").auto_resync
        await pair.until(lambda: caught_up(pair, "a", "b") and pair.role("a") == "ACTIVE")


@pytest.mark.parametrize("kind", ["switchover", "resync"])
async def test_what_a_person_asks_for_is_nothing_automatic(tmp_path: Path, kind: str) -> None:
    async with open_pair(tmp_path) as pair:
        with pytest.raises(InvalidInput, match="automatic"):
            await pair.operate("b", kind, "b" if kind == "switchover" else None, automatic=True)


async def test_a_site_that_hangs_costs_the_checks_of_a_failover_one_short_time_out(tmp_path: Path) -> None:
    """Its facts need both DFSs and the register, so they may take seconds; its status needs nobody."""
    async with open_pair(tmp_path) as pair:
        asked: list[tuple[str, float]] = []

        async def hang(method: str, message: object, kind: object, timeout_s: float) -> None:
            asked.append((method, timeout_s))
            raise PeerError("site a did not answer")

        site(pair, "b").parts.transport.call = hang  # type: ignore[method-assign,assignment]
        found = await pair.running["b"].service.operations.checks("failover")
        assert {one.id: one.status for one in found.checks}["peer.answers"] == "unknown"
        assert asked == [("status", STATUS_TIMEOUT_S)]


async def test_a_site_that_has_just_been_silent_is_not_asked_whether_it_can_take_over(tmp_path: Path) -> None:
    """The active's log fails and its standby hangs: `twinlog advise` waited 30 s for the standby's checks."""
    async with open_pair(tmp_path) as pair:
        asked: list[str] = []

        class Silent(PairProbe):
            async def alive(self, name: str) -> None:
                if name == "b":
                    raise PeerError("site b does not answer", sent=True)

            async def view(self, name: str) -> SiteView:
                seen = await super().view(name)
                return msgspec.structs.replace(seen, peer=None, own=msgspec.structs.replace(
                    seen.own, lease_left_s=0.0, local_log_error="disk full", serves_reads=False, serves_writes=False,
                ))

            async def checks(self, name: str) -> Mapping[str, Any]:
                asked.append(name)
                return await super().checks(name)

        advice = (await rounds(watcher(Silent(pair), act=False)[0]))[-1]
        assert (advice.kind, asked) == (AdviceKind.LOOK, [])
        assert "whether site b can take over is unknown" in advice.reason
        assert "site b answers nobody" in advice.also[0]
