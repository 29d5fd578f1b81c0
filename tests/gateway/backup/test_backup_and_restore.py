"""A backup of two real sites, and new pairs from it, compared row by row with what the old one held at that moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.backup import restoring, sending
from gateway.backup.holding import TARGETS_MAX
from gateway.backup.restoring import Restorer
from gateway.backup.taking import BackupTaker
from gateway.backup.verifying import verify
from gateway.service.receipts import receipt_outcome
from remote_log.replication.base_sender import BaseSettings
from storage.backup.manifest import WantedMoment
from storage.disk.data_dir import RESTORING_NAME, open_data_dir
from storage.engines.opening import open_engine
from storage.engines.rocks.engine import RocksEngine
from storage.log.encryption import Keyring, LogKey
from storage.log.wal import Wal, WalSettings
from tests.gateway.backup.rig import PairSites, Quiet, Rows, back_up, new_site, put_together, restore, rows_of, target_at
from tests.pair.pair import Pair
from tests.pair.pair_rig import epoch, open_pair, put, site
from tests.storage.disk.memory_files import MemoryFiles
from twinlog.cli.status import size
from twinlog.errors import Conflict, DamagedLog, DataDirectoryError, NotFound, Overloaded, Refused, Unavailable


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with open_pair(tmp_path / "old") as opened:
        yield opened


async def held(pair: Pair) -> Rows:
    return await rows_of(site(pair, "a").parts.engine)


async def restored_rows(root: Path, engine: str = "rocksdb") -> Rows:
    config = new_site(root, engine=engine)
    storage = await open_engine(config.engine, config.data_dir, config.pair, config.site)
    try:
        return await rows_of(storage)
    finally:
        await storage.close()


async def test_a_new_pair_has_the_rows_of_each_moment(pair: Pair, tmp_path: Path) -> None:
    """They are compared by sequence and by time, at each frame behind the base, through several increments and a restart."""
    folder, moments = tmp_path / "backup", list[tuple[int, int, Rows]]()
    await put(pair, "a", 1, "before the base")
    for increment in range(3):
        await back_up(pair, folder)
        for key in range(4):
            await put(pair, "a", key, f"{increment} {key}")
            state = site(pair, "a").parts.engine.applied
            moments.append((state.seq, state.timestamp >> 16, await held(pair)))
            await asyncio.sleep(0.002)  # another millisecond for another write
        if increment == 1:
            await pair.stop("a")
            await pair.start("a")
            await pair.until(lambda: pair.role("a") == "ACTIVE")
    taken = await back_up(pair, folder)
    assert not taken.is_new_base
    assert taken.log_bytes > 0
    for number, (seq, wall_ms, rows) in enumerate(moments):
        at = WantedMoment(seq=seq) if number % 2 else WantedMoment(wall_ms=wall_ms)
        found = await restore(folder, tmp_path / f"new {number}", at)
        assert await restored_rows(tmp_path / f"new {number}") == rows, at
        assert found.point.seq >= seq
    assert (await restore(folder, tmp_path / "newest")).point == taken.manifest.end
    assert await restored_rows(tmp_path / "newest") == await held(pair)


async def test_a_backup_under_load_is_of_one_moment(pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two rows are written together again and again, while the base is read in small parts: no moment has one alone."""
    monkeypatch.setattr(sending, "PART", BaseSettings(part_entries=3, part_bytes=2_000))
    for key in range(60):
        await put(pair, "a", key, "before")
    done = asyncio.Event()

    async def write() -> None:
        number = 0
        while not done.is_set():
            number += 1
            await put_together(pair, {0: str(number), 59: str(number), 100 + number: "new"})

    writing = asyncio.create_task(write())
    taken = [await back_up(pair, tmp_path / "backup", new_base=number == 1) for number in range(3)]
    done.set()
    await writing
    for number, point in enumerate([taken[0].manifest.base.point, *(each.manifest.end for each in taken)]):
        await restore(tmp_path / "backup", tmp_path / f"new {number}", WantedMoment(seq=point.seq))
        rows = list((await restored_rows(tmp_path / f"new {number}")).values())
        assert rows[0][0] == rows[59][0]
    await back_up(pair, tmp_path / "backup")
    await restore(tmp_path / "backup", tmp_path / "new")
    assert await restored_rows(tmp_path / "new") == await held(pair)


