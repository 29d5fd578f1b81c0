"""Whole runs: the same plan gives the same trace anywhere, every promise holds, and a failing one is made smaller."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import patch

import pytest
import structlog
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from chaos.checkers.violation import Violation
from chaos.fault_lines import Fault
from chaos.simulate.cli import main
from chaos.simulate.draw import draw
from chaos.simulate.plan import BY_NAME, SeedPlan, parse, text
from chaos.simulate.run import Result, Run, collect
from chaos.simulate.shrink import shrink
from chaos.simulate.world import World
from gateway.epoch.active_epoch import ActiveEpoch
from gateway.epoch.commit_log import CommitLog
from gateway.epoch.write_traces import APPLY, REMOTE, SHIP, WAL
from gateway.service.rows import RowsService
from gateway.site.supervisor import Supervisor
from remote_log.replication.sink import APPLY as AT_STANDBY
from switchover.activation.activation import Activation
from tests.chaos.simulate import interpreters
from tests.recorded_traces import RecordedTraces
from tools.sources import ROOT
from twinlog.errors import InvalidInput

CLEAN_SEEDS = 60
ELSEWHERE_SEEDS = (*range(6), 28, 7151, 7554)  # run by each other Python: 28 has requests by HTTP, the last two differed once
_PRINT = (
    "import sys; from chaos.simulate.draw import draw; from chaos.simulate.run import Run; "
    "print(*[Run(draw(seed)).execute().trace_hash for seed in map(int, sys.argv[1:])], sep='\\n')"
)


@given(st.integers(0, 10**9))
@settings(max_examples=200, deadline=None)
def test_a_plan_survives_its_text(seed: int) -> None:
    plan = draw(seed)
    assert parse(text(plan)) == plan
    assert draw(seed) == plan
    assert all(fault.kind in BY_NAME for fault in plan.faults)


@pytest.mark.parametrize(("line", "named"), [
    ("at x crash a", "line 2"), ("at 1 flood a", "flood"), ("at 1 crash a until 3", "until"), ("sed 3", "sed"),
    ("knob lease_s long", "knob"), ("workload dancing", "dancing"), ("skipped 1,x", "line 2"),
])
def test_a_plan_that_is_none_names_its_line(line: str, named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        parse(f"seed 1\n{line}\n")


def test_traces_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run with every span recorded takes the very steps of one without: traces only look."""
    seeds = (28, 3)  # the first has requests by HTTP
    plain = [Run(draw(seed)).execute().trace_hash for seed in seeds]
    recorded = RecordedTraces()
    monkeypatch.setattr(World, "tracer", recorded)
    assert [Run(draw(seed)).execute().trace_hash for seed in seeds] == plain
    names = {span.name for span in recorded.spans}
    assert {WAL, REMOTE, APPLY, SHIP, AT_STANDBY} <= names
    assert any(name.startswith("step ") for name in names)


def test_only_the_named_faults_are_drawn() -> None:
    assert {fault.kind for seed in range(200) for fault in draw(seed, ("crash", "cut")).faults} == {"crash", "cut"}


def _trace_hashes(hash_seed: str, seeds: Sequence[int], interpreter: Path) -> list[str]:
    return subprocess.run(
        [interpreter, "-c", _PRINT, *map(str, seeds)], capture_output=True, text=True, check=True, timeout=300, cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
    ).stdout.split()


@pytest.mark.long
def test_one_seed_gives_one_trace_in_every_process_and_on_every_python() -> None:
    own = _trace_hashes("0", ELSEWHERE_SEEDS, Path(sys.executable))
    assert len(set(own)) == len(ELSEWHERE_SEEDS)
    assert own[:2] == _trace_hashes("4242", ELSEWHERE_SEEDS[:2], Path(sys.executable))
    for minor in interpreters.found():
        other = interpreters.prepared(minor)
        assert other.exists(), f"Python 3.{minor} is on this machine, and not prepared: `make interpreters`"
        assert _trace_hashes("0", ELSEWHERE_SEEDS, other) == own, f"Python 3.{minor}"


