"""Two releases in one pair, with planted second versions of protocol and frames: one site after the other, and back."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from gateway.site.peer_api import PeerApi
from remote_log.replication.formats import CALLS
from remote_log.replication.messages import REPLICATE, Addressed, Says
from remote_log.replication.understanding import OWN, Understanding
from storage.disk.os_files import OsFiles
from switchover.preflight.preflight import ChecksDocument
from tests.pair.pair import Pair
from tests.pair.pair_rig import open_pair, put, rows, site
from twinlog.errors import Incompatible


def release(name: str, **formats: tuple[int, int]) -> Says:
    return Says(name, {**OWN.formats, **formats})


NEXT = release("2", protocol=(1, 2), frames=(1, 2))
OTHER_PROTOCOL, OTHER_FRAMES = release("3", protocol=(2, 2)), release("3", frames=(2, 2))


def writes(pair: Pair, what: str) -> dict[str, int]:
    return {name: running.site.parts.understanding.writes(what) for name, running in pair.running.items()}


def follows(pair: Pair, active: str, standby: str) -> bool:
    epoch = site(pair, active).active_epoch
    return epoch is not None and epoch.shipper.view.state == "following" and pair.role(standby) == "STANDBY"


async def changed(pair: Pair, name: str, says: Says) -> None:
    """The gateway of a standby, stopped and started as another release."""
    await pair.stop(name)
    pair.says[name] = says
    await pair.start(name)
    await pair.until(lambda: follows(pair, "b" if name == "a" else "a", name))


async def test_one_site_after_the_other_and_back_before_both_run_the_new_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped: set[int] = set()
    taken = PeerApi.call_bytes

    async def seen(self: PeerApi, method: str, body: bytes) -> bytes:
        if method == REPLICATE:
            shipped.add(msgspec.msgpack.decode(body, type=Addressed).protocol)
        return await taken(self, method, body)

    monkeypatch.setattr(PeerApi, "call_bytes", seen)
    async with open_pair(tmp_path) as pair:
        await put(pair, "a", 1, "old")
        await changed(pair, "b", NEXT)
        await changed(pair, "b", OWN)  # the way back
        await changed(pair, "b", NEXT)
        assert (await pair.operate("b", "switchover", "b")).state == "succeeded"
        await put(pair, "b", 2, "new active, old standby")
        assert (writes(pair, "frames"), shipped) == ({"a": 1, "b": 1}, {1})
        await changed(pair, "a", NEXT)
        await put(pair, "b", 3, "both new")
        await pair.until(lambda: shipped == {1, 2})
        assert (writes(pair, "frames"), writes(pair, CALLS)) == ({"a": 2, "b": 2}, {"a": 2, "b": 2})
        await pair.until(lambda: site(pair, "a").parts.engine.applied.seq == site(pair, "b").parts.engine.applied.seq)
        await pair.stop("a")
        files = OsFiles(tmp_path / "a")
        with pytest.raises(Incompatible, match="start release 2 or a later one; nothing was changed"):
            await Understanding.open(files, OWN)  # no way back now
        await files.close()


@pytest.mark.parametrize("other", [OTHER_PROTOCOL, OTHER_FRAMES], ids=["the protocol", "the frames"])
async def test_releases_that_do_not_fit_say_so_and_replicate_nothing_and_what_was_acknowledged_is_safe(
    tmp_path: Path, other: Says
) -> None:
    async with open_pair(tmp_path) as pair:
        await pair.stop("b")
        pair.says["b"] = other
        await pair.start("b")
        a, b = site(pair, "a"), site(pair, "b")
        await pair.until(lambda: a.active_epoch is not None and a.active_epoch.shipper.view.state == "refused")
        await pair.until(lambda: b.waiting_for is not None and "release" in b.waiting_for)
        assert pair.role("b") == "CLOSED"
        applied_seq = b.parts.engine.applied.seq
        await put(pair, "a", 1, "in both logs")
        told = msgspec.to_builtins(pair.running["a"].service.cluster.document())
        assert (told["mode"], told["sites"]["b"]["state"]) == ("sync", "refused")
        assert "docs/upgrade.md" in told["sites"]["b"]["why"]
        checks = {check.id: check for check in (await b_checks(pair)).checks}
        failed = "peer.answers" if other is OTHER_PROTOCOL else "pair.releases-fit"
        assert (checks[failed].status, b.parts.engine.applied.seq) == ("failed", applied_seq)
        await changed(pair, "b", OWN)
        await pair.until(lambda: site(pair, "b").parts.engine.applied.seq >= a.parts.engine.applied.seq)
        assert await rows(pair, "b") == {1: "in both logs"}


async def b_checks(pair: Pair) -> ChecksDocument:
    return await pair.running["b"].operations.checks("switchover")
