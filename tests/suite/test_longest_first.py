"""The order of the tests: all of them, each once, and the longest at the beginning of a worker's share."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.suite.longest_first import LONGEST, TOGETHER, dealt
from tools.sources import ROOT


@given(st.lists(st.sampled_from([*LONGEST, *(room[0] for room in TOGETHER), "tests/short.py"])), st.integers(1, 9))
def test_every_test_is_given_out_once(files: list[str], workers: int) -> None:
    names = [f"{file}::{number}" for number, file in enumerate(files)]
    assert sorted(dealt(names, workers)) == [*range(len(names))]


def test_every_share_begins_with_its_longest() -> None:
    short = [f"tests/short.py::{number}" for number in range(40)]
    names = [*short[:35], LONGEST[1], LONGEST[0], LONGEST[2], *short[35:]]
    order = [names[place] for place in dealt(names, 2)]
    assert [order[:2], order[21:22]] == [[LONGEST[0], LONGEST[2]], [LONGEST[1]]]
    assert [name for name in order if name not in LONGEST] == short, "the rest is as it was: what shares a fixture is together"


def test_one_worker_has_all_tests_of_a_room_and_the_others_the_longest() -> None:
    rooms = [[f"{room[0]}test_{number}.py" for number in range(4)] for room in TOGETHER]
    short = [f"tests/short.py::{number}" for number in range(40)]
    names = [*short, *LONGEST[:4], *rooms[0], *rooms[1]]
    order = [names[place] for place in dealt(names, 4)]
    assert [order[:4], order[13:17]] == rooms
    assert [order[26:28], order[39:41]] == [[LONGEST[0], LONGEST[2]], [LONGEST[1], LONGEST[3]]]


def test_every_name_is_that_of_a_test() -> None:
    for room in TOGETHER:
        for name in room:
            assert list(ROOT.glob(f"{name}*")), name
    for name in LONGEST:
        file, _, function = name.partition("::")
        assert f"def {function or 'test_'}" in (ROOT / file).read_text(encoding="utf-8")


@pytest.mark.long
def test_workers_take_them_so(tmp_path: Path) -> None:
    """Both workers of a real xdist begin with what the list names, though it was collected last."""
    first, second = LONGEST[0], LONGEST[1].partition("::")
    for file, functions in {
        "tests/a/test_short.py": [f"test_{number}" for number in range(20)], first: ["test_long"], second[0]: [second[2]],
    }.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        text = "import os\n\n" + "".join(
            f"def {name}(tmp_path_factory):\n    with open({str(tmp_path / 'order')!r}, 'a') as file:\n"
            f"        print(os.environ['PYTEST_XDIST_WORKER'], {name!r}, file=file)\n" for name in functions
        )
        (tmp_path / file).write_text(text)
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_xdist_make_scheduler\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -p no:schemathesis -p no:cacheprovider\n")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "worksteal", "--import-mode=importlib", str(tmp_path)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environ, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in (tmp_path / "order").read_text().splitlines()]
    assert len(lines) == 22
    begun = {worker: next(name for at, name in lines if at == worker) for worker in {at for at, _ in lines}}
    assert sorted(begun.values()) == ["test_long", "test_the_tour"]
