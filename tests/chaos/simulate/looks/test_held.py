"""Things that one look after the other finds are held; a pair at rest has what is named, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from chaos.simulate import run as running
from chaos.simulate.draw import draw
from chaos.simulate.looks import held as looks
from chaos.simulate.looks.held import COUNTED, KEPT, LASTING, held
from chaos.simulate.run import Run, collect
from chaos.simulate.twins.process import Process
from gateway.api.body_budget import BodyBudget
from gateway.epoch.commit_rule import CommitSettings
from gateway.service.admission import Admission
from gateway.service.key_gate import KeyGate


def a_life(*rooms: object) -> Any:
    return SimpleNamespace(process=Process("a.1"), site=SimpleNamespace(), **{f"room{at}": one for at, one in enumerate(rooms)})


def words(life: Any, handles: tuple[Any, ...] = ()) -> list[str]:
    return sorted(held(life, handles).values())


async def taken_of_all() -> tuple[Any, dict[str, Callable[[], None]]]:
    """Returns a life with one thing of each kind held, and for each the words and what gives it back."""
    admission, gate, budget = Admission(CommitSettings()), KeyGate(), BodyBudget(1 << 20)
    admission.enter(7)
    gate.try_enter([(1, b"k")])
    place = budget.hold()
    await place.take(5)
    return a_life(admission, gate, budget), {
        "Admission": lambda: admission.leave(7), "KeyGate": lambda: gate.leave([(1, b"k")]), "BodyBudget": place.release,
    }


async def test_each_room_that_counts_is_looked_into_until_it_is_empty() -> None:
    life, releases = await taken_of_all()
    for room, release in releases.items():
        assert any(one.startswith(room) for one in words(life)), room
        release()
        assert not any(one.startswith(room) for one in words(life)), room
    assert words(life) == []


async def test_a_lock_a_future_and_a_task_are_held() -> None:
    gate = KeyGate()
    life = a_life(gate)
    lock, promised = asyncio.Lock(), asyncio.get_running_loop().create_future()
    vars(gate)["_lock"], vars(gate)["_promised"] = lock, promised
    await lock.acquire()
    assert words(life) == ["KeyGate._lock of a.1", "KeyGate._promised of a.1"]
    lock.release()
    promised.set_result(None)
    assert words(life) == []

    async def waits() -> None:
        await asyncio.Event().wait()

    life.process.tasks.append(task := asyncio.create_task(waits()))
    [word] = words(life)
    assert "waits" in word
    task.cancel()
    await asyncio.wait([task])
    assert words(life) == []


def test_more_tasks_of_a_kind_than_live_are_held() -> None:
    class Endless:
        def __init__(self) -> None:
            self.coro = SimpleNamespace(__qualname__="CommitLog._guarded")

        def done(self) -> bool:
            return False

        def get_coro(self) -> Any:
            return self.coro

    life = a_life()
    life.process.tasks = [Endless() for _ in range(LASTING["CommitLog._guarded"])]
    assert words(life) == []
    life.process.tasks.append(Endless())
    assert words(life) == ["task CommitLog._guarded of a.1"]


def test_the_same_thing_is_the_same_hold_and_another_one_is_not() -> None:
    gate = KeyGate()
    gate.try_enter([(1, b"k")])
    first = held(a_life(gate), ())
    gate.try_enter([(1, b"l")])
    gate.leave([(1, b"k")])
    assert first.keys().isdisjoint(held(a_life(gate), ())), "another key is another write"
    gate.try_enter([(1, b"k")])
    assert first.keys() <= held(a_life(gate), ()).keys()


def test_what_is_named_as_kept_is_full_in_some_pair_at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the list would grow, and hide the leaks of a room that is gone or has another name."""
    monkeypatch.setattr(looks, "KEPT", frozenset())
    monkeypatch.setattr(looks, "COUNTED", {})
    monkeypatch.setattr(running, "HELD_S", 0.0)
    seen: set[str] = set()
    for seed in (0, 12, 920049, 152, 195):
        for violation in Run(draw(seed)).execute().violations:
            if violation.checker == "held":
                seen.add(violation.sentence.split(", and ")[1].split(" of ")[0])
        collect()
    assert KEPT - seen == set()


def test_what_is_counted_exists() -> None:
    from gateway.api.body_budget import BodyHold
    from gateway.epoch.modes import Modes
    from gateway.service.as_of import ScanSnapshots, _HeldSnapshot

    kinds = {kind.__name__: kind for kind in (Admission, BodyBudget, BodyHold, ScanSnapshots, _HeldSnapshot, Modes)}
    assert kinds.keys() == COUNTED.keys()
    for name, attributes in COUNTED.items():
        code = kinds[name].__init__.__code__  # type: ignore[misc]
        assert set(attributes) <= set(code.co_names), name
