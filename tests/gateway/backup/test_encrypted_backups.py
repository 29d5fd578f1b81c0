"""A backup with keys: nothing of it can be read or changed without them, and every error names the key."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.backup.commands import keyring
from storage.backup.manifest import encode_manifest, manifest_name
from storage.engines.opening import open_engine
from storage.log.encryption import NO_KEYS, Keyring, LogKey
from tests.gateway.backup.rig import Rows, back_up, new_site, restore, rows_of, target_at, verified
from tests.pair.pair import Pair
from tests.pair.pair_rig import open_pair, put, site
from twinlog.errors import Conflict, DamagedLog, InvalidInput, KeyUnavailable

SECRET = "a text that nobody may read"


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    logs = Keyring("remote_log.encryption_keys", (LogKey("of-the-log", b"k" * 32),), lambda count: b"n" * count)
    async with open_pair(tmp_path / "old", remote_keys=logs) as opened:
        yield opened


def keys(tmp_path: Path, *ids: str) -> Keyring:
    for one in ids:
        (tmp_path / one).write_bytes(base64.b64encode(one.encode().ljust(32, b".")))
    return keyring([f"{one}=file:{tmp_path / one}" for one in ids], "twinlog backup")


async def restored(folder: Path, root: Path, ring: Keyring) -> Rows:
    await restore(folder, root, keys=ring)
    config = new_site(root)
    storage = await open_engine(config.engine, config.data_dir, config.pair, config.site)
    try:
        return await rows_of(storage)
    finally:
        await storage.close()


async def test_nothing_is_read_without_the_key_and_all_with_it(pair: Pair, tmp_path: Path) -> None:
    folder, ring = tmp_path / "backup", keys(tmp_path, "2026-11")
    await put(pair, "a", 1, SECRET)
    await back_up(pair, folder, keys=ring)
    await put(pair, "a", 2, SECRET + " twice")
    taken = await back_up(pair, folder, keys=ring)
    assert not taken.is_new_base
    assert (taken.manifest.key_id, taken.manifest.in_the_clear) == ("2026-11", False)
    files = [one.read_bytes() for one in folder.rglob("*") if one.is_file()]
    assert not any(SECRET.encode() in each or b'"k"' in each or b"int64" in each for each in files)
    assert (await verified(folder, ring))[1] == []
    assert await restored(folder, tmp_path / "new", ring) == await rows_of(site(pair, "a").parts.engine)
    for number, (other, said) in enumerate(((NO_KEYS, "does not have"), (keys(tmp_path, "2027-01"), "does not have"))):
        with pytest.raises(KeyUnavailable, match=f"'2026-11', which .* {said}"):
            await restore(folder, tmp_path / f"refused {number}", keys=other)
        with pytest.raises(KeyUnavailable, match="'2026-11'"):
            await verified(folder, other)
        assert not (tmp_path / f"refused {number}" / "a").exists()


async def test_another_key_begins_a_new_base_and_older_moments_need_the_older_key(pair: Pair, tmp_path: Path) -> None:
    folder, old, new = tmp_path / "backup", keys(tmp_path, "2026-11"), keys(tmp_path, "2027-01")
    await back_up(pair, folder, keys=old)
    with pytest.raises(KeyUnavailable, match=r"\d.json is .* '2026-11', .*: add `--key 2026-11=file:PATH` to the end"):
        await back_up(pair, folder, in_the_clear=True, keys=keyring([], "twinlog backup"))
    with pytest.raises(KeyUnavailable, match="'2026-11', which --key does not have"):
        await back_up(pair, folder, keys=new)
    both = keys(tmp_path, "2027-01", "2026-11")
    with pytest.raises(Conflict, match=r"the key '2026-11', and the first --key is '2027-01'.*begin a new base"):
        await back_up(pair, folder, keys=both)
    assert (await back_up(pair, folder, keys=new, new_base=True)).is_new_base
    await put(pair, "a", 1, "v")
    assert not (await back_up(pair, folder, keys=both)).is_new_base
    await restore(folder, tmp_path / "new", keys=new)  # the newest base needs its own key alone
    assert (await verified(folder, both))[1] == []


async def test_a_plain_backup_is_not_continued_with_a_key(pair: Pair, tmp_path: Path) -> None:
    await back_up(pair, tmp_path / "backup", in_the_clear=True)
    with pytest.raises(Conflict, match="is not encrypted, and the first --key is '2026-11'"):
        await back_up(pair, tmp_path / "backup", keys=keys(tmp_path, "2026-11"))


async def test_a_manifest_that_was_made_without_the_key_restores_nothing(pair: Pair, tmp_path: Path) -> None:
    folder, ring = tmp_path / "backup", keys(tmp_path, "2026-11")
    await put(pair, "a", 1, "v")
    await back_up(pair, folder, keys=ring)
    await put(pair, "a", 1, "w")
    await back_up(pair, folder, keys=ring)
    async with target_at(folder) as target:
        manifest = (await target.held())[-1]
    manifest.log.clear()  # as one who wants the last write away
    (folder / manifest_name(manifest.number)).write_bytes(encode_manifest(manifest))
    for work in (restore(folder, tmp_path / "new", keys=ring), back_up(pair, folder, keys=ring)):
        with pytest.raises(DamagedLog, match=f"{manifest.number:06d}.json was changed: its proof does not fit"):
            await work
    assert len((await verified(folder, ring))[1]) == 1


def test_what_is_no_key_is_said(tmp_path: Path) -> None:
    (tmp_path / "short").write_text("abcd")
    for reference, said in (
        ("secret", "no reference at place 1"), ("k=env:TWINLOG_NOTHING", "not set"),
        (f"k=file:{tmp_path}/none", "cannot be read"), (f"k=file:{tmp_path}/short", "not 32 bytes in base64"),
    ):
        with pytest.raises(InvalidInput, match=f"--key .*{said}"):
            keyring([reference], "twinlog backup")
