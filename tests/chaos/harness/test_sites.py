"""A gateway that ends by itself is known, also when it was started again since; one whose end was foreseen is not."""

from __future__ import annotations

import asyncio
import itertools
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from chaos.harness.pair import sites
from chaos.harness.pair.health import Health
from chaos.harness.pair.sites import RealSites
from tests.processes import wait_for
from twinlog.errors import Unavailable


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RealSites:
    def start_child(command: list[str], log: Any, **rest: Any) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
        process.wait()
        return process

    monkeypatch.setattr(sites, "start_child", start_child)
    for site in sites.SITES:
        (tmp_path / site).mkdir()
    return RealSites(tmp_path)


def test_an_end_by_itself_is_known_after_the_next_start(pair: RealSites) -> None:
    pair.start("a")
    pair.start("a")
    assert list(pair.died()) == [("a", 3), ("a", 3)]
    assert list(pair.died()) == [("a", 3), ("a", 3)]


def test_a_pair_that_starts_in_vain_is_not_waited_for(pair: RealSites) -> None:
    (pair.folder / "a" / "site.log").write_text('{"event": "x"}\nunavailable: port 1 is taken\n')
    health = Health(pair, itertools.count().__next__)
    assert pair.ended() == ""
    pair.start("a")
    waits = asyncio.run(health.wait_whole(10**9, pair.ended))
    assert waits == "the gateway of site a ended with 3 and said: unavailable: port 1 is taken"
    assert asyncio.run(health.wait_whole(0)) == "a does not answer; b does not answer"


def test_an_end_that_was_wanted_or_is_excused_is_no_news(pair: RealSites) -> None:
    pair.start("a")
    pair.excuse("a")
    pair.start("b")
    pair.kill("b")
    pair.start("b")
    pair.excuse("b")
    assert list(pair.died()) == []


def test_an_end_is_excused_also_when_it_was_seen_before_and_no_other_one_with_it(pair: RealSites) -> None:
    pair.start("a")
    pair.start("a")
    with pytest.raises(Unavailable):
        pair.start_and_hear("a")
    pair.excuse("a")
    assert list(pair.died()) == [("a", 3), ("a", 3)]


def test_an_operator_waits_for_a_site_that_is_coming_and_for_no_other(pair: RealSites) -> None:
    pair.wait_for_answer("a")
    pair.lives["a"].coming = True  # its servers are being built
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(pair.wait_for_answer, "a")
        with pytest.raises(TimeoutError):
            waiting.result(0.3)
        pair.lives["a"].coming = False
        waiting.result(60)


@pytest.mark.parametrize(("said", "is_mute"), [
    ("damaged-log: wal/1: the frame at offset 64\nis damaged", False), ("", True),
    ("error: KeyError: 'x' (a.py:1). This is a defect of twinlog: please report it", True),
])
def test_a_gateway_with_a_reason_may_refuse_but_has_to_say_why(pair: RealSites, said: str, is_mute: bool) -> None:
    (pair.folder / "a" / "site.log").write_text('said before\n{"event": "x"}\n' + said + "\n")
    pair.lives["a"].may_refuse = True
    assert "damaged-log" in pair.start_and_hear("a") or is_mute
    assert list(pair.died()) == []
    assert bool(pair.mute) == is_mute
    assert "said before" not in pair.refusal("a")


def test_once_the_pair_is_whole_nobody_may_refuse_any_more(pair: RealSites) -> None:
    pair.lives["a"].may_refuse = True
    pair.spoiled.newest["a", "wal"] = pair.folder
    pair.foresee_nothing()
    pair.start("a")
    assert pair.refusal("a") == ""
    assert not pair.spoiled.newest
    assert list(pair.died()) == [("a", 3)]


def test_one_kill_is_excused_and_no_other_end(pair: RealSites, monkeypatch: pytest.MonkeyPatch) -> None:
    def start_child(command: list[str], log: Any, **rest: Any) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"])
        process.wait()
        return process

    pair.start("a")
    monkeypatch.setattr(sites, "start_child", start_child)
    pair.start("a")
    pair.start("b")
    pair.start("b")
    pair.excuse_end("b", -signal.SIGKILL)
    assert sorted(pair.died()) == [("a", -signal.SIGKILL), ("a", 3), ("b", -signal.SIGKILL)]
    pair.excuse_end("a", -signal.SIGKILL)
    assert sorted(pair.died()) == [("a", 3), ("b", -signal.SIGKILL)]


def test_a_gateway_that_stopped_itself_is_known(pair: RealSites, monkeypatch: pytest.MonkeyPatch) -> None:
    def start_child(command: list[str], log: Any, **rest: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", "import os, signal; os.kill(os.getpid(), 19); signal.pause()"])

    monkeypatch.setattr(sites, "start_child", start_child)
    pair.start("a")
    assert wait_for(lambda: pair.is_paused("a"))
    pair.resume("a")
    assert wait_for(lambda: not pair.is_paused("a"))
    pair.kill("a")
    assert not pair.is_paused("a")
