"""A fault inside a site fails the run, also where no answer and no row shows it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from chaos.simulate.inside import (
    WENT_BACK,
    EndedEpochs,
    KeptSegments,
    left_inside,
    left_resync,
    wrong_inside,
)
from chaos.simulate.plan import parse
from chaos.simulate.run import Run, collect
from gateway.epoch.modes import Modes
from remote_log.replication.sink import Sink


def a_site(*, role: str = "STANDBY", followed: int = 3, noted: bytes | None = b"3", as_of_s: float | None = None) -> Any:
    return SimpleNamespace(
        site="b", role=role, sink=SimpleNamespace(followed_epoch=followed, as_of_s=as_of_s),
        parts=SimpleNamespace(engine=SimpleNamespace(meta=lambda name: noted)),
    )


@pytest.mark.parametrize(("site", "said"), [
    (a_site(), []), (a_site(followed=0, noted=None), []), (a_site(as_of_s=7.0), []), (a_site(role="ACTIVE"), []),
    (a_site(followed=4), ["Site b follows epoch 4, and its storage notes 3."]),
    (a_site(role="ACTIVE", as_of_s=7.0), ["Site b is ACTIVE, and its storage still has the age of a standby's."]),
])
def test_what_must_not_be_so_at_any_moment(site: Any, said: list[str]) -> None:
    assert wrong_inside(site, None, ()) == said


def test_an_operation_that_runs_is_in_its_journal() -> None:
    assert wrong_inside(a_site(), "b7", ["b6", "b7"]) == []
    assert wrong_inside(a_site(), "b7", ["b6"]) == ["Operation b7 runs at site b, and its journal has nothing of it."]


def test_a_writer_keeps_a_segment_with_a_header_and_one_with_a_frame() -> None:
    def writer(*segments: tuple[int, int]) -> Any:
        made = [SimpleNamespace(begun=True, first_seq=first, last_seq=last) for first, last in segments]
        return SimpleNamespace(segments=made)

    one, kept = writer((1, 5), (6, 5)), KeptSegments()
    assert kept.lost("a", one) == []
    one.segments.pop(0)
    assert kept.lost("a", one) == ["The remote log of site a has no segment with a frame any more, while its writer lives."]
    assert kept.lost("a", one) == []
    one.segments.clear()
    assert kept.lost("a", one) == ["The remote log of site a has no segment with a header any more, while its writer lives."]
    assert kept.lost("a", writer((1, 5))) == kept.lost("a", writer()) == kept.lost("a", None) == [], "another writer"


def at_rest(**changes: Any) -> Any:
    modes: dict[str, Any] = {"making_remote": False, "degrades_waiting": 0, "unsettled": False}
    lease = SimpleNamespace(aside_s=changes.pop("aside_s", None))
    return SimpleNamespace(site="a", active_epoch=SimpleNamespace(lease=lease, modes=SimpleNamespace(**modes | changes)))


def test_what_is_left_at_rest() -> None:
    assert left_inside(at_rest()) == left_inside(SimpleNamespace(active_epoch=None)) == []  # type: ignore[arg-type]
    for change, said in (
        ({"aside_s": 0.0}, "aside"), ({"making_remote": True}, "in the making"), ({"degrades_waiting": 1}, "waits"),
        ({"unsettled": True}, "not settled"),
    ):
        [sentence] = left_inside(at_rest(**change))
        assert said in sentence


def sentences(text: str) -> str:
    result = Run(parse(text)).execute()
    collect()
    return " ".join(one.sentence for one in result.violations)


def test_a_run_reports_both(monkeypatch: pytest.MonkeyPatch) -> None:
    """A standby that becomes the active keeps its age; a resync never ends the making of its writer."""
    plan = "seed 3\nat 2.0 switchover standby\nat 6.0 degrade active\n"
    assert sentences(plan) == ""

    async def settle(self: Sink) -> None:
        return None

    switch_on = Modes._switch_on

    async def leaves(self: Modes) -> None:
        await switch_on(self)
        self.making_remote = True

    monkeypatch.setattr(Sink, "settle", settle)
    monkeypatch.setattr(Modes, "_switch_on", leaves)
    found = sentences(plan)
    assert "still has the age of a standby's" in found
    assert "has a writer of the remote log in the making" in found


@pytest.mark.parametrize(("is_valid", "why", "turned_back", "said"), [
    (False, "fenced", 0, []), (True, "fenced", 0, ["Site b has ended epoch 4, and it proves that it is the active."]),
    (False, WENT_BACK, 1, []), (False, WENT_BACK, 0, ["Site b ended epoch 4 for a DFS that went back, and it never did."]),
])
def test_an_epoch_ends_for_a_reason_and_for_good(is_valid: bool, why: str, turned_back: int, said: list[str]) -> None:
    parts = SimpleNamespace(clock=SimpleNamespace(monotonic_s=lambda: 7.0))
    lease, modes = SimpleNamespace(valid_at=lambda now_s: is_valid), SimpleNamespace(ended=None)
    epoch = SimpleNamespace(epoch=4, parts=parts, lease=lease, modes=modes)
    site: Any = SimpleNamespace(site="b", parts=parts, active_epoch=epoch)
    there: Any = SimpleNamespace(turned_back=turned_back)
    look = EndedEpochs()
    assert look.alive_still(site, there, False) == []
    site.active_epoch = None
    assert look.alive_still(site, there, False) == [], "it ends right now"
    modes.ended = SimpleNamespace(message=f"it is over: {why}")
    assert look.alive_still(site, there, False) == said
    site.parts = SimpleNamespace(clock=parts.clock)
    assert look.alive_still(site, there, False) == [], "its process is gone"


async def test_a_resync_by_command_ends_with_its_operation() -> None:
    class Site:
        async def resync(self) -> None:
            await asyncio.sleep(0)

    Site.resync.__qualname__ = "Site.resync"
    task = asyncio.ensure_future(Site().resync())
    process: Any = SimpleNamespace(name="b.1", tasks=[task])
    assert left_resync(process, "resync") == []
    assert left_resync(process, None) == ["A resync continues in b.1, and no operation asks for it."]
    await task
    assert left_resync(process, None) == []
