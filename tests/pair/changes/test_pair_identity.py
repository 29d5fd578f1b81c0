"""The identity of a pair: every segment of its logs names it, it outlives the register, and no log of another one is read."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from storage.log.segment import encode_header, parse_header, parse_remote_name, parse_wal_name
from switchover.roles.table import Event
from tests.pair.pair import Pair
from tests.pair.pair_rig import caught_up, coordinator_value, epoch, holds, open_pair, put, site
from twinlog.errors import BrokenHeader

ROWS = {0: "x", 1: "x", 2: "x"}
THEIRS = "b2" * 8  # another pair


def segments(root: Path) -> list[Path]:
    """Returns the segments of both WALs and both remote logs, the open ones too."""
    return [path for path in sorted(root.rglob("*")) if path.is_file() and (
        parse_wal_name(path.name) is not None or parse_remote_name(path.name) is not None)]


def pairs(root: Path) -> set[str]:
    found = set()
    for path in segments(root):
        with suppress(FileNotFoundError, BrokenHeader):  # trimmed meanwhile, or about to be made
            found.add(parse_header(path.read_bytes()).pair)
    return found


def relabel(files: list[Path], pair: str) -> None:
    for file in files:
        data = file.read_bytes()
        header = encode_header(replace(parse_header(data), pair=pair))
        file.write_bytes(header + data[len(header) :])


async def written(pair: Pair) -> str:
    for key, word in ROWS.items():
        assert (await put(pair, "a", key, word)).mode == "sync"
    return (await coordinator_value(pair, "a")).pair


async def test_every_segment_of_a_pair_names_it_whoever_writes(tmp_path: Path) -> None:
    async with open_pair(tmp_path) as pair:
        identity = await written(pair)
        assert len(identity) == 16
        assert pairs(tmp_path) == {identity}
        assert (await pair.operate("b", "switchover", "b")).state == "succeeded"
        assert (await put(pair, "b", 3, "y")).mode == "sync"
        assert pairs(tmp_path) == {identity} == {(await coordinator_value(pair, "b")).pair}


async def test_a_site_on_an_empty_disk_that_begins_the_pair_anew_learns_its_identity_from_a_remote_log(tmp_path: Path) -> None:
    async with open_pair(tmp_path) as pair:
        identity = await written(pair)
        assert (await pair.operate("b", "switchover", "b")).state == "succeeded"
        await pair.stop("a")
        await pair.stop("b")
        await pair.lose_register()
        for path in (tmp_path / "b").iterdir():  # all but what the other site wrote
            if path.name != "dfs":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        await pair.start("b")
        await pair.until(lambda: "no record of this pair" in str(site(pair, "b").waiting_for))
        ended = await pair.operate("b", "failover", "b", accept_data_loss="unknown")
        assert ended.state == "succeeded", ended
        assert (await coordinator_value(pair, "b")).pair == identity
        assert pairs(tmp_path) == {identity}


async def test_a_takeover_does_not_read_the_remote_log_of_another_pair(tmp_path: Path) -> None:
    """The wrong DFS is mounted, or a folder was copied there: its frames link, and their CRCs fit."""
    async with open_pair(tmp_path) as pair:
        identity = await written(pair)
        await pair.crash("a")
        await pair.stop("b")
        log = [file for file in segments(tmp_path / "b" / "dfs") if any(file.read_bytes())]
        relabel(log, THEIRS)
        await pair.start("b")
        ended = await pair.operate("b", "failover", "b")
        assert ended.state != "succeeded"
        assert f"another pair: its header names {THEIRS}, and this log is of {identity}" in str(ended)
        await pair.stop("b")
        relabel(log, identity)
        await pair.start("b")
        await pair.until(lambda: pair.running["b"].operations.running_id is None)
        ended = await pair.operate("b", "failover", "b")
        assert ended.state == "succeeded", ended
        assert await holds(pair, "b", ROWS)


async def test_a_forced_takeover_leaves_out_what_is_of_another_pair_and_says_so(tmp_path: Path) -> None:
    async with open_pair(tmp_path) as pair:
        await written(pair)
        await pair.crash("a")
        await pair.stop("b")
        relabel([file for file in segments(tmp_path / "b" / "dfs") if any(file.read_bytes())], THEIRS)
        await pair.start("b")
        ended = await pair.operate("b", "failover", "b", accept_data_loss="unknown")
        assert ended.state == "succeeded", ended
        assert f"another pair: its header names {THEIRS}" in str(ended)


async def test_a_wal_of_another_pair_is_not_continued(tmp_path: Path) -> None:
    """The wrong disk is attached: its register file was lost with the rest, and its log is whole."""
    async with open_pair(tmp_path) as pair:
        identity = await written(pair)
        await pair.stop("a")
        wal = segments(tmp_path / "a" / "wal")
        relabel(wal, THEIRS)
        await pair.start("a")
        said = f"is of pair {THEIRS}, and the register of pair {identity}"
        await pair.until(lambda: said in str(site(pair, "a").waiting_for))
        assert pair.role("a") == "CLOSED"
        ended = await pair.operate("a", "failover", "a", accept_data_loss="unknown")
        assert (ended.state, said in str(ended)) == ("failed", True), "its storage is of that pair, too"
        assert {parse_header(path.read_bytes()).pair for path in wal} == {THEIRS}, "and nothing of it is deleted"
        await pair.stop("a")
        relabel(wal, identity)
        await pair.start("a")
        await pair.until(lambda: pair.role("a") == "ACTIVE")
        assert await holds(pair, "a", ROWS)


async def test_an_active_whose_address_leads_to_itself_says_so(tmp_path: Path) -> None:
    """Met on a real site: its own answer was shown as a standby that lagged by no record."""
    async with open_pair(tmp_path) as pair:
        await written(pair)
        await pair.stop("b")
        pair.running["b"] = pair.running["a"]
        try:
            await pair.until(lambda: "site a itself, and no other one: correct its peer" in epoch(pair, "a").shipper.view.why)
            assert epoch(pair, "a").shipper.view.state == "refused"
        finally:
            del pair.running["b"]


async def test_an_active_whose_address_leads_to_another_pair_ships_nothing_there(tmp_path: Path) -> None:
    """Both pairs have the same sites, epochs and tables, and the standby has just restarted: it knows no checksum."""
    async with open_pair(tmp_path / "ours") as ours, open_pair(tmp_path / "theirs") as theirs:
        await written(ours)
        await put(theirs, "a", 9, "theirs")
        await ours.until(lambda: caught_up(ours, "a", "b"))
        await theirs.until(lambda: caught_up(theirs, "a", "b"))
        await theirs.stop("b")
        await theirs.stop("a")
        standby = await theirs.start("b")
        await theirs.until(lambda: standby.site.role == "CLOSED" and standby.site.pair_state is not None)
        standby.site.event(Event.FOLLOW)  # as it stood before it lost its active
        await ours.stop("b")
        ours.running["b"] = standby
        await put(ours, "a", 4, "ours")
        await ours.until(lambda: "correct peer.url" in epoch(ours, "a").shipper.view.why)
        assert await holds(theirs, "b", {9: "theirs"})
        del ours.running["b"]
