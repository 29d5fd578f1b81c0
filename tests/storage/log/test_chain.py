"""The frames that stand: scenarios as text, and random logs against two dumb twins."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from storage.invariants import InvariantBroken, watched
from storage.log.chain import check, reachable, standing, tail_after, unbroken
from storage.log.frame import Frame
from tests.storage.log.frames import a_frame
from tools.sources import ROOT
from twinlog.errors import DamagedLog, LogGap

SCENARIOS = sorted((ROOT / "tests" / "scenarios").glob("chain_*.txt"))


def parse_name(name: str) -> tuple[int, int, int]:
    """`2:5-9` or `2:5`: epoch, first and last sequence."""
    epoch, _, span = name.partition(":")
    first, _, last = span.partition("-")
    return int(epoch), int(first), int(last or first)


def name_of(frame: Frame) -> str:
    last = f"-{frame.last_seq}" if frame.count > 1 else ""
    return f"{frame.epoch}:{frame.first_seq}{last}"


class Scenario:
    """Lines: `frame E:F[-L] after P`, `stands ...`, `tail after N [epoch E] gives ...`, either ending `is a gap`."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.checks = 0

    def run(self, line: str) -> None:
        words = line.split()
        if words[0] == "frame":
            epoch, first, last = parse_name(words[1])
            assert words[2] == "after"
            self.frames.append(a_frame(first, count=last - first + 1, epoch=epoch, previous=int(words[3])))
            return
        self.checks += 1
        shuffled = random.Random(self.checks).sample(self.frames, len(self.frames))
        if words[0] == "stands":
            self.expect(words[1:], lambda: standing(shuffled), line)
        else:
            assert words[:2] == ["tail", "after"]
            rest = words[3:]
            epoch = 0
            if rest[0] == "epoch":
                epoch, rest = int(rest[1]), rest[2:]
            if rest[0] == "gives":
                rest = rest[1:]
            self.expect(rest, lambda: tail_after(shuffled, int(words[2]), epoch), line)

    def expect(self, expected: list[str], read, line: str) -> None:  # type: ignore[no-untyped-def]
        if expected == ["is", "a", "gap"]:
            with pytest.raises(LogGap):
                pytest.fail(f"{line}: {[name_of(frame) for frame in read()]}")
        else:
            assert [name_of(frame) for frame in read()] == [name for name in expected if name != "nothing"], line


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    scenario = Scenario()
    for line in path.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            scenario.run(line)
    assert scenario.checks, f"{path.name} checks nothing"


def by_definition(frames: Sequence[Frame]) -> list[Frame]:
    """A frame stands when no later one names a `previous` below its last sequence. No sorting tricks, no early end."""
    return [f for f in frames if not any(g.position > f.position and g.previous < f.last_seq for g in frames)]


def by_reading(frames: Sequence[Frame]) -> list[Frame] | None:
    """A reader with a stack, as the protocol's model has it; None where it misses a link, also an excluded one."""
    out: list[Frame] = []
    for frame in sorted(frames, key=lambda frame: frame.position):
        while out and out[-1].last_seq > frame.previous:
            out.pop()
        if out and out[-1].last_seq != frame.previous:
            return None
        out.append(frame)
    return out


@st.composite
def any_frames(draw: st.DrawFn) -> list[Frame]:
    """Frames without any law but distinct positions."""
    frames = {}
    for _ in range(draw(st.integers(0, 9))):
        first = draw(st.integers(1, 12))
        frame = a_frame(
            first, count=draw(st.integers(1, 3)), epoch=draw(st.integers(1, 3)), previous=draw(st.integers(0, first - 1))
        )
        frames[frame.position] = frame
    return list(frames.values())


@given(any_frames())
def test_any_frames_against_the_definition(frames: list[Frame]) -> None:
    expected = sorted(by_definition(frames), key=lambda frame: frame.position)
    linked = all(g.previous == f.last_seq for f, g in pairwise(expected))
    if linked:
        assert standing(frames) == expected
    else:
        with pytest.raises(LogGap):
            standing(frames)
    read = by_reading(frames)
    if read is not None:
        assert read == expected


class Writer:
    """A pair that writes, fails and changes epochs by the protocol; keeps what stands, and all that any log may hold."""

    def __init__(self) -> None:
        self.epoch, self.next_seq = 1, 1
        self.stands: list[Frame] = []
        self.all: list[Frame] = []

    def write(self, count: int) -> None:
        previous = self.stands[-1].last_seq if self.stands else 0
        frame = a_frame(self.next_seq, count=count, epoch=self.epoch, previous=previous)
        self.next_seq += count
        self.stands.append(frame)
        self.all.append(frame)

    def fail(self, frames: int) -> None:
        """The last frames fail; they may be in some log all the same."""
        del self.stands[max(0, len(self.stands) - frames) :]

    def take_over(self, unseen: int) -> None:
        """Another site goes on without having seen the last frames: their sequences are used again."""
        self.fail(unseen)
        self.epoch += 1
        self.next_seq = (self.stands[-1].last_seq if self.stands else 0) + 1


