"""A site dies at every named step of the write path, of activation and of each plan; then everything promised is checked.

One pair of real processes lives through all cases of a test, so each case also starts from what the one before left behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.processes import OTHER, Processes, open_pair

pytestmark = pytest.mark.long

WRITE_PATH = [
    "commit.framed", "commit.local_synced", "commit.remote_synced", "commit.committed", "commit.applied", "commit.acknowledged",
]
ACTIVATION = ["begin", "claim", "fence", "wait_lease", "replay", "applied", "started", "open"]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Processes]:
    with open_pair(tmp_path) as made:
        yield made


def test_the_active_dies_at_every_step_of_the_write_path_and_restarts(pair: Processes) -> None:
    for nth, step in enumerate(WRITE_PATH, start=3):
        pair.kill("a")
        pair.start("a", step, nth * 4)
        pair.until(f"a dies at {step}", lambda: (pair.write("a"), pair.died("a"))[1])
        pair.start("a")
        pair.until_roles("ACTIVE", "STANDBY")
        assert pair.write("a")
        pair.check("a")


def test_the_active_dies_at_every_step_of_the_write_path_and_the_other_takes_over(pair: Processes) -> None:
    active = "a"
    for nth, step in enumerate(WRITE_PATH, start=2):
        other = OTHER[active]
        pair.kill(active)
        pair.start(active, step, nth * 5)
        pair.until(f"{active} dies at {step}", lambda: (pair.write(active), pair.died(active))[1])  # noqa: B023
        ended = pair.operate(other, "failover", other)
        assert ended["state"] == "succeeded", ended
        assert pair.write(other)
        pair.check(other)
        pair.start(active)
        pair.until("sync again", lambda: pair.role(other) == "ACTIVE" and pair.role(active) == "STANDBY")  # noqa: B023
        assert pair.write(other)
        pair.check(other)
        active = other


def test_the_restarting_active_dies_at_every_step_of_activation(pair: Processes) -> None:
    for step in ACTIVATION:
        for _ in range(3):
            pair.write("a")
        pair.kill("a")
        pair.start("a", f"activation.{step}")
        pair.until(f"a dies at {step}", lambda: pair.died("a"))
        pair.start("a")
        pair.until_roles("ACTIVE", "STANDBY")
        pair.check("a")


def test_the_takeover_dies_at_every_step_and_goes_on_by_itself(pair: Processes) -> None:
    active = "a"
    for step in ACTIVATION:
        other = OTHER[active]
        pair.kill(other)
        pair.start(other, f"activation.{step}")
        pair.until("it follows", lambda: pair.role(other) == "STANDBY")  # noqa: B023
        for _ in range(5):
            pair.write(active)
        pair.kill(active)
        pair.operate(other, "failover", other)
        pair.until(f"{other} dies at {step}", lambda: pair.died(other))  # noqa: B023
        pair.start(other)
        pair.until("it is open", lambda: pair.role(other) in ("ACTIVE", "DOWNGRADE_ACTIVE"))  # noqa: B023
        assert pair.write(other)
        pair.check(other)
        pair.start(active)
        pair.until("sync again", lambda: pair.role(other) == "ACTIVE" and pair.role(active) == "STANDBY")  # noqa: B023
        pair.check(other)
        active = other


SWITCHOVER = [
    "preflight", "near", "begin", "drain", "catch_up", "step_down", "claim", "fence", "replay", "open", "cleanup", "verify"
]


def settled(pair: Processes, site: str) -> bool:
    """It has become something by itself."""
    document = pair.cluster(site)
    return document.get("role") in ("STANDBY", "ACTIVE", "DOWNGRADE_ACTIVE") and document["operation"] is None


def test_the_switchover_dies_after_every_step_and_goes_on_by_itself(pair: Processes) -> None:
    active = "a"
    for step in SWITCHOVER:
        other = OTHER[active]
        pair.kill(other)
        pair.start(other, f"plan.switchover.{step}.after")
        pair.until("it follows", lambda: pair.role(other) == "STANDBY" and pair.role(active) == "ACTIVE")  # noqa: B023
        for _ in range(4):
            assert pair.write(active)
        pair.operate(other, "switchover", other)
        pair.until(f"{other} dies after {step}", lambda: pair.died(other))  # noqa: B023
        pair.start(other)
        pair.until("it has settled", lambda: settled(pair, other))  # noqa: B023
        went_back = SWITCHOVER.index(step) < SWITCHOVER.index("step_down")  # it was no standby any more, or had not begun
        assert (pair.role(other) == "STANDBY") is went_back, (step, pair.role(other))
        if went_back:
            pair.until("the old active admits writes", lambda: pair.role(active) == "ACTIVE")  # noqa: B023
            assert pair.write(active)
            ended = pair.operate(other, "switchover", other)
            assert ended.get("state") == "succeeded", (step, ended)
        pair.until("it is open", lambda: pair.role(other) in ("ACTIVE", "DOWNGRADE_ACTIVE"))  # noqa: B023
        pair.until("sync again", lambda: pair.role(other) == "ACTIVE" and pair.role(active) == "STANDBY")  # noqa: B023
        assert pair.write(other)
        pair.check(other)
        active = other


def test_a_site_dies_in_the_middle_of_a_rejoin_a_degrade_and_a_resync(pair: Processes) -> None:
    for step in ("rejoin.replayed", "rejoin.cut", "rejoin.cleared"):
        pair.kill("b")
        pair.start("b", step)
        pair.until(f"b dies at {step}", lambda: pair.died("b"))
        pair.start("b")
        pair.until_roles("ACTIVE", "STANDBY")
        assert pair.write("a")
        pair.check("a")
    for kind, step in (("degrade", "degrade.recorded"), ("resync", "resync.tightened"), ("resync", "resync.recorded")):
        pair.kill("a")
        pair.start("a", step)
        pair.until("a is open", lambda: pair.role("a") in ("ACTIVE", "DOWNGRADE_ACTIVE") and pair.role("b") == "STANDBY")
        pair.write("a")
        if kind == "resync" and pair.role("a") == "ACTIVE":
            pair.operate("a", "degrade", None)
            pair.write("a")
        pair.operate("a", kind, None)
        pair.until(f"a dies at {step}", lambda: pair.died("a"))
        pair.start("a")
        pair.until("a is open", lambda: pair.role("a") in ("ACTIVE", "DOWNGRADE_ACTIVE") and pair.role("b") == "STANDBY")
        assert pair.write("a")
        pair.check("a")
