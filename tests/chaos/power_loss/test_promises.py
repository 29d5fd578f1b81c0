"""A loss of all leaves what POSIX promises and nothing more; a loss by chance leaves a legal state."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chaos.crash_states.calls import Call
from chaos.crash_states.disk import Disk
from chaos.crash_states.states import choices, digest
from chaos.crash_states.trees import read_tree
from chaos.power_loss.losing import by_chance
from tests.chaos.power_loss.reference import Reference
from tests.chaos.power_loss.rig import Rig, rig_at

Step = tuple[str | int, ...]
STATES = 4000
FILE = st.integers(0, 2)
LENGTH = st.sampled_from((0, 3, 511, 512, 700, 1300))
TEXT = st.sampled_from(("x", "yy" * 300, "z" * 512))
PATH = st.sampled_from(("/a", "/b", "/d", "/d/a", "/d/b"))
STEP: st.SearchStrategy[Step] = st.one_of(
    st.tuples(st.just("make"), PATH), st.tuples(st.just("make"), PATH),
    st.tuples(st.sampled_from(("write", "write-synced")), FILE, LENGTH, TEXT),
    st.tuples(st.sampled_from(("cut", "allocate")), FILE, st.sampled_from((3, 512, 1300))),
    st.tuples(st.sampled_from(("sync", "datasync")), FILE),
    st.tuples(st.sampled_from(("unlink", "empty", "rmdir")), PATH),
    st.tuples(st.sampled_from(("rename", "link")), PATH, PATH),
    st.sampled_from((("mkdir", "/d"), ("rename", "/a", "/d/b"), ("rename", "/d/a", "/b"), ("rename", "/d/a", "/a"))),
    st.tuples(st.just("sync-folder"), st.sampled_from(("/", "/d"))),
)
BEGIN: tuple[Step, ...] = (("make", "/a"), ("mkdir", "/d"), ("make", "/d/a"), ("sync-folder", "/"), ("sync-folder", "/d"))
STEPS = st.tuples(st.integers(0, len(BEGIN)), st.lists(STEP, min_size=2, max_size=14)).map(
    lambda drawn: [*BEGIN[: drawn[0]], *drawn[1]]
)
MANY = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with tempfile.TemporaryDirectory() as folder, rig_at(Path(folder)) as made:
        yield made


def done(rig: Rig, steps: list[Step]) -> list[Step]:
    """Does them in an empty folder; those that succeeded, with paths as the reference has them."""
    shutil.rmtree(rig.root)
    rig.root.mkdir()
    rig.power.renewed(rig.root)
    made, succeeded = 0, []
    for name, *arguments in steps:
        if isinstance(arguments[0], int) and arguments[0] >= made:
            continue
        if rig.said(str(name), *arguments) == "ok":
            made += name == "make"
            shown = [each.removeprefix("/") if isinstance(each, str) else each for each in arguments]
            succeeded.append((name, *shown))
    rig.said("end")
    return succeeded


@MANY
@given(steps=STEPS)
def test_what_was_synced_is_there_and_nothing_else_when_all_is_lost(rig: Rig, steps: list[Step]) -> None:
    reference = Reference()
    for name, *arguments in done(rig, steps):
        reference.step(str(name), *arguments)
    assert rig.lost() == reference.left()


@MANY
@given(steps=STEPS, seed=st.integers(0, 1000))
def test_what_chance_leaves_is_one_of_the_crash_states_of_the_same_calls(rig: Rig, steps: list[Step], seed: int) -> None:
    disk = Disk("/r", "")
    for call in as_calls(done(rig, steps)):
        disk.begin(call)
        disk.end(call)
    if math.prod(count + 1 for count in disk.places().values()) > STATES:
        return
    assert digest(disk.cached()) == digest(read_tree(rig.root))
    legal = {digest(disk.tree(taken)) for taken in choices(disk, STATES, Random(0))}
    rig.lost(by_chance(Random(seed)))
    assert digest(read_tree(rig.root)) in legal


def as_calls(steps: list[Step]) -> Iterator[Call]:
    """The steps as strace would show them."""
    at, made = 0, 0

    def call(name: str, *args: str, result: int = 0) -> Call:
        nonlocal at
        at += 1
        return Call(name, args, result, at, at)

    for name, *arguments in steps:
        first, rest = arguments[0], arguments[1:]
        if isinstance(first, int):
            descriptor = str(first)
            if name in ("write", "write-synced"):
                data = str(rest[1])
                flags = "RWF_DSYNC" if name == "write-synced" else "0"
                yield call("pwritev2", descriptor, shown(data), "1", str(rest[0]), flags, result=len(data))
            elif name == "cut":
                yield call("ftruncate", descriptor, str(rest[0]))
            elif name == "allocate":
                yield call("fallocate", descriptor, "0", "0", str(rest[0]))
            else:
                yield call("fsync", descriptor)
        elif name == "make":
            yield call("openat", "AT_FDCWD", path(first), "O_RDWR|O_CREAT|O_EXCL", result=made)
            made += 1
        elif name in ("empty", "sync-folder"):
            yield call("openat", "AT_FDCWD", path(first), "O_WRONLY|O_TRUNC" if name == "empty" else "O_RDONLY", result=99)
            if name == "sync-folder":
                yield call("fsync", "99")
        else:
            yield call(str(name), *(path(str(each)) for each in arguments))


def shown(text: str) -> str:
    return '"' + "".join(f"\\x{byte:02x}" for byte in text.encode()) + '"'


def path(name: str) -> str:
    return shown(f"/r/{name}")
