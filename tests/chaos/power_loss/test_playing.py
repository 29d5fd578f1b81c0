"""Entries of calls that overlapped: a sync covers what had ended before it began, whatever stands before it in the record."""

from __future__ import annotations

from chaos.power_loss.playing import Played
from chaos.power_loss.record import MADE_FILE, RENAMED, SYNCED, WROTE, Entry

ROOT, FOLDER, OTHER, FILE = 1, 2, 3, 9


def played(*entries: Entry) -> Played:
    there = Played({"/r": None})
    there.load("/r", {"d": None, "e": None}, {"": ROOT, "d": FOLDER, "e": OTHER})
    there.play(entries)
    return there


def left(there: Played) -> dict[str, bytes | None]:
    return {path: None if node is None else node[1] for path, node in there.models["/r"].tree({}).items()}


MADE = (Entry(MADE_FILE, 1, 2, FILE, path="/r/d/f"), Entry(SYNCED, 3, 4, FOLDER))


def test_a_sync_covers_no_write_that_ended_behind_its_beginning() -> None:
    early, late = Entry(WROTE, 10, 11, FILE, 0, data=b"early"), Entry(WROTE, 14, 16, FILE, 600, data=b"late")
    there = played(*MADE, early, late, Entry(SYNCED, 15, 20, FILE))
    assert left(there) == {"d": None, "d/f": b"early", "e": None}
    there.play([Entry(SYNCED, 21, 22, FILE)])
    assert left(there)["d/f"] == b"early".ljust(600, b"\0") + b"late"


def test_a_call_that_ended_behind_the_cut_may_be_lost_or_torn() -> None:
    there, written = played(*MADE), Entry(WROTE, 10, 30, FILE, 0, True, data=b"x" * 700)
    there.play([written, Entry(SYNCED, 20, 31, FILE)], cut=["/r"], cut_ns=29)
    assert left(there)["d/f"] == b""
    model = there.models["/r"]
    torn = model.tree({place: count for place, count in model.places().items() if place[1] != 1})["d/f"]
    assert torn is not None
    assert torn[1] == b"x" * 512 + bytes(188)
    for cut, cut_ns in (([], 29), (["/other"], 29), (["/r"], 31)):
        there = played(*MADE)
        there.play([written], cut, cut_ns)
        assert left(there)["d/f"] == b"x" * 700


def test_a_sync_of_a_folder_covers_no_name_that_came_behind_its_beginning() -> None:
    assert left(played(Entry(MADE_FILE, 1, 6, FILE, path="/r/d/f"), Entry(SYNCED, 5, 9, FOLDER))) == {"d": None, "e": None}


def test_a_write_that_syncs_covers_what_stood_in_its_sectors_and_no_other() -> None:
    there = played(
        *MADE, Entry(WROTE, 10, 11, FILE, 0, data=b"a"), Entry(WROTE, 10, 11, FILE, 600, data=b"b"),
        Entry(WROTE, 12, 13, FILE, 1, True, data=b"c"),
    )
    assert left(there)["d/f"] == b"ac".ljust(601, b"\0")


def test_a_file_that_is_renamed_into_another_folder_is_never_in_neither() -> None:
    moved = (*MADE, Entry(RENAMED, 10, 11, path="/r/d/f", other="/r/e/g"))
    assert left(played(*moved)) == {"d": None, "d/f": b"", "e": None}
    assert left(played(*moved, Entry(SYNCED, 12, 13, FOLDER))) == {"d": None, "e": None, "e/g": b""}
    assert left(played(*moved, Entry(SYNCED, 12, 13, OTHER))) == {"d": None, "d/f": b"", "e": None, "e/g": b""}