async def test_what_a_backup_may_keep_of_the_log_is_a_setting() -> None:
    for most, is_too_long in ((0, True), (1 << 40, False)):
        wal = await Wal.open(MemoryFiles(), "wal", WalSettings(backup_bytes_max=most))
        await wal.start(1, 1)
        assert wal.is_too_long_for_backups is is_too_long
        await wal.close()


@pytest.mark.parametrize("has_coordinator", [True, False])
async def test_a_restored_pair_opens_with_another_identity_and_is_filled_at_both_sites(
    pair: Pair, tmp_path: Path, has_coordinator: bool
) -> None:
    before = await put(pair, "a", 1, "kept", request="a request")
    await back_up(pair, tmp_path / "backup")
    old, rows, behind = site(pair, "a"), await held(pair), await put(pair, "a", 1, "given up")
    await pair.stop_all()
    await restore(tmp_path / "backup", tmp_path / "new")
    new = Pair(tmp_path / "new", has_coordinator=has_coordinator)
    try:
        for name in "ab":
            await new.start(name)
        await new.until(lambda: new.role("a") == "ACTIVE" and new.role("b") == "STANDBY")
        engine = site(new, "a").parts.engine
        await new.until(lambda: site(new, "b").parts.engine.applied.seq == engine.applied.seq)
        assert await rows_of(engine) == await rows_of(site(new, "b").parts.engine) == rows
        assert site(new, "a").parts.wal.pair not in ("", old.parts.wal.pair)
        assert site(new, "a").epoch > old.epoch + 999
        assert receipt_outcome(engine, before.receipt).outcome == "survived"
        assert receipt_outcome(engine, behind.receipt).outcome == "lost"
        again = await put(new, "a", 1, "a retry", request="a request")
        assert again.version == before.version  # answered from what the old pair did
        assert (await put(new, "a", 2, "new")).version > behind.version
        with pytest.raises(Refused, match=r"holds a backup of another pair .* give this one a place of its own"):
            await back_up(new, tmp_path / "backup")
    finally:
        await new.stop_all()


@pytest.fixture
async def untrimmed(tmp_path: Path) -> AsyncIterator[Pair]:
    """A pair of which the test trims the log, for rounds come one at a time."""
    async with open_pair(tmp_path / "old", trim_interval_s=3600.0) as opened:
        yield opened


async def test_the_log_is_kept_for_the_next_time(untrimmed: Pair, tmp_path: Path) -> None:
    """A site that trims each second would leave nothing to an increment."""
    await back_up(untrimmed, tmp_path / "backup")
    for key in range(200):
        await put(untrimmed, "a", key, "x" * 2000)
    wal = site(untrimmed, "a").parts.wal
    assert len(wal.segments()) > 3
    engine = site(untrimmed, "a").parts.engine
    await untrimmed.until(lambda: engine.durable_seq >= engine.applied.seq - 5)
    await untrimmed.until(lambda: (epoch(untrimmed, "a").shipper.view.durable_seq or 0) >= engine.applied.seq - 5)
    await site(untrimmed, "a").active_epoch.trim()  # type: ignore[union-attr]
    assert (wal.first_previous or 0) <= (await back_up(untrimmed, tmp_path / "backup")).manifest.base.point.seq
    await restore(tmp_path / "backup", tmp_path / "new")
    assert await restored_rows(tmp_path / "new") == await held(untrimmed)
    await back_up(untrimmed, tmp_path / "backup")  # says by what it asks for that all before is durable there
    await site(untrimmed, "a").active_epoch.trim()  # type: ignore[union-attr]
    assert (wal.first_previous or 0) > 100


