"""Disasters: what was synced is lost or wrong, one copy of it, and the pair comes back whole by what the handbook says."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from chaos.simulate.draw import (
    answered_falsely,
    audited,
    chosen,
    darkened,
    focused,
    hurried,
    lied_to,
    plain,
    refused,
    restored,
    watched,
)
from chaos.simulate.plan import BY_NAME, DISASTERS, OLDER, PLAIN, SeedPlan, parse
from chaos.simulate.run import Result, Run, collect
from gateway.service.documents import ServingDocument, SiteTrouble
from gateway.site.serving_judgement import STANDBY_STORAGE, ServingFacts, site_troubles
from remote_log.writing.segments import RemoteSegments
from switchover.register.remembering import RememberingCoordinator

NAMES = {kind.name for kind in (*DISASTERS, *OLDER)}
CALM = "seed 3\nworkload registers\nclients 4\noperations 120\nknob op_interval_s 0.15\nknob segment_bytes 4096\n"


def _clean(plan: SeedPlan) -> Result:
    result = Run(plan).execute()
    collect()
    assert result.violations == (), f"seed {plan.seed}: {result.violations[0]}"
    return result


def _drawn(seed: int) -> list[str]:
    return [fault.kind for fault in focused(seed).faults if fault.kind in NAMES]


def test_a_plan_has_one_disaster_at_most_and_then_nobody_accepts_a_loss() -> None:
    drawn = [_drawn(seed) for seed in range(400)]
    assert all(len(kinds) <= 1 for kinds in drawn)
    assert 90 < sum(len(kinds) for kinds in drawn) < 180
    assert {kind for kinds in drawn for kind in kinds} == NAMES
    struck = [focused(seed) for seed in range(400) if _drawn(seed)]
    accepting = [fault for plan in struck for fault in plan.faults if fault.how == "accept-data-loss"]
    assert {fault.target for fault in accepting} == {"active"}, "it goes on where it was, when its coordinator was lost"


def test_without_a_disaster_a_seed_is_what_it_was() -> None:
    calm = [seed for seed in range(50) if not _drawn(seed)]
    for seed in calm:
        calm_plan = answered_falsely(lied_to(refused(audited(hurried(watched(chosen(plain(seed))))))))
        assert focused(seed) == calm_plan == answered_falsely(lied_to(refused(audited(focused(seed, PLAIN)))))
    assert all(focused(seed, PLAIN) == hurried(watched(chosen(plain(seed)))) for seed in calm)
    assert {fault.kind for seed in range(50) for fault in focused(seed, tuple(NAMES)).faults} <= NAMES
    assert {fault.kind for seed in range(50) for fault in focused(seed, tuple(kind.name for kind in OLDER)).faults} == {
        kind.name for kind in OLDER
    }
    assert {*PLAIN, *NAMES, "barrier", "refuse-change", "lie", "false-answer", "at-step"} == set(BY_NAME)


def test_a_part_that_comes_back_older_leaves_the_plans_of_other_seeds_alone() -> None:
    without = tuple(name for name in BY_NAME if name not in {kind.name for kind in OLDER})
    plans = [(focused(seed, without), focused(seed)) for seed in range(400)]
    changed = [(before, after) for before, after in plans if before != after]
    assert 35 < len(changed) < 100
    for before, after in changed:
        assert darkened(restored(before)) == after
        assert replace(before.knobs, monitor="") == replace(after.knobs, monitor="")
        assert all(fault.kind not in {kind.name for kind in DISASTERS} for fault in after.faults)


def test_beside_an_older_disk_the_other_site_has_no_power_and_no_dfs() -> None:
    plans = [(restored(plan), darkened(restored(plan))) for plan in map(plain, range(400))]
    changed = [(before, after) for before, after in plans if before != after]
    assert 10 < len(changed) < 60
    for before, after in changed:
        added = [fault for fault in after.faults if fault not in before.faults]
        [back] = [fault for fault in added if fault.kind in ("storage-back", "disk-back")]
        for kind in ("crash", "dfs-down"):
            [beside] = [fault for fault in added if fault.kind == kind]
            assert {back.target, beside.target} == {"a", "b"}
            assert abs(beside.at_s - back.at_s - back.for_s) <= 1.0
            assert beside.how == ("machine" if kind == "crash" else "")
        assert all(fault.kind != "degrade" and fault.how != "accept-data-loss" for fault in after.faults)
    assert {fault.target for _, after in changed for fault in after.faults if fault.kind.endswith("-back")} == {"a", "b"}


def test_some_crashes_come_in_the_middle_of_what_changes_modes() -> None:
    plans = [(watched(chosen(plain(seed))), focused(seed, PLAIN)) for seed in range(200)]
    more = [len(hurried.faults) - len(before.faults) for before, hurried in plans]
    assert 0.1 < sum(more) / len(more) < 0.5
    assert {fault.kind for before, hurried in plans for fault in set(hurried.faults) - set(before.faults)} == {"crash"}


def test_frames_that_were_in_a_lost_remote_log_and_are_committed_later_have_one_copy() -> None:
    """The active's disk hangs, so the other site has more than it, and is lost; filled anew it has what the active had applied.
    What is committed when the disk answers again has one copy, until the pair was asynchronous and is synchronous again."""
    faults = "at 1.835 hang-disk a for 2.962\nat 2.222 site-lost b for 0.628\nat 3.8 crash b for 4.404 how process\n"
    skipped = ",".join(str(number) for number in range(5))
    knobs = "knob lease_s 2.0\nknob op_interval_s 0.14\nknob link_s 0.02\nknob link_jitter 0.1\nknob monitor act\n"
    plan = parse(f"seed 6396291\nworkload sets\nclients 8\noperations 1\nskipped {skipped}\n{knobs}{faults}")
    result = _clean(plan)
    alone = [look for look in result.history.copies if look.held_there is None]
    assert alone
    assert max(look.committed for look in alone) > min(look.committed for look in alone), "some were committed meanwhile"


@pytest.mark.parametrize("coordinator", ["True", "False"])
@pytest.mark.parametrize("site", ["active", "standby"])
@pytest.mark.parametrize("disaster", ["replace-disk", "site-lost"])
def test_an_empty_site_is_filled_and_nothing_is_lost(disaster: str, site: str, coordinator: str) -> None:
    result = _clean(parse(f"{CALM}knob coordinator {coordinator}\nat 4.0 {disaster} {site} for 1.0\n"))
    acknowledged = sum(call.outcome is not None and call.outcome.ack is not None for call in result.history.calls)
    assert acknowledged > 40
    assert result.history.opened[-1].site == ("b" if site == "active" else "a")
    assert any(line.endswith("ends") for line in result.trace)


ROT = f"{CALM}knob flush_interval_s 2.0\nat 3.0 cut a-b for 1.5\nat 4.0 rot active how %s\n"


@pytest.mark.parametrize("coordinator", ["True", "False"])
def test_a_rotten_remote_log_stops_a_takeover_and_no_restart(coordinator: str) -> None:
    """The old active has everything in its own log. Once the register said that the pair could open nowhere (70009)."""
    plan = ROT % "remote" + f"at 4.1 crash a for 3.0 how machine\nat 4.2 failover b\nknob coordinator {coordinator}\n"
    result = _clean(parse(plan))
    assert [each.site for each in result.history.opened] == ["a", "a"]
    assert any("bit at" in line for line in result.trace)


@pytest.mark.parametrize("coordinator", ["True", "False"])
@pytest.mark.parametrize("then", ["at 4.1 crash a for 1.0\n", "at 4.1 failover b\n"])
def test_a_site_with_a_rotten_wal_is_emptied_and_filled(then: str, coordinator: str) -> None:
    result = _clean(parse(ROT % "wal" + then + f"knob coordinator {coordinator}\n"))
    assert [each.site for each in result.history.opened] == ["a", "b"]
    assert any("an empty data directory at a" in line for line in result.trace)


@pytest.mark.parametrize("then", [
    "", "at 4.5 crash active for 1.0\n", "at 4.5 degrade active\nat 5.0 failover active how accept-data-loss\n",
])
def test_a_pair_whose_coordinator_forgot_it_begins_anew_where_it_was(then: str) -> None:
    result = _clean(parse(f"{CALM}at 4.0 coordinator-lost w\n{then}"))
    assert [each.site for each in result.history.opened] == ["a", "a"]
    assert any("failover at a" in line for line in result.trace)


BACK = CALM + "at 2.0 switchover b\nat 4.0 coordinator-back w how 8\n"


@pytest.mark.parametrize("then", ["", "at 4.1 crash a for 0.5\n", "at 4.1 crash b for 1.0\nat 4.2 failover a\n"])
def test_a_register_that_went_back_is_believed_by_nobody(then: str) -> None:
    result = _clean(parse(BACK + then))
    assert [each.site for each in result.history.opened] == ["a", "b", "b"]
    assert any("failover at b" in line for line in result.trace)


def test_a_site_that_hears_that_the_register_went_back_does_not_open_and_close_for_ever() -> None:
    """Its own disk was full, so that only the other site remembers the value that is gone (10007736)."""
    knobs = "knob lease_s 2.0\nknob noop_interval_s 0.6\nknob flush_interval_s 0.1\nknob degrade_after_s 1.0\n"
    knobs += "knob op_interval_s 0.105\nknob duplicate 0.01\nknob drift_a -0.04\nknob drift_b -0.04\n"
    faults = "at 5.769 full-disk active for 2.212\nat 6.76 degrade active\nat 6.898 crash a for 5.311 how machine\n"
    faults += "at 6.932 coordinator-back w how 2\nat 12.401 crash a for 5.721 how machine\n"
    result = _clean(parse(f"seed 10007736\nworkload check_and_mutate\nclients 6\noperations 236\n{knobs}{faults}"))
    assert len(result.history.opened) <= 3
    assert any("failover at" in line for line in result.trace)


@pytest.mark.parametrize("site", ["a", "b"])
@pytest.mark.parametrize("part", ["wal", "journal", "notes"])
def test_a_part_of_a_disk_that_went_back_costs_nothing(part: str, site: str) -> None:
    result = _clean(parse(f"{CALM}at 2.0 part-back {site} for 3.0 how {part}\nat 3.0 switchover b\n"))
    assert any(f"the {part} of {site} is back where it was" in line for line in result.trace)


@pytest.mark.parametrize("coordinator", ["True", "False"])
@pytest.mark.parametrize("then", ["", "at 5.1 failover b\n", "at 3.0 switchover b\n", "at 5.2 crash active for 1.0\n"])
@pytest.mark.parametrize("site", ["a", "b"])
@pytest.mark.parametrize("part", ["storage", "disk"])
def test_a_storage_or_a_disk_that_went_back_costs_nothing(part: str, site: str, then: str, coordinator: str) -> None:
    result = _clean(parse(f"{CALM}knob coordinator {coordinator}\nat 2.0 {part}-back {site} for 3.0\n{then}"))
    assert any(f"the {part} of {site} is back where it was" in line for line in result.trace)


def test_an_active_says_that_its_standby_s_storage_went_back(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[SiteTrouble] = []

    def judged(facts: ServingFacts, serving: ServingDocument) -> list[SiteTrouble]:
        found = site_troubles(facts, serving)
        said.extend(one for one in found if one.about == STANDBY_STORAGE)
        return found

    monkeypatch.setattr("gateway.site.serving_facts.site_troubles", judged)
    result = _clean(parse(f"{CALM}knob flush_interval_s 0.1\nat 2.0 storage-back b for 3.0\n"))
    assert [each.site for each in result.history.opened] == ["a"]
    assert any(" is back where it was " in line for line in result.trace)
    assert said[0].seen.startswith("site b had stored everything up to ")
    assert said[-1].seen.endswith("it has everything again")


@pytest.mark.parametrize("coordinator", ["True", "False"])
@pytest.mark.parametrize("then", ["at 7.0 slow-disk b for 0.5\n", "at 4.0 crash b for 4.0\n", "at 5.1 crash active for 1.0\n"])
def test_a_dfs_that_went_back_is_noticed_and_its_log_is_copied_there_again(then: str, coordinator: str) -> None:
    result = _clean(parse(f"{CALM}knob coordinator {coordinator}\nat 2.0 dfs-back b for 3.0\n{then}"))
    assert any("the DFS of b is back where it was" in line for line in result.trace)
    assert [each.site for each in result.history.opened] == ["a", "a"], "its active began a new epoch by itself"


@pytest.mark.parametrize("coordinator", ["True", "False"])
def test_the_dfs_of_the_active_itself_that_went_back_costs_nothing(coordinator: str) -> None:
    result = _clean(parse(f"{CALM}knob coordinator {coordinator}\nat 2.0 dfs-back a for 3.0\nat 6.0 switchover b\n"))
    assert any("the DFS of a is back where it was" in line for line in result.trace)


def test_a_dfs_that_went_back_unnoticed_leaves_one_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    async def unseen(_: Any) -> None:
        return None

    plan = parse(f"{CALM}at 2.0 dfs-back b for 3.0\nat 3.0 crash b for 6.0\n")
    _clean(plan)
    monkeypatch.setattr(RemoteSegments, "check_kept", unseen)
    monkeypatch.setattr(RemoteSegments, "is_needless", lambda *_: True)
    assert {violation.checker for violation in Run(plan).execute().violations} >= {"two_copies"}


def test_a_closed_active_with_an_older_storage_gives_way_by_the_command_that_it_names() -> None:
    result = _clean(parse(f"{CALM}at 2.0 storage-back a for 3.0\n"))
    assert [each.site for each in result.history.opened] == ["a", "b"]


def test_an_asynchronous_active_with_an_older_disk_gives_way_by_a_failover_that_accepts_the_loss() -> None:
    """Nobody has a newer copy of what it alone acknowledged, and its own message names the failover (12007244)."""
    knobs = "knob policy available\nknob lease_s 0.5\nknob noop_interval_s 0.15\nknob degrade_after_s 3.0\n"
    knobs += "knob op_interval_s 0.07\nknob link_s 0.02\nknob link_jitter 0.1\nknob loss 0.005\nknob monitor act\n"
    faults = "at 0.491 disk-back b for 2.014\nat 0.799 switchover a\nat 1.294 failover b\nat 3.246 resync active\n"
    faults += "at 3.766 fail-append b how all\nat 5.203 crash a for 5.981\nat 5.439 slow-disk active for 2.896\n"
    drift = "knob drift_a 0.04\nknob drift_b 0.04\n"
    seed = "seed 12007247\nworkload scanning\nclients 4\noperations 201\n"
    result = _clean(parse(f"{seed}{knobs}{drift}{faults}"))
    assert [each.site for each in result.history.opened] == ["a", "b", "a"]


def test_a_closed_active_that_lacks_records_is_not_degraded_so_that_the_other_site_takes_over_without_a_loss() -> None:
    """Degraded, it could not open either, and every failover was refused (23382)."""
    knobs = "knob coordinator False\nknob lease_s 2.0\nknob noop_interval_s 0.6\nknob flush_interval_s 0.1\n"
    knobs += "knob segment_bytes 4096\nknob op_interval_s 0.105\nknob link_jitter 0.1\nknob duplicate 0.01\n"
    faults = "at 0.262 storage-back active for 3.688\nat 1.892 pause b for 7.489\nat 6.861 degrade active\n"
    result = _clean(parse(f"seed 23382\nworkload sets\nclients 6\noperations 265\n{knobs}{faults}"))
    assert [each.site for each in result.history.opened] == ["a", "b"]
    assert all(each.mode == "sync" for each in result.history.modes if each.epoch == 1)


def test_what_is_trimmed_by_what_a_storage_said_before_it_went_back_has_one_copy_until_it_holds_that_again() -> None:
    """The active is paused, and trims by the standby's last word when it wakes (21967): nobody could know better."""
    knobs = "knob lease_s 2.0\nknob noop_interval_s 0.6\nknob degrade_after_s 1.0\nknob op_interval_s 0.122\n"
    knobs += "knob link_s 0.0005\nknob link_jitter 1.0\n"
    faults = "at 1.479 disk-back standby for 2.313\nat 1.957 pause active for 7.134\n"
    result = _clean(parse(f"seed 21967\nworkload sets\nclients 7\noperations 202\n{knobs}{faults}"))
    assert any(look.held_there is None for look in result.history.copies)


