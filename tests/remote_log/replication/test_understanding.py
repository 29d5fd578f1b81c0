"""Two releases: what both read, what is noted before it is written, and who is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote_log.replication.formats import CALLS, FORMATS, SILENT, conflict
from remote_log.replication.messages import Bounds, Says
from remote_log.replication.understanding import OWN, PATH, Understanding
from tests.storage.disk.memory_files import MemoryFiles
from twinlog.errors import DamagedLog, Incompatible


def release(name: str, **formats: Bounds) -> Says:
    return Says(name, {**FORMATS, **formats})


NEXT = release("2", frames=(1, 2), protocol=(1, 2))  # planted: each has a second version
AFTER_NEXT = release("3", frames=(2, 3), protocol=(2, 2))
bounds = st.tuples(st.integers(1, 4), st.integers(1, 4)).map(lambda pair: (min(pair), max(pair)))
sites = st.builds(lambda formats: Says("x", formats), st.fixed_dictionaries({"protocol": bounds, "frames": bounds}))


async def test_nothing_newer_is_written_before_the_other_site_was_heard() -> None:
    site = await Understanding.open(MemoryFiles(), NEXT)
    assert {what: site.writes(what) for what in FORMATS} == {what: high for what, (_, high) in SILENT.formats.items()}


@pytest.mark.parametrize("says", [None, OWN], ids=["a release that says nothing", "this release"])
async def test_beside_an_older_release_the_older_versions_are_written_and_nothing_is_noted(says: Says | None) -> None:
    files = MemoryFiles()
    site = await Understanding.open(files, NEXT)
    await site.hear(says)
    assert (site.writes("frames"), site.writes(CALLS)) == (1, 1)
    assert await files.list("formats") == []
    await Understanding.open(files, OWN)  # the way back is open


async def test_what_both_read_is_noted_before_it_is_written_and_outlives_the_process_and_the_other_site() -> None:
    files = MemoryFiles()
    site = await Understanding.open(files, NEXT)
    await site.hear(NEXT)
    assert (site.writes("frames"), site.writes(CALLS)) == (2, 2)
    again = await Understanding.open(files, NEXT)
    assert (again.writes("frames"), again.peer) == (2, None)


async def test_an_older_gateway_does_not_open_what_a_newer_one_has_written() -> None:
    files = MemoryFiles()
    await (await Understanding.open(files, NEXT)).hear(NEXT)
    with pytest.raises(Incompatible) as raised:
        await Understanding.open(files, OWN)
    assert raised.value.fields == {"file": PATH, "release": "2"}
    for words in (PATH, "version 2 of the format 'frames'", "reads version 1", "start release 2 or a later one"):
        assert words in raised.value.message


async def test_a_format_that_an_older_release_does_not_know_is_not_opened_by_it_either() -> None:
    files, with_index = MemoryFiles(), release("2", index=(0, 1))
    site = await Understanding.open(files, with_index)
    await site.hear(OWN)
    assert site.writes("index") == 0
    await site.hear(with_index)
    assert site.writes("index") == 1
    with pytest.raises(Incompatible, match="reads no version"):
        await Understanding.open(files, OWN)


async def test_a_lost_site_that_comes_back_with_an_older_release_is_refused() -> None:
    site = await Understanding.open(MemoryFiles(), NEXT)
    await site.hear(NEXT)
    with pytest.raises(Incompatible, match=r"version 2 has been in use since .* install release 2 or a later one there"):
        await site.hear(OWN)
    assert site.conflict is not None
    await site.hear(NEXT)
    assert site.conflict is None


@pytest.mark.parametrize(("says", "words"), [
    (None, "a release that does not say its versions, which reads version 1 of the format 'frames'"),
    (OWN, f"release {OWN.release}, which reads version 1 of the format 'frames', and release 3 here reads versions 2 to 3"),
])
async def test_two_releases_without_a_version_in_common_are_refused_at_both_ends(says: Says | None, words: str) -> None:
    files = MemoryFiles()
    newer, older = await Understanding.open(files, AFTER_NEXT), await Understanding.open(MemoryFiles())
    with pytest.raises(Incompatible, match=words):
        await newer.hear(says)
    with pytest.raises(Incompatible, match="release 3, which reads versions 2 to 3"):
        await older.hear(AFTER_NEXT)
    assert await files.list("formats") == []


def test_a_call_of_another_version_of_the_protocol_is_refused() -> None:
    site = Understanding(MemoryFiles(), AFTER_NEXT)
    site.check_call(2)
    for version in (1, 3):
        with pytest.raises(Incompatible, match=f"of version {version} of the protocol .* reads version 2"):
            site.check_call(version)


async def test_a_damaged_note_is_named() -> None:
    files = MemoryFiles()
    await (await Understanding.open(files, NEXT)).hear(NEXT)
    data = await files.read(PATH)
    await files.write_new(PATH, data.replace(b"2", b"1"))
    with pytest.raises(DamagedLog, match=PATH):
        await Understanding.open(files, NEXT)


@given(sites, sites)
async def test_what_one_site_writes_the_other_one_reads_or_they_are_refused(one: Says, other: Says) -> None:
    both = [(Understanding(MemoryFiles(), one), other), (Understanding(MemoryFiles(), other), one)]
    refused = [conflict(mine.own, theirs, {}, "") is not None for mine, theirs in both]
    assert refused[0] == refused[1]
    for mine, theirs in both:
        if refused[0]:
            with pytest.raises(Incompatible):
                await mine.hear(theirs)
            continue
        await mine.hear(theirs)
        for what, read in theirs.formats.items():
            assert read[0] <= mine.writes(what) <= read[1]
            assert mine.own.formats[what][0] <= mine.writes(what) <= mine.own.formats[what][1]