@st.composite
def histories(draw: st.DrawFn) -> Writer:
    writer = Writer()
    for _ in range(draw(st.integers(1, 12))):
        step = draw(st.sampled_from(["write", "write", "write", "fail", "take over"]))
        if step == "write":
            writer.write(draw(st.integers(1, 3)))
        elif step == "fail":
            writer.fail(draw(st.integers(1, 2)))
        else:
            writer.take_over(draw(st.integers(0, 2)))
            writer.write(1)
    writer.write(1)
    return writer


@given(histories(), st.data())
def test_a_history_is_read_back_from_any_union_of_logs(writer: Writer, data: st.DataObject) -> None:
    excluded = [frame for frame in writer.all if frame not in writer.stands]
    lost = data.draw(st.sets(st.sampled_from(excluded))) if excluded else set()
    held = [frame for frame in writer.all if frame not in lost]
    union = data.draw(st.permutations(held + data.draw(st.lists(st.sampled_from(held)))))
    assert standing(union) == writer.stands
    applied = data.draw(st.integers(0, len(writer.stands)))
    at = writer.stands[applied - 1] if applied else None
    rest = writer.stands[applied:]
    applied_seq, applied_epoch = (at.last_seq, at.epoch) if at else (0, 0)
    assert tail_after(union, applied_seq, applied_epoch) == rest
    # what was applied may have been trimmed, with all that it excluded or with none of it
    trimmed = [frame for frame in union if frame not in writer.stands[:applied]]
    assert tail_after(trimmed, applied_seq, applied_epoch) == rest


@given(histories(), st.data())
def test_a_lost_frame_that_stands_is_never_passed_over(writer: Writer, data: st.DataObject) -> None:
    lost = data.draw(st.sampled_from(writer.stands))
    held = [frame for frame in writer.all if frame is not lost]
    assume(lost is not writer.stands[-1])
    assume(all(frame.last_seq != lost.last_seq for frame in held))  # a dead site's frame: see chain.py
    before = [frame for frame in writer.stands if frame.position < lost.position]
    with pytest.raises(LogGap):
        tail_after(held, before[-1].last_seq if before else 0)


def test_two_frames_at_one_position_are_named() -> None:
    one, other = a_frame(4, value=b"one"), a_frame(4, value=b"another")
    with pytest.raises(DamagedLog, match="epoch 1, sequence 4") as caught:
        standing([one, other])
    assert f"{len(one.data)} bytes" in caught.value.message
    assert f"{len(other.data)} bytes" in caught.value.message
    assert standing([one, a_frame(4, value=b"one")]) == [one]
    with pytest.raises(DamagedLog, match="epoch 1, sequence 4"):
        standing([one, a_frame(4, value=b"two")])


@given(any_frames())
def test_what_leads_to_the_end_is_the_longest_end_of_what_stands_without_a_hole(frames: list[Frame]) -> None:
    try:
        found = unbroken(frames)
    except DamagedLog:
        return
    kept = sorted(by_definition(frames), key=lambda frame: frame.position)
    assert found == kept[len(kept) - len(found) :]
    assert all(later.previous == before.last_seq for before, later in pairwise(found))
    if len(found) < len(kept):
        assert found[0].previous != kept[len(kept) - len(found) - 1].last_seq
    assert bool(found) == bool(kept)


def test_a_hole_is_left_behind() -> None:
    frames = [a_frame(seq) for seq in (1, 2, 4, 5)]
    assert unbroken(frames) == frames[2:]
    assert unbroken(frames[:1]) == frames[:1]


def test_nothing_gives_nothing() -> None:
    assert standing([]) == []
    assert tail_after([], 7) == []


@pytest.mark.parametrize(("planted", "rule"), [
    (lambda kept: kept[:-1], "the newest"),
    (lambda kept: kept[1:], "no later one cuts it off"),
    (lambda kept: [*kept[:1], *kept], "no later one cuts it off"),
])
def test_a_chain_that_keeps_too_little_or_too_much_is_found(planted: Callable[[list[Frame]], list[Frame]], rule: str) -> None:
    """Each planted mistake is one that `standing` itself, with its check of links, might not see."""
    ordered = [a_frame(1), a_frame(2), a_frame(3)]
    check(ordered, ordered)
    with watched() as broken, pytest.raises(InvariantBroken, match=rule):
        check(ordered, planted(ordered))
    assert len(broken) == 1


def test_what_a_later_frame_cut_off_does_not_stand() -> None:
    ordered = [a_frame(1), a_frame(2), a_frame(3, previous=1, epoch=2)]
    check(ordered, [ordered[0], ordered[2]])
    with watched(), pytest.raises(InvariantBroken, match="no later one cuts it off"):
        check(ordered, ordered)
    with watched(costly_too=False) as broken:
        check(ordered, ordered)  # the walk is left to tests and the simulator
    assert not broken


def test_frames_of_an_older_epoch_do_not_lead_on_from_a_newer_one() -> None:
    """A start of epoch 2 that is applied has cut off what epoch 1 had above it, also where the start itself was trimmed."""
    left_over = a_frame(6)
    assert reachable([left_over], 5, 1) == [left_over]
    assert reachable([left_over], 5, 2) == []
