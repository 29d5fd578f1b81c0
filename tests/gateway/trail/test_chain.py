"""A trail is sound as it was written, and any single change of it is found: with the place, and with its end as an anchor."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.trail.chain import FILE_BYTES_MAX, file_name, is_full, ordinal_of
from gateway.trail.entry import (
    LINE_BYTES_MAX,
    NO_LINE,
    WHAT_BYTES_MAX,
    TrailEntry,
    TrailHead,
    Who,
    bounded,
    cut_text,
    line_of,
    read_line,
)
from gateway.trail.events import OPENED
from tests.gateway.trail.trail_rig import ANNA, Stored, head_of, made, verdict_on

SIZES = st.lists(st.integers(0, 4), min_size=1, max_size=4)
TORN = b'{"sha256":"00'


def lines_of(files: Stored) -> list[tuple[int, int]]:
    """The place of each line: file, line."""
    return [(file, line) for file, (_, data) in enumerate(files) for line in range(data.count(b"\n"))]


def changed(files: Stored, file: int, lines: list[bytes]) -> Stored:
    return [(name, b"".join(lines) if at == file else data) for at, (name, data) in enumerate(files)]


@given(SIZES)
def test_a_trail_as_it_was_written_is_sound(sizes: list[int]) -> None:
    files = made(sizes)
    verdict = verdict_on(files, [head_of(files)])
    assert (verdict.faults, verdict.remarks) == ([], [])
    assert (verdict.first, verdict.lines, verdict.head) == (1, sum(sizes) + len(sizes), head_of(files))


@given(SIZES, st.data())
def test_any_byte_that_changes_is_found(sizes: list[int], data: st.DataObject) -> None:
    files = made(sizes)
    at = data.draw(st.integers(0, len(files) - 1))
    name, content = files[at]
    place = data.draw(st.integers(0, len(content) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda value: value != content[place]))
    files[at] = name, content[:place] + bytes([other]) + content[place + 1 :]
    assert verdict_on(files, [head_of(made(sizes))]).faults


@given(SIZES, st.data())
def test_a_byte_that_changes_is_found_in_its_line_or_the_one_behind_it(sizes: list[int], data: st.DataObject) -> None:
    """It is not the last line, and only the content changes, so that it stays a line."""
    files = made([*sizes, 1])
    file, line = data.draw(st.sampled_from(lines_of(files)[:-1]))
    lines = files[file][1].splitlines(keepends=True)
    entry = read_line(lines[line][:-1])
    assert entry is not None
    lines[line] = lines[line].replace(b'"name":"anna"', b'"name":"bert"')
    faults = verdict_on(changed(files, file, lines)).faults
    assert [(fault.file, fault.line) for fault in faults] == [(files[file][0], line + 1)]


@given(SIZES, st.data())
def test_a_line_that_is_taken_out_doubled_or_moved_is_found(sizes: list[int], data: st.DataObject) -> None:
    files = made([*sizes, 1])
    places = lines_of(files)
    file, line = data.draw(st.sampled_from(places))
    lines = files[file][1].splitlines(keepends=True)
    kind = data.draw(st.sampled_from(("out", "doubled", "moved")))
    if kind == "out":
        del lines[line]
    elif kind == "doubled":
        lines.insert(line, lines[line])
    else:
        other = data.draw(st.integers(0, len(lines) - 1).filter(lambda place: place != line or len(lines) == 1))
        lines[line], lines[other] = lines[other], lines[line]
        if other == line:
            del lines[line]
    assert verdict_on(changed(files, file, lines), [head_of(files)]).faults


@given(SIZES, st.data())
def test_a_line_that_is_put_in_is_found_however_well_it_fits(sizes: list[int], data: st.DataObject) -> None:
    """It continues the line before it, with a number and a hash that are right there."""
    files = made([*sizes, 1])
    file, line = data.draw(st.sampled_from(lines_of(files)[:-1]))
    lines = files[file][1].splitlines(keepends=True)
    before = read_line(lines[line][:-1])
    assert before is not None
    forged, _ = line_of(TrailEntry(before.entry.number + 1, 5, "table.drop", Who("eve", "token"), "done"), before.head.digest)
    lines.insert(line + 1, forged)
    assert verdict_on(changed(files, file, lines)).faults


@given(SIZES.filter(lambda sizes: len(sizes) > 1), st.data())
def test_a_file_that_is_missing_or_renamed_is_found(sizes: list[int], data: st.DataObject) -> None:
    files = made(sizes)
    at = data.draw(st.integers(0, len(files) - 1))
    left = verdict_on(files[:at] + files[at + 1 :], [head_of(files)])
    assert left.faults
    if 0 < at < len(files) - 1:
        assert any(f"{file_name(at + 1)} should stand before it" in fault.what for fault in left.faults)
    names = [name for name, _ in files]
    names[at] = file_name(9)
    renamed = sorted(zip(names, (content for _, content in files), strict=True))
    if at < len(files) - 1:
        assert verdict_on(renamed, [head_of(files)]).faults


@given(SIZES, st.data())
def test_an_end_that_was_cut_is_found_by_an_anchor_and_by_nothing_else(sizes: list[int], data: st.DataObject) -> None:
    files = made([*sizes, 2])
    name, content = files[-1]
    cut = data.draw(st.integers(0, len(content) - 1))
    files[-1] = name, content[:cut]
    assert verdict_on(files, [head_of(made([*sizes, 2]))]).faults
    assert not verdict_on(files).faults


def test_a_trail_that_was_written_anew_from_some_line_on_is_found_by_an_anchor_behind_it() -> None:
    true, forged = made([3, 3]), made([3, 3])
    first, _ = line_of(TrailEntry(1, 0, OPENED, Who("eve", "token"), "noted", {"before": NO_LINE.hex()}), NO_LINE)
    head = line_of(TrailEntry(1, 0, OPENED, Who("eve", "token"), "noted", {"before": NO_LINE.hex()}), NO_LINE)[1]
    second, end = line_of(TrailEntry(2, 0, "table.drop", Who("eve", "token"), "done"), head.digest)
    forged = [(file_name(1), first + second)]
    assert not verdict_on(forged).faults
    anchor = read_line(true[0][1].splitlines()[1])
    assert anchor is not None
    assert anchor.head.number == end.number
    assert "another line than the one that was known" in verdict_on(forged, [anchor.head]).faults[0].what


@pytest.mark.parametrize("torn", [TORN, bytes(40), b"\0\0\0ail\"}}\n"], ids=["prefix", "zeros", "the end alone"])
def test_a_torn_end_is_no_fault_where_the_next_file_declares_those_very_bytes(torn: bytes) -> None:
    declared = made([2, 2], [torn])
    verdict = verdict_on(declared)
    assert not verdict.faults
    assert [remark.file for remark in verdict.remarks] == [file_name(1)]
    other = [(declared[0][0], declared[0][1][:-2] + b"x" * 2), declared[1]]
    assert verdict_on(other).faults
    shorter = [(declared[0][0], declared[0][1][: -len(torn)]), declared[1]]
    assert verdict_on(shorter).faults
    longer = [(declared[0][0], declared[0][1] + b"x"), declared[1]]
    assert verdict_on(longer).faults


def test_a_torn_end_that_the_next_file_does_not_declare_is_a_fault() -> None:
    first, second = made([2, 2])
    assert verdict_on([(first[0], first[1] + TORN), second]).faults
    assert not verdict_on([first, (second[0], second[1] + TORN)]).faults  # the end of all: a crash, or a cut


def test_older_files_that_were_archived_are_no_fault_where_somebody_says_so() -> None:
    first, second, third = made([2, 2, 2], [TORN])
    assert [(fault.file, fault.line) for fault in verdict_on([second, third]).faults] == [(second[0], 1)]
    assert not verdict_on([second, third], begins_at=4).faults
    changed_first = second[1].replace(b'"name":"anna"', b'"name":"bert"', 1)
    assert verdict_on([(second[0], changed_first), third], begins_at=4).faults
    assert first[0] == file_name(1)


def test_a_file_is_full_before_its_limit_and_has_its_place_by_its_name() -> None:
    assert not is_full(0, FILE_BYTES_MAX)
    assert is_full(1, FILE_BYTES_MAX)
    assert [ordinal_of(file_name(number)) for number in (1, 99_999_999)] == [1, 99_999_999]
    assert ordinal_of("trail-1.jsonl") is None


@given(st.text(), st.text(), st.dictionaries(st.text(), st.text() | st.integers(-(2**60), 2**60) | st.none()))
def test_whatever_is_said_is_one_line_within_its_limit_and_comes_back(name: str, says: str, what: dict[str, object]) -> None:
    entry = TrailEntry(7, 5, "e", Who(cut_text(name), "token", "", cut_text(says)), "done", bounded(what))
    line, head = line_of(entry, NO_LINE)
    assert (line[-1:], line.count(b"\n")) == (b"\n", 1)
    found = read_line(line[:-1])
    assert found is not None
    assert (found.entry, found.head) == (msgspec.json.decode(msgspec.json.encode(entry), type=TrailEntry), head)


@pytest.mark.parametrize("character", ["x", "\0", "é", "\U0001f600"])
def test_what_is_too_long_is_named_by_its_hash_and_its_size(character: str) -> None:
    text = character * WHAT_BYTES_MAX
    what = bounded({"table": "t", "change": {"n": text}, **{f"{text}{number}": text for number in range(30)}})
    assert (what["table"], set(what["cut"])) == ("t", {"bytes", "sha256"})
    who = Who(cut_text(text), "token", "", cut_text(text))
    line, _ = line_of(TrailEntry(1, 1, "e", who, "begun", what), NO_LINE)
    assert len(line) <= LINE_BYTES_MAX


def test_what_is_no_line_is_none() -> None:
    line, _ = line_of(TrailEntry(1, 1, "e", ANNA), NO_LINE)
    assert [read_line(bad) for bad in (b"", b"{}", line[:-2], line, b" " + line[:-1], b"\xff" * 90)] == [None] * 6
    assert TrailHead().digest == NO_LINE