def test_a_register_that_is_believed_though_it_went_back_breaks_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failover to the site that the older value names accepts a loss; what both sites acknowledged since is not in it. P3
    holds: what the remote log held of it is in a quarantine, whose manifest names it."""
    plan = BACK.replace("seed 3", "seed 29") + "at 4.1 crash b for 3.0\nat 4.1 failover a how accept-data-loss\n"
    _clean(parse(plan))

    async def believed(_: Any, value: Any, *__: Any) -> Any:
        return value

    monkeypatch.setattr(RememberingCoordinator, "_judged", believed)
    assert {violation.promise for violation in Run(parse(plan)).execute().violations} >= {"P1"}


@pytest.mark.parametrize("then", ["", "at 2.987 failover standby\nat 4.692 coordinator-back w how 5\n"])
def test_an_active_that_was_stopped_asks_its_remote_log_before_its_policy_degrades_it(then: str) -> None:
    """Stopped for longer than the policy waits, it has no proof as young as that when it wakes, and has lacked none. Degraded
    at once by a register that had forgotten its successor, it served beside it (97111636)."""
    knobs = "knob policy available\nknob lease_s 0.5\nknob op_interval_s 0.122\nknob link_jitter 0.1\n"
    faults = f"at 2.399 pause a for 4.962\n{then}at 6.66 slow-link a-b for 1.057\n"
    result = _clean(parse(f"seed 97111636\nworkload counters\nclients 7\noperations 102\n{knobs}{faults}"))
    assert all(each.mode == "sync" for each in result.history.modes if each.epoch == 1)


@pytest.mark.parametrize("site", ["a", "b"])
@pytest.mark.parametrize("then", ["", "at 4.1 crash active for 1.0\n", "at 4.1 crash a for 3.0\nat 4.2 failover b\n"])
def test_one_of_two_copies_of_the_register_is_enough(site: str, then: str) -> None:
    result = _clean(parse(f"{CALM}knob coordinator False\nat 4.0 coordinator-lost w how {site}\n{then}"))
    assert not any("does not happen" in line for line in result.trace)
    assert result.history.apart == ()


@pytest.mark.parametrize("then", ["", "at 4.1 crash active for 1.0\n", "at 4.1 failover b\n"])
def test_a_damaged_file_of_the_register_is_copied_anew(then: str) -> None:
    result = _clean(parse(ROT % "register" + then + "knob coordinator False\n"))
    assert any("is deleted" in line for line in result.trace)


def test_a_site_with_damaged_cursors_does_not_start_until_they_are_deleted() -> None:
    result = _clean(parse(ROT % "cursors" + "at 4.1 crash a for 1.0\n"))
    assert any("cursors/holders.json of site a is deleted" in line for line in result.trace)
    assert [each.site for each in result.history.opened] == ["a", "a"]


def test_the_only_copy_is_not_taken() -> None:
    result = _clean(parse(CALM + "at 2.0 crash b for 6.0 how machine\nat 2.5 degrade active\nat 4.0 replace-disk a for 1.0\n"))
    assert any("does not happen" in line for line in result.trace)
