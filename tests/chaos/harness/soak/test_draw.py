"""A soak draws the same from the same seed, every kind of event, and no loss that a pair is not made for."""

from __future__ import annotations

from collections import Counter

from chaos.harness.faults import changed, commands, limits, older, rot, steps
from chaos.harness.faults.registry import BY_NAME
from chaos.harness.pair.parts import POSTGRES_LINKS, SERVERS, Parts, need_of
from chaos.harness.plan import parse, text
from chaos.harness.soak.draw import EPISODES, FIRST_S, LONG_EPISODES, LONG_EVERY, SECONDS, drawn
from chaos.harness.traffic.workloads import WORKLOADS
from chaos.simulate.aims import calls_of, points

AT_STEPS = {kind.name for kind in steps.KINDS}
PLANS = [drawn(1, number, Parts()) for number in range(120)]
LONG = PLANS[::LONG_EVERY]


def test_a_seed_and_a_number_give_one_plan_and_it_can_be_read_back() -> None:
    assert drawn(1, 7, Parts()) == PLANS[7]
    assert drawn(2, 7, Parts()) != PLANS[7]
    assert all(parse(text(plan)) == plan for plan in PLANS)


def test_every_kind_and_every_workload_comes() -> None:
    kinds = {fault.kind for plan in PLANS for fault in plan.faults}
    not_needed = {"start", "rejoin", "resume", "abort"}  # a gateway that is healed starts, rejoins and resumes by itself
    spoiling = {kind.name for room in (older, rot, changed) for kind in room.KINDS}  # leaves one copy: in a plan of its own
    watching = {"monitor"}  # it acts where the policy lets it, which is another pair
    secrets = {kind.name for kind in commands.SECRETS}  # of a pair that has some
    assert kinds == set(BY_NAME) - not_needed - spoiling - watching - secrets
    assert {plan.workload for plan in PLANS} == set(WORKLOADS) - {"documents"}


def test_each_episode_has_its_own_faults() -> None:
    for plan in PLANS:
        episodes = [faults for _, faults in plan.episodes()]
        assert len(episodes) == (LONG_EPISODES if plan in LONG else EPISODES)
        assert all(episodes)
        assert episodes[0] != episodes[1]
        assert sum(map(len, episodes)) == len(plan.faults)


def test_no_gateway_ends_in_a_long_leg_and_each_changes_its_role_again_and_again() -> None:
    ends = {"crash", "terminate", "power-loss", "site-lost", "disk-fails", "disk-full", "sync-fails", *AT_STEPS}
    ends |= {kind.name for kind in limits.KINDS}
    for plan in LONG:
        kinds = Counter(fault.kind for fault in plan.faults)
        assert not ends & set(kinds)
        assert kinds["failover"] + kinds["switchover"] + kinds["crash-operator"] > LONG_EPISODES
        assert kinds["resync"] > 0


def test_a_site_is_lost_first_or_never_in_an_episode() -> None:
    for _, faults in (each for plan in PLANS for each in plan.episodes()):
        lost = [fault for fault in faults if fault.kind == "site-lost"]
        others = [fault.at_s for fault in faults if fault.kind in ("crash", "pause", "terminate", "switchover")]
        assert [fault.at_s for fault in lost] in ([], [FIRST_S])
        assert not lost or min(others, default=SECONDS) > FIRST_S + 30


def test_each_way_of_a_fault_at_a_step_comes_often_and_so_does_the_loss_of_a_site() -> None:
    legs = Counter(kind for plan in PLANS for kind in {fault.kind for fault in plan.faults})
    wanted = {"site-lost", *(kind.name for kind in steps.KINDS)}
    assert min(legs[kind] for kind in wanted) > len(PLANS) / 3


def test_a_fault_at_a_step_is_of_what_happens_then_at_the_site_that_does_it() -> None:
    aimed = Counter[str]()
    for _, faults in (each for plan in PLANS for each in plan.episodes()):
        for fault in faults:
            if fault.kind not in AT_STEPS or fault.how in (*points("write"), *calls_of("write")):
                continue
            begun = {each.kind for each in faults if abs(each.at_s - 0.3 - fault.at_s) < 0.06 and each.target == fault.target}
            begun &= {"failover", "switchover", "degrade", "resync"}
            courses = [course for course in begun if fault.how in (*points(course), *calls_of(course))]
            assert courses, fault
            aimed.update(courses)
    assert min(aimed[course] for course in ("failover", "switchover", "degrade", "resync")) >= 10


def test_faults_overlap() -> None:
    assert any(
        one.at_s < other.at_s < one.at_s + one.for_s for plan in PLANS for one in plan.faults for other in plan.faults
    )


def test_servers_are_broken_where_there_are_some_and_their_files_are_not() -> None:
    on_servers = [drawn(1, number, Parts("hdfs", "postgresql", "server")) for number in range(120)]
    targets = {fault.target for plan in on_servers for fault in plan.faults}
    assert targets >= {*SERVERS, *POSTGRES_LINKS, "a>nn-b", "b>dfs-a"}
    assert not {fault.how for plan in on_servers for fault in plan.faults} & {"dfs", "engine"}
    assert all(parse(text(plan)) == plan for plan in on_servers)
    assert not any(need_of(fault.target) for plan in PLANS for fault in plan.faults)
