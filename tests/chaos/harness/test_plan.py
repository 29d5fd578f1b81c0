"""Plans of runs on real processes: their text, and what is wrong in one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from chaos.fault_lines import Fault
from chaos.harness.bugs.bugs import BUGS
from chaos.harness.bugs.plans import PLANS, plan_of
from chaos.harness.courses import scenarios
from chaos.harness.faults.kind import Kind, Stage
from chaos.harness.faults.registry import KINDS, effect_of
from chaos.harness.pair.parts import Parts
from chaos.harness.plan import HarnessPlan, parse, text
from twinlog.errors import InvalidInput

NOTHING: Any = SimpleNamespace(parts=Parts())  # that something is done to


def fault_of(kind: Kind) -> Fault:
    return Fault(1.0, kind.name, kind.targets[-1], 2.0 if kind.lasts else 0.0, kind.how[0])


def test_a_plan_of_every_kind_is_read_back() -> None:
    faults = tuple(fault_of(kind) for kind in KINDS)
    plan = HarnessPlan("all of it", 7, "sets", 3, 50.0, 12.5, faults, ("hdfs", "postgresql", "coordinator"), policy="available")
    assert parse(text(plan)) == plan


def test_the_faults_of_each_episode_count_from_its_beginning() -> None:
    faults = tuple(Fault(at_s, "switchover", "a") for at_s in (0.0, 9.9, 10.0, 24.5, 25.0))
    plan = HarnessPlan(seconds=25.0, faults=faults, episode=10.0)
    assert parse(text(plan)) == plan
    assert [(seconds, [each.at_s for each in found]) for seconds, found in plan.episodes()] == [
        (10.0, [0.0, 9.9]), (10.0, [0.0]), (5.0, [4.5, 5.0]),
    ]
    whole = HarnessPlan(seconds=25.0, faults=faults)
    assert whole.episodes() == [(25.0, list(faults))]
    assert "episode" not in text(whole)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_kind_has_its_object(kind: Kind) -> None:
    stage = Stage(asked=NOTHING, links=NOTHING, commands=NOTHING, active=lambda: "a", files=NOTHING, powered=NOTHING)
    assert effect_of(fault_of(kind), stage)


@pytest.mark.parametrize("name", sorted(scenarios()))
def test_every_scenario_can_be_read_and_says_what_happens(name: str) -> None:
    plan = parse(scenarios()[name].read_text(encoding="utf-8"))
    assert plan.about
    assert plan.faults


@pytest.mark.parametrize(("source", "told"), [
    ("at 1 burn a", "line 1 of the plan, 'at 1 burn a': no fault is called 'burn'"),
    ("seconds 9\nat 1 latency a>b", "line 2 .*latency lasts: say `for`"),
    ("at 1 latency a for 2", "the target of latency is one of c>a"),
    ("at 1 latency a>b for 2 how 5/4/3", "at most 2 numbers"),
    ("at 1 bandwidth a>b for 2 how much", "line 1"),
    ("at 1 one-way a>b for 2 how along", "`how` of one-way is one of up, down"),
    ("at 1 disk-fails a for 2", "`how` of disk-fails is one of disk, wal, engine, journal, dfs"),
    ("at 1 disk-fails a for 2 how wal/EPERM", "'EPERM' is none of EIO, EROFS, ENOSPC"),
    ("at 1 disk-hangs a for 2 how wal/3", "`how` of disk-hangs is one of disk"),
    ("at 1 disk-full a for 2 how wal/-1", "`how` of disk-full is one of disk"),
    ("at 1 disk-slow a for 2 how wal/long", "line 1"),
    ("at 1 sync-fails a how wal", "sync-fails lasts"),
    ("at 1 power-loss both how kept", "`how` of power-loss is nothing, or lost"),
    ("at 1 failover b how well", "`how` of failover is nothing, or accept-data-loss"),
    ("at 1 degrade active how well", "degrade has no `how`"),
    ("at 1 rot a how wal/burnt", "`how` of rot is one of wal, remote"),
    ("at 1 part-back a for 2 how disk", "`how` of part-back is one of wal, journal, notes"),
    ("at 1 wrong-config a for 2 how all", "`how` of wrong-config is one of peer-is-itself"),
    ("at 1 crash-at a for 2", "'' is no point for it: there are PORT.CALL.before or .after"),
    ("at 1 crash-at a for 2 how journal.sav.before", "'journal.sav.before' is no point for it: there are journal.create.after"),
    ("at 1 crash-at a for 2 how journal.save.before/0", "the first is 1"),
    ("at 1 fail-at a for 2 how engine.apply.before", "is no point for it: there are PORT.CALL"),
    ("at 1 wait-at a for 2 how commit.framed", "is no point for it: there are PORT.CALL"),
    ("at 1 pause-at a how commit.framed", "pause-at lasts"),
    ("at 1 clock-jump a how 90000", "less than 86400"),
    ("at 1 clock-jump a how 0", "forwards or .below 0. backwards"),
    ("at 1 clock-drift a for 2 how 1.25", "no faster or slower than 20%"),
    ("at 1 clock-drift a for 2 how 0.8", "no faster or slower than 20%"),
    ("at 1 clock-drift a how 1.1", "clock-drift lasts"),
    ("at 1 crash-operator b how switchover", "how many ms it lives"),
    ("at 1 crash-operator b how dance/5", "is one of failover, switchover"),
    ("at 1 few-files a for 2 how -1", "and not below 0"),
    ("at 1 no-threads a", "no-threads lasts"),
    ("seconds 5\nat 6 crash a", "does not lie within the 5 s"),
    ("workload dance", "workload 'dance' is none of"),
    ("clients 0", "more than 0"),
    ("needs ships", "a plan needs one or more of directory, hdfs"),
    ("at 1 crash nn-a", "only a pair with hdfs has nn-a: say `needs hdfs`"),
    ("needs hdfs\nat 1 down a>pg-a for 2", "only a pair with postgresql has a>pg-a"),
    ("needs coordinator\nat 1 crash pg-w", "only a pair with coordinator-server has pg-w"),
    ("policy available", "say `needs coordinator`"),
    ("policy bold", "policy 'bold' is none of protect, available"),
    ("at 1 pause a for 2 how long", "`how` of pause is nothing, or, of a site, taken"),
    ("at 1 pause m1 for 2 how taken", "`how` of pause is nothing, or, of a site, taken"),
    ("at 1 pause toxiproxy for 2", "the target of pause is one of a, b"),
    ("at 1 monitor m1 how kindly", "`how` of monitor is nothing, or act"),
    ("needs hdfs\nat 1 site-lost nn-a", "the target of site-lost is one of a, b"),
    ("speed 3", "'speed' begins no line of a plan"),
])
def test_what_is_wrong_is_told(source: str, told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        parse(source)


def test_every_planted_bug_has_a_plan_that_can_be_read_and_a_scenario() -> None:
    assert set(PLANS) == set(BUGS)
    for name, bug in BUGS.items():
        assert parse(plan_of(name)).faults
        assert bug.scenario in scenarios()