def test_the_trace_is_of_the_plan() -> None:
    plan = draw(3)
    first = Run(plan).execute()
    assert Run(plan).execute().trace_hash == first.trace_hash
    assert Run(replace(plan, seed=4)).execute().trace_hash != first.trace_hash


def test_every_promise_holds_for_the_first_seeds() -> None:
    """A small part of `make simulate`. Each run works: operations are answered, and faults happen."""
    operations = faults = acknowledged = 0
    for seed in range(CLEAN_SEEDS):
        result = Run(draw(seed)).execute()
        assert result.violations == (), f"seed {seed}: {result.violations[0]}"
        operations, faults = operations + result.operations, faults + result.faults
        if seed % 20 == 0:
            collect()
        acknowledged += sum(call.outcome is not None and call.outcome.ack is not None for call in result.history.calls)
    assert operations > 150 * CLEAN_SEEDS
    assert faults > 4 * CLEAN_SEEDS
    assert acknowledged > 40 * CLEAN_SEEDS


async def _wrong(*_: object) -> None:
    raise ValueError("planted")


@pytest.mark.parametrize(("owner", "name"), [
    (Supervisor, "_round"), (ActiveEpoch, "trim"), (CommitLog, "_apply_loop"), (RowsService, "read"), (Activation, "fence"),
])
def test_an_error_that_the_product_survives_without_knowing_it_is_a_violation(owner: type, name: str) -> None:
    """The product logs it and goes on, or makes a problem of it: a run must not take that for health."""
    with patch.object(owner, name, _wrong):
        result = Run(replace(draw(3), faults=())).execute()
    assert any(each.promise == "internal" and "planted" in each.sentence for each in result.violations)


def test_a_run_leaves_the_logging_of_its_process_as_it_was() -> None:
    before = structlog.get_config()
    Run(draw(1)).execute()
    collect()
    assert structlog.get_config() == before


@pytest.mark.parametrize("kept", sorted((ROOT / "tests/scenarios").glob("simulated_*.txt")), ids=lambda path: path.stem)
def test_what_was_found_once_stays_mended(kept: Path) -> None:
    """Plans that broke a promise (docs/track-record.md), as small as shrinking made them."""
    result = Run(parse(kept.read_text())).execute()
    assert result.violations == (), result.violations[0]


def _failing(plan: SeedPlan) -> Result:
    """A made-up run that fails as long as a crash of b is in it and 40 operations are asked."""
    result = Run(replace(plan, operations=0, faults=(), clients=1)).execute()
    fails = any(fault.kind == "crash" and fault.target == "b" for fault in plan.faults)
    fails = fails and plan.operations - len(plan.skipped) >= 40
    broken = (Violation("P1", "made_up", "It broke."),) if fails else ()
    return Result(plan, result.history, broken, (), "", 0.0, 0, 0)


def test_a_failing_plan_is_made_smaller_while_it_fails_alike() -> None:
    crash = Fault(3.0, "crash", "b", 1.0, "machine")
    drawn = draw(5)
    failed = _failing(replace(drawn, faults=tuple(sorted((*drawn.faults, crash), key=lambda fault: fault.at_s))))
    small = shrink(failed, _failing, runs_max=60)
    assert [fault.kind for fault in small.plan.faults] == ["crash"]
    assert small.violations
    assert 40 <= small.plan.operations - len(small.plan.skipped) < 80


def test_simulate_and_replay_tell_what_they_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--seeds", "2", "--seed", "7", "--jobs", "1", "--json"]) == 0
    assert '"failed": []' in capsys.readouterr().out
    (tmp_path / "plan.txt").write_text(text(draw(7)))
    assert main(["replay", str(tmp_path / "plan.txt")]) == 0
    assert "every promise held" in capsys.readouterr().out
    (tmp_path / "plan.txt").write_text("seed x\n")
    assert main(["replay", str(tmp_path / "plan.txt")]) == 2
    assert "line 1" in capsys.readouterr().err
