"""Barriers in simulated runs: both sites keep the same under every fault, and plans without them are what they were."""

from __future__ import annotations

from chaos.simulate.draw import audited, focused, plain
from chaos.simulate.plan import PLAIN, parse
from chaos.simulate.run import Result, Run, collect

CALM = "workload registers\nclients 4\noperations 120\nknob op_interval_s 0.1\n"


def run(plan: str) -> Result:
    result = Run(parse(plan)).execute()
    collect()
    assert result.violations == ()
    return result


def held(result: Result) -> dict[str, set[str]]:
    sites: dict[str, set[str]] = {}
    for kept in result.history.kept:
        sites.setdefault(kept.name, set()).add(kept.site)
    return sites


def test_one_plan_in_four_takes_barriers_and_the_others_are_what_they_were() -> None:
    plans = {seed: focused(seed) for seed in range(200)}
    audits = {seed for seed, plan in plans.items() if any(fault.kind == "barrier" for fault in plan.faults)}
    assert 25 < len(audits) < 75
    for seed in plans.keys() - audits:
        assert audited(plans[seed]) == plans[seed]
    assert not any(fault.kind == "barrier" for seed in range(200) for fault in plain(seed, PLAIN).faults)


def test_in_a_calm_run_both_sites_keep_each() -> None:
    result = run(f"seed 5\n{CALM}at 1.0 barrier active\nat 2.0 barrier active\nat 3.0 barrier active\n")
    assert held(result) == {name: {"a", "b"} for name in ("n1", "n2", "n3", "n4")}  # the last one is of the end
    assert len({kept.digest for kept in result.history.kept}) == 4
    assert len(result.history.barriers) == 4


def test_a_site_that_comes_back_keeps_what_it_met_late() -> None:
    result = run(f"seed 6\n{CALM}at 1.0 crash b for 4.0 how machine\nat 2.0 barrier active\nat 3.0 barrier active\n")
    assert held(result)["n1"] == held(result)["n2"] == {"a", "b"}


def test_what_a_lost_active_kept_alone_is_of_no_other_site() -> None:
    """It is cut off, degrades by command, keeps a barrier, and the other one is opened by force."""
    result = run(
        f"seed 7\n{CALM}at 1.0 cut a-b for 6.0\nat 1.2 degrade a\nat 3.5 barrier a\nat 4.5 crash a for 6.0\n"
        "at 5.5 failover b how accept-data-loss\n"
    )
    assert result.history.opened[-1].site == "b"
    assert held(result)["n1"] == {"a"}
