"""The protocol as scenarios: every tests/scenarios/pair_*.txt on two real sites, and the reader of these files itself."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.armed_failpoints import Crash
from tests.pair.scenarios.commands import PairCommands
from tests.pair.scenarios.scenario import Scenario, ScenarioError, load, run
from tools.sources import ROOT

ALONE = (  # also played by a pair without a coordinator
    "pair_register_lost", "pair_register_lost_active", "pair_register_lost_async", "pair_register_lost_disk_replaced",
    "pair_register_lost_half_way", "pair_register_lost_standby",
    "pair_degrade_closed", "pair_degrade_peer_down", "pair_degrade_releases_waiting", "pair_failover_refused_async",
    "pair_forced_after_crash", "pair_forced_twice", "pair_old_active_alive", "pair_quarantine_merge",
    "pair_recovery_of_the_master", "pair_restart_both", "pair_restart_local_only", "pair_restart_waits_for_the_arbiter",
    "pair_switchovers", "pair_takeover_aborted", "pair_takeover_dies", "pair_takeover_dies_after_opening",
    "pair_takeover_dies_old_active_restarts", "pair_takeover_dies_twice", "pair_takeover_dies_while_aborted",
    "pair_takeover_after_an_attempt", "pair_takeover_after_an_attempt_one_frame", "pair_rejoin_after_two_attempts",
    "pair_switchover_executor_dfs_left", "pair_switchover_executor_empty", "pair_switchover_disk_replaced",
    "pair_switchover_remote_log_gone",
    "pair_restart_disk_replaced", "pair_site_rebuilt", "pair_site_rebuilt_active", "pair_dfs_replaced",
    "pair_takeover_dies_no_longer_wanted", "pair_switchover_dies_past_return", "pair_switchover_dies",
)
FILES = sorted((ROOT / "tests" / "scenarios").glob("pair_*.txt"))
LONG = "pair_switchover_executor_gone["  # some seconds for each; the first is in the tier of a commit, too
PATIENCE_S = 1.0  # of a site in these, with a DFS that is gone for good; the product's own is ten times as long


@pytest.fixture(autouse=True)
def _frames_as_large_as_what_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """The texts count segments, and fill them with what zstd would make next to nothing of."""
    monkeypatch.setattr("storage.log.frame.COMPRESS_BYTES_MIN", 1 << 40)


@pytest.fixture(scope="module")
def small_heap() -> Iterator[None]:
    """Collecting garbage after each scenario then looks at what it made only: what was there before is set aside."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("small_heap")
@pytest.mark.parametrize("story", [
    pytest.param(story, marks=[pytest.mark.long] if story.name.startswith(LONG) and story.name != f"{LONG}begin]" else [])
    for path in FILES for story in load(path)
], ids=str)
async def test_scenario(story: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if story.name.startswith(LONG):
        monkeypatch.setattr("remote_log.dfs.retrying.RETRY_FOR_S", PATIENCE_S)
    await play(story, PairCommands(tmp_path))


@pytest.mark.usefixtures("small_heap")
@pytest.mark.parametrize("story", [story for path in FILES if path.stem in ALONE for story in load(path)], ids=str)
async def test_scenario_without_a_coordinator(story: Scenario, tmp_path: Path) -> None:
    commands = PairCommands(tmp_path)
    commands.pair.has_coordinator = False
    await play(story, commands)


async def play(story: Scenario, pair: PairCommands) -> None:
    complaints: list[dict[str, Any]] = []  # of the event loop: errors that nobody looked at
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    try:
        await run(story, pair.commands, pair.state)
    except ScenarioError as error:
        pytest.fail(str(error), pytrace=False)
    finally:
        await pair.close()
        gc.collect()  # tasks that died unnoticed speak up when they are collected
    assert [complaint for complaint in complaints if not isinstance(complaint.get("exception"), Crash)] == []


def written(folder: Path, text: str) -> Path:
    path = folder / "made_up.txt"
    path.write_text(text)
    return path


async def told(folder: Path, text: str) -> str:
    """Returns the error of a scenario that cannot be right. `echo` answers with its words, `clock` with how often it was
    asked."""
    asked = []

    async def echo(words: list[str]) -> str:
        return " ".join(words)

    async def clock(words: list[str]) -> str:
        asked.append(words)
        return str(len(asked))

    try:
        for story in load(written(folder, text)):
            await run(story, {"echo": echo, "clock": clock}, lambda: "the state")
    except ScenarioError as error:
        return str(error)
    return "nothing"


async def test_a_wrong_answer_names_file_line_and_state(tmp_path: Path) -> None:
    said = await told(tmp_path, "# why\necho a -> a\nuntil clock -> 3\n\necho b c -> b  # not so")
    assert said == "made_up.txt:5: `echo b c -> b`\n  expected: b\n  got: b c\n  the state"


async def test_an_answer_that_never_comes_fails_by_a_bounded_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.pair.scenarios.scenario.UNTIL_S", 0.1)
    assert "expected within 0 s: a\n  got: b" in await told(tmp_path, "until echo b -> a")


async def test_a_command_that_hangs_fails_by_a_bounded_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hangs(words: list[str]) -> str:
        await asyncio.Event().wait()
        return ""

    monkeypatch.setattr("tests.pair.scenarios.scenario.COMMAND_MAX_S", 0.1)
    [story] = load(written(tmp_path, "hangs -> done"))
    with pytest.raises(ScenarioError, match=r"made_up.txt:1: (?s:.)* got: nothing within"):
        await run(story, {"hangs": hangs}, str)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ecko a -> a", "made_up.txt:1: there is no command 'ecko'"),
        ("echo a", "made_up.txt checks nothing"),
        ("echo a -> a\nuntil echo a", "made_up.txt:2: `until echo a` is not of the form"),
        ("echo a ->", "made_up.txt:1: `echo a ->` is not of the form"),
        ("clock -> at least 2", "expected: at least 2"),
        ("until clock -> 2\nclock -> at most 2", "expected: at most 2\n  got: 3"),
        ("each X: a b\necho $X -> a", "made_up.txt:2: `echo b -> a`"),
    ],
)
async def test_a_scenario_that_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    assert said in await told(tmp_path, text)


async def test_a_command_with_wrong_words_names_its_line(tmp_path: Path) -> None:
    pair = PairCommands(tmp_path)
    for text in ("put c k1 v1 -> sync", "put a k1 v1 whithin 3 -> sync", "link sideways -> done", "put a -> sync"):
        [story] = load(written(tmp_path, text))
        with pytest.raises(ScenarioError, match=r"made_up.txt:1: .* cannot be run"):
            await run(story, pair.commands, pair.state)
