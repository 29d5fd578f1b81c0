"""Manifests, and the choice of what leads to a moment."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from storage.backup.manifest import (
    NEWEST,
    BackupFile,
    Base,
    LogPart,
    Manifest,
    WantedMoment,
    chosen,
    decode_manifest,
    encode_manifest,
    manifest_name,
    manifest_number,
    newest_of_each_base,
)
from storage.backup.stream import ReachedPoint
from twinlog.errors import DamagedLog, Refused


def manifest(number: int, base: int, *ends: int) -> Manifest:
    """A base at sequence `base`, and parts of its log that end at `ends`. A sequence's time is ten times as much, in ms."""
    made, after = list[LogPart](), base
    for end in ends:
        made.append(LogPart(BackupFile(f"log-{end}", 1, ""), after, _point(end)))
        after = end
    whole = Base(f"base-{base}", "a", _point(base), {7: b"schema"}, [], 3, [BackupFile(f"rows-{base}", 1, "")])
    return Manifest(1, number, "0" * 16, "shop", "1" * 16, 5, False, whole, made)


def _point(seq: int) -> ReachedPoint:
    return ReachedPoint(1, seq, (seq * 10) << 16)


def test_a_manifest_is_the_same_again_and_names_every_part() -> None:
    made = manifest(7, 10, 20, 30)
    assert decode_manifest(encode_manifest(made), "here") == made
    assert [part.name for part in made.parts] == ["rows-10", "log-20", "log-30"]
    assert (made.end.seq, manifest(1, 10).end.seq) == (30, 10)
    assert manifest_name(7) == "manifests/000007.json"
    assert manifest_number("000007.json") == 7
    assert manifest_number(".000007.json.closed") is manifest_number("notes.txt") is None


@given(st.data())
def test_a_manifest_whose_bit_turned_is_read_by_nobody(data: st.DataObject) -> None:
    sent = bytearray(encode_manifest(manifest(7, 10, 20)))
    sent[data.draw(st.integers(0, len(sent) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(DamagedLog, match="here"):
        decode_manifest(bytes(sent), "here")


def test_parts_that_do_not_lead_on_are_no_log() -> None:
    made = manifest(7, 10, 20, 30)
    for log in (made.log[1:], made.log[::-1]):
        with pytest.raises(DamagedLog, match="does not continue sequence 10"):
            decode_manifest(encode_manifest(replace(made, log=log)), "here")


def test_another_format_is_refused() -> None:
    with pytest.raises(Refused, match="is of format 3"):
        decode_manifest(encode_manifest(replace(manifest(7, 10), format=3)), "here")


HELD = [manifest(1, 10), manifest(2, 10, 20), manifest(3, 10, 20, 30), manifest(4, 100), manifest(5, 100, 120)]


def test_each_base_counts_once_by_its_newest_manifest() -> None:
    assert [one.number for one in newest_of_each_base(HELD[::-1])] == [3, 5]


@pytest.mark.parametrize(("moment", "base", "ends"), [
    (NEWEST, 100, [120]),
    *((WantedMoment(seq=seq), base, ends) for seq, base, ends in [
        (10, 10, []), (11, 10, [20]), (20, 10, [20]), (21, 10, [20, 30]), (30, 10, [20, 30]), (100, 100, []), (101, 100, [120]),
    ]),
    *((WantedMoment(wall_ms=wall_ms), base, ends) for wall_ms, base, ends in [
        (100, 10, [20]), (199, 10, [20]), (200, 10, [20, 30]), (300, 10, [20, 30]), (1199, 100, [120]),
    ]),
])
def test_the_parts_that_lead_to_a_moment(moment: WantedMoment, base: int, ends: list[int]) -> None:
    found, log = chosen(HELD, moment)
    assert (found.base.point.seq, [each.end.seq for each in log]) == (base, ends)


@pytest.mark.parametrize(("moment", "said"), [
    (WantedMoment(seq=9), "begins later"),
    (WantedMoment(wall_ms=99), "begins later"),
    (WantedMoment(seq=31), "leads to sequence 30.*the next one begins at sequence 100"),
    (WantedMoment(wall_ms=301), "leads to sequence 30"),
    (WantedMoment(seq=121), "leads to sequence 120, at 1970-01-01T00:00:01.200Z; give a moment that it has"),
    (WantedMoment(wall_ms=1201), "leads to sequence 120"),
])
def test_a_moment_of_which_nothing_is_known_is_refused(moment: WantedMoment, said: str) -> None:
    with pytest.raises(Refused, match=said):
        chosen(HELD, moment)