async def test_a_log_that_was_trimmed_needs_a_new_base(pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "backup"
    first = (await back_up(pair, folder)).manifest
    monkeypatch.setattr(type(site(pair, "a").parts.wal), "is_too_long_for_backups", True)
    for key in range(200):
        await put(pair, "a", key, "x" * 2000)
    wal = site(pair, "a").parts.wal
    await pair.until(lambda: (wal.first_previous or 0) > first.end.seq)
    await pair.stop("a")  # what it has in memory is longer
    await pair.start("a")
    await pair.until(lambda: pair.role("a") == "ACTIVE")
    with pytest.raises(Conflict, match=r"was not kept.*begin a new base.*no site has kept it"):
        await back_up(pair, folder)
    log = pair.running["a"].service.backups.log(first.target, first.identity, first.end.epoch, first.end.seq)
    with pytest.raises(Conflict, match="was not kept"):  # and no head before it, which would be a broken answer
        await anext(log)
    taken = await back_up(pair, folder, new_base=True)
    assert taken.is_new_base
    await restore(folder, tmp_path / "new")
    assert await restored_rows(tmp_path / "new") == await held(pair)
    assert (await restore(folder, tmp_path / "first", WantedMoment(seq=first.end.seq))).manifest.base.id == first.base.id
    with pytest.raises(Refused, match=r"the next one begins at"):
        await restore(folder, tmp_path / "between", WantedMoment(seq=first.end.seq + 1))


async def test_at_most_so_many_targets_hold_the_log(pair: Pair, tmp_path: Path) -> None:
    for number in range(TARGETS_MAX + 2):
        await back_up(pair, tmp_path / f"backup {number}")
    assert len(site(pair, "a").parts.cursors.of_kind("backup")) == TARGETS_MAX


async def test_a_log_that_left_that_of_the_backup_needs_a_new_base(pair: Pair, tmp_path: Path) -> None:
    service, identity = pair.running["a"].service.backups, site(pair, "a").parts.wal.pair
    for number, seq in ((9, 1), (1, 1 << 40)):
        with pytest.raises(Conflict, match=f"does not hold sequence {seq} of epoch {number}"):
            await anext(service.log("0" * 16, identity, number, seq))


async def test_a_standby_is_not_asked_and_one_base_is_read_at_a_time(pair: Pair, tmp_path: Path) -> None:
    backups = pair.running["a"].service.backups
    reading = backups.base("0" * 16)
    assert await anext(reading)
    with pytest.raises(Overloaded, match="another backup reads"):
        await anext(backups.base("1" * 16))
    await reading.aclose()
    assert await anext(backups.base("1" * 16))
    await pair.stop("a")
    with pytest.raises(Unavailable, match="none answers: site b is STANDBY"):
        await back_up(pair, tmp_path / "backup")


async def test_a_backup_that_breaks_leaves_the_one_before(pair: Pair, tmp_path: Path) -> None:
    """Whatever piece of the answer turns or is missing: nothing of it is named, and the next call continues."""
    folder, sites = tmp_path / "backup", PairSites(pair)
    await put(pair, "a", 1, "one")
    before = (await back_up(sites, folder)).manifest
    await put(pair, "a", 2, "two")
    for spoil in (lambda piece: piece[:-1] + bytes([piece[-1] ^ 1]), lambda piece: piece[: len(piece) // 2]):
        sites.spoil = spoil
        for new_base in (False, True):
            with pytest.raises(DamagedLog):
                await back_up(sites, folder, new_base=new_base)
        async with target_at(folder) as target:
            assert (await target.manifests())[-1] == before
    sites.spoil = lambda piece: piece
    await back_up(sites, folder)
    await restore(folder, tmp_path / "new")
    assert await restored_rows(tmp_path / "new") == await held(pair)


async def test_a_damaged_manifest_can_be_deleted_and_the_one_before_is_whole(pair: Pair, tmp_path: Path) -> None:
    for key in range(4):
        await put(pair, "a", key, "v")
        await back_up(pair, tmp_path / "backup")
    before, newest = sorted((tmp_path / "backup/manifests").glob("0*"))
    newest.write_bytes(newest.read_bytes()[:-1])
    with pytest.raises(DamagedLog, match=f"{newest.name} is damaged.*delete it"):
        await back_up(pair, tmp_path / "backup")
    newest.unlink()
    await restore(tmp_path / "backup", tmp_path / "new")
    assert before.exists()


async def test_what_is_wrong_with_a_file_is_said(pair: Pair, tmp_path: Path) -> None:
    folder = tmp_path / "backup"
    await put(pair, "a", 1, "v")
    await back_up(pair, folder)
    (rows,) = folder.glob("base-*/rows-*")
    data = rows.read_bytes()
    for spoilt, said in (
        (data[:-1] + bytes([data[-1] ^ 1]), "it was changed, for its SHA-256 is not the manifest's"),
        (data[:-1], f"it has {len(data) - 1:,} bytes, and {len(data):,} were written"),
    ):
        rows.write_bytes(spoilt)
        with pytest.raises(DamagedLog, match=f"{rows.name} is damaged: {said}"):
            await restore(folder, tmp_path / "new")


async def test_the_new_pair_may_keep_its_rows_in_another_engine(pair: Pair, tmp_path: Path) -> None:
    await put(pair, "a", 1, "base")
    await back_up(pair, tmp_path / "backup")
    await put(pair, "a", 2, "log")
    await back_up(pair, tmp_path / "backup")
    await restore(tmp_path / "backup", tmp_path / "new", engine="sqlite")
    assert await restored_rows(tmp_path / "new", engine="sqlite") == await held(pair)


async def test_two_backups_to_one_place_do_not_mix(pair: Pair, tmp_path: Path) -> None:
    await back_up(pair, tmp_path / "backup")
    async with target_at(tmp_path / "backup") as target:
        manifest = (await target.manifests())[-1]
        with pytest.raises(Conflict, match="another backup wrote"):
            await target.publish(manifest)


async def test_a_file_that_is_damaged_or_missing_is_named_and_nothing_is_restored(pair: Pair, tmp_path: Path) -> None:
    folder = tmp_path / "backup"
    await put(pair, "a", 1, "one")
    manifest = (await back_up(pair, folder)).manifest
    for part in manifest.parts:
        file = folder / part.name
        whole = file.read_bytes()
        for spoiled in (whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1]), None):
            file.unlink()
            if spoiled is not None:
                file.write_bytes(spoiled)
            with pytest.raises(DamagedLog, match=part.name):
                await restore(folder, tmp_path / "new")
            assert not (tmp_path / "new" / "a").exists()
        file.write_bytes(whole)
    await restore(folder, tmp_path / "new")
    with pytest.raises(NotFound, match="holds no backup"):
        await restore(tmp_path / "nothing", tmp_path / "other")


async def test_only_what_is_empty_is_filled(pair: Pair, tmp_path: Path) -> None:
    folder, root = tmp_path / "backup", tmp_path / "new"
    await back_up(pair, folder)
    with pytest.raises(Refused, match="site b follows: restore at site a"):
        await restore(folder, root, site="b")
    for which in ("own", "peer"):
        strange = root / f"dfs-{which}/test/0/claims"
        strange.mkdir(parents=True)
        with pytest.raises(Refused, match=rf"dfs.{which} holds /test/0 of a pair test"):
            await restore(folder, root)
        strange.rmdir()
        strange.parent.rmdir()
    (root / "a").mkdir()
    (root / "a/notes.txt").write_text("not ours")
    with pytest.raises(DataDirectoryError, match=r"holds 'notes.txt': a restore fills an empty directory only"):
        await restore(folder, root)
    (root / "a/notes.txt").unlink()
    await restore(folder, root)
    with pytest.raises(DataDirectoryError, match="a restore fills an empty directory only"):
        await restore(folder, root)


async def test_a_register_that_knows_the_pair_is_none_of_a_new_one(pair: Pair, tmp_path: Path) -> None:
    await back_up(pair, tmp_path / "backup")
    new_site(tmp_path / "new")
    (tmp_path / "new/coordinator.db").write_bytes((tmp_path / "old/coordinator.db").read_bytes())
    for name in ("coordinator.db-wal", "coordinator.db-shm"):
        if (tmp_path / "old" / name).exists():
            (tmp_path / "new" / name).write_bytes((tmp_path / "old" / name).read_bytes())
    with pytest.raises(Refused, match="the coordinator has a register of pair test"):
        await restore(tmp_path / "backup", tmp_path / "new")


@pytest.mark.parametrize("call", ["load_base", "finish_base", "apply", "flush", "end_restore"])
async def test_a_restore_that_was_interrupted_is_served_by_nobody_and_begins_anew(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    await put(pair, "a", 1, "one")
    await back_up(pair, tmp_path / "backup")

    class KilledError(Exception):
        pass

    async def killed(*_: object) -> None:
        raise KilledError

    def killed_at_the_end(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patched:
        if call == "end_restore":
            patched.setattr(restoring, call, killed_at_the_end)
        else:
            patched.setattr(RocksEngine, call, killed)
        with pytest.raises(KilledError):
            await restore(tmp_path / "backup", tmp_path / "new")
    data_dir = tmp_path / "new/a"
    assert (data_dir / RESTORING_NAME).exists()
    with pytest.raises(DataDirectoryError, match=r"holds half of a backup.*run `twinlog restore` again"):
        open_data_dir(data_dir, "test", "a")
    await restore(tmp_path / "backup", tmp_path / "new")
    assert await restored_rows(tmp_path / "new") == await held(pair)
    open_data_dir(data_dir, "test", "a").close()


async def test_a_whole_storage_begins_anew_from_its_own_directory_alone(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database lies outside of the directory: another restore may name it by mistake."""
    await back_up(pair, tmp_path / "backup")
    engine, other = tmp_path / "new/a/engine", new_site(tmp_path / "other")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(restoring, "end_restore", killed)
        with pytest.raises(KeyboardInterrupt):
            await restore(tmp_path / "backup", tmp_path / "new")
    open_data_dir(other.data_dir, other.pair, other.site, restores=True).close()
    engine.rename(other.data_dir / "engine")
    with pytest.raises(Refused, match="holds rows of a pair: a restore fills an empty one only"):
        await restore(tmp_path / "backup", tmp_path / "other")
    (other.data_dir / "engine").rename(engine)
    await restore(tmp_path / "backup", tmp_path / "new")
    open_data_dir(tmp_path / "new/a", "test", "a").close()


async def test_how_far_it_is(pair: Pair, tmp_path: Path) -> None:
    """Each of the three long commands has a total, and comes to it."""
    for key in range(5):
        await put(pair, "a", key, "v" * 100)
    progress = [Quiet() for _ in range(4)]
    async with target_at(tmp_path / "backup") as target:
        await BackupTaker(PairSites(pair), target, progress[0], in_the_clear=False).take(new_base=False)  # type: ignore[arg-type]
        await put(pair, "a", 1, "w")
        await BackupTaker(PairSites(pair), target, progress[1], in_the_clear=False).take(new_base=False)  # type: ignore[arg-type]
        await verify(target, progress[2])
        await Restorer(target, new_site(tmp_path / "new"), progress[3]).restore(WantedMoment())
        files = (await target.held())[-1].parts
    size_bytes = sum(one.length_bytes for one in files)
    assert progress[0].lines[0] == "reading all rows from site a"
    assert (progress[0].figures[0][:2], progress[0].figures[0][2].partition(",")[0]) == ((5, 5), "5 rows")
    done, total, shown = progress[1].figures[-1]
    assert (done, shown.endswith(" bytes")) == (total, True)
    assert progress[2].figures[-1] == (size_bytes, size_bytes, f"{size(size_bytes)} of {size(size_bytes)}")
    assert [line.partition(" of ")[0] for line in progress[3].lines[:2]] == [f"checking {len(files)} files", "loading 5 rows"]
    assert (5, 5, "5 of 5 rows") in progress[3].figures
    assert all(done <= (total or done) for each in progress for done, total, _ in each.figures)


async def test_a_storage_that_holds_something_is_never_emptied(pair: Pair, tmp_path: Path) -> None:
    """It may lie outside of the data directory, as a database does, and an earlier attempt has marked the directory."""
    await back_up(pair, tmp_path / "backup")
    await pair.stop_all()

    config = new_site(tmp_path / "new")
    data_dir = open_data_dir(config.data_dir, config.pair, config.site, restores=True)
    data_dir.close()
    (tmp_path / "old/a/engine").rename(config.data_dir / "engine")
    for _ in range(2):
        with pytest.raises(Refused, match="holds rows of a pair: a restore fills an empty one only"):
            await restore(tmp_path / "backup", tmp_path / "new")


async def test_clear_text_of_an_encrypted_pair_is_written_by_command_only(tmp_path: Path) -> None:
    keys = Keyring("remote_log.encryption_keys", (LogKey("k", b"k" * 32),), lambda count: b"n" * count)
    async with open_pair(tmp_path / "old", remote_keys=keys) as pair:
        with pytest.raises(Refused, match="encrypts its logs, and this backup would not be encrypted: give --key"):
            await back_up(pair, tmp_path / "backup")
        assert (await back_up(pair, tmp_path / "backup", in_the_clear=True)).manifest.in_the_clear
